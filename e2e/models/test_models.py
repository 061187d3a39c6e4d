"""The official Python clients accept the scripted streams, and `agentwire convert` agrees with their final messages."""

import json
import os
import subprocess
import unittest
import urllib.request
from pathlib import Path

import anthropic
import openai

HERE = Path(__file__).parent
ROOT = Path(os.environ.get("AGENTWIRE_ROOT", HERE.parent.parent))
BINARY = os.environ.get("AGENTWIRE", str(ROOT / "target" / "debug" / "agentwire"))
FAIL = {"overloaded", "overloaded in the middle", "cut off", "error event", "failed"}


def converted(url: str, body: dict, name: str) -> dict:
    """Text, thoughts and calls of a stream, by `agentwire convert`."""
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request) as response:
        stream = response.read()
    done = subprocess.run([BINARY, "convert", "--from", name, "--to", "ag-ui"], input=stream, capture_output=True, check=True)
    events = [json.loads(line[6:]) for line in done.stdout.decode().split("\n") if line.startswith("data: ")]

    def joined(kind: str) -> str:
        return "".join(event["delta"] for event in events if event["type"] == kind)

    arguments: dict[str, str] = {}
    for event in events:
        if event["type"] == "TOOL_CALL_ARGS":
            arguments[event["toolCallId"]] = arguments.get(event["toolCallId"], "") + event["delta"]
    names = {event["toolCallId"]: event["toolCallName"] for event in events if event["type"] == "TOOL_CALL_START"}
    calls = {call: (names[call], json.loads(text)) for call, text in arguments.items()}
    return {"last": events[-1]["type"], "text": joined("TEXT_MESSAGE_CONTENT"), "thoughts": joined("REASONING_MESSAGE_CONTENT"), "calls": calls}


class Models(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.server = subprocess.Popen(["node", str(HERE / "server.mjs")], stdout=subprocess.PIPE)
        assert cls.server.stdout is not None
        cls.scenes = json.loads(cls.server.stdout.readline())
        cls.url = cls.scenes["url"]

    @classmethod
    def tearDownClass(cls) -> None:
        cls.server.kill()
        cls.server.communicate()

    def test_messages(self) -> None:
        client = anthropic.Anthropic(base_url=self.url, api_key="k", max_retries=0)
        for scene in self.scenes["anthropic"]:
            if scene in FAIL:
                continue
            body = {"model": scene, "max_tokens": 100, "messages": [{"role": "user", "content": "Hello"}]}
            with self.subTest(scene), client.messages.stream(**body) as stream:
                final = stream.get_final_message()
                found = converted(f"{self.url}/v1/messages", {**body, "stream": True}, "anthropic")
                self.assertEqual(found["last"], "RUN_FINISHED")
                self.assertEqual(found["text"], "".join(block.text for block in final.content if block.type == "text"))
                self.assertEqual(found["thoughts"], "".join(block.thinking for block in final.content if block.type == "thinking"))
                calls = {block.id: (block.name, block.input) for block in final.content if block.type in ("tool_use", "server_tool_use")}
                self.assertEqual(found["calls"], calls)

    def test_responses(self) -> None:
        client = openai.OpenAI(base_url=f"{self.url}/v1", api_key="k", max_retries=0)
        for scene in self.scenes["responses"]:
            if scene in FAIL or scene == "incomplete":
                continue
            with self.subTest(scene), client.responses.stream(model=scene, input="Hello") as stream:
                final = stream.get_final_response()
                found = converted(f"{self.url}/v1/responses", {"model": scene, "input": "Hello", "stream": True}, "openai-responses")
                self.assertEqual(found["last"], "RUN_FINISHED")
                parts = [part for item in final.output if item.type == "message" for part in item.content]
                self.assertEqual(found["text"], "".join(part.refusal if part.type == "refusal" else part.text for part in parts))
                summaries = [part.text for item in final.output if item.type == "reasoning" for part in item.summary]
                self.assertEqual(found["thoughts"], "".join(summaries))
                calls = {item.call_id: (item.name, json.loads(item.arguments)) for item in final.output if item.type == "function_call"}
                functions = {call: value for call, value in found["calls"].items() if call.startswith("call_")}
                self.assertEqual(functions, calls)


if __name__ == "__main__":
    unittest.main()
