"""The HAI server kit: the builder, the standard's sample, and agents behind FastAPI, Starlette and uvicorn."""

import asyncio
import inspect
import json
import os
import pathlib
import socket
import subprocess
import threading
import time

import httpx
import pytest
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.routing import Mount

import hai_sample
from agentwire.hai import Agent, BaseChatOutput, HAIAgentRequest, Stream, hai_response, hai_router, translate_sse

HERE = pathlib.Path(__file__).resolve().parent
NOW = 1_620_000_000_500
REQUEST = {"threadId": "t", "runId": "r", "messages": [{"id": "1", "role": "user", "content": "good day"}]}


def events_of(text):
    return [json.loads(part[len("data: ") :]) for part in text.split("\n\n") if part]


def kinds(events):
    return [event["type"] for event in events]


async def collected(agent, body, **options):
    return [text async for text in translate_sse(agent, body, close_delay=0, **options)]


def check(text):
    command = [os.environ["AGENTWIRE"], "check", "--format", "hai", "-"]
    return subprocess.run(command, input=text.encode(), capture_output=True, timeout=60)


class Server:
    """An app behind a real uvicorn, on a free port."""

    def __init__(self, app):
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}"
        self.server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self.socket]}, daemon=True)

    def __enter__(self):
        self.thread.start()
        while not self.server.started:
            time.sleep(0.01)
        return self

    def __exit__(self, *error):
        self.server.should_exit = True
        self.thread.join(30)


# The builder.


def rows():
    lines = (HERE / "hai_builder.jsonl").read_text("utf-8").rstrip("\n").split("\n")
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("row", rows(), ids=lambda row: row["function"])
def test_the_bytes_are_those_of_the_rust_builder(row):
    out = BaseChatOutput(clock=lambda: NOW)
    built = getattr(out, row["function"])(*row["args"], **row["kwargs"])
    if row["function"].endswith("_output"):
        built = out.build_business_data_content(built, "m")
    assert out.build_sse_data(built) == row["frame"]


STANDARD = {
    "build_run_started": "message_id, role='assistant', timestamp=None",
    "build_run_finished": "message_id, role='assistant', timestamp=None",
    "build_agent_collaborative_message_start": "from_agent, to_agent, message_id, timestamp=None",
    "build_agent_collaborative_message_content": "task, message_id, timestamp=None",
    "build_agent_collaborative_message_end": "message_id, timestamp=None",
    "build_state_delta": "op, path, value, from_value='', timestamp=None",
    "build_step_started": "step_name",
    "build_step_finished": "step_name",
    "build_business_data_start": "message_id, role='assistant', timestamp=None",
    "build_business_data_end": "message_id, role='assistant', timestamp=None",
    "build_business_data_content": "output, message_id, layout=None, block_id=None, style=None, timestamp=None",
    "build_tool_call_start": "tool_call_id, tool_call_name, parent_message_id",
    "build_tool_call_args": "tool_call_id, delta",
    "build_tool_call_end": "tool_call_id",
    "build_fold_output": "title, fold=False, position='start'",
    "build_thinking_output": "content, elapsed=10, thinking=True, collapse=True",
    "build_text_output": "content",
}


@pytest.mark.parametrize("name", STANDARD)
def test_the_parameters_are_those_of_the_standard(name):
    signature = inspect.signature(getattr(BaseChatOutput(), name))
    parameters = [
        name if parameter.default is parameter.empty else f"{name}={parameter.default!r}"
        for name, parameter in signature.parameters.items()
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    ]
    assert ", ".join(parameters) == STANDARD[name]


def test_dicts_have_the_members_and_the_order_of_the_standard():
    out = BaseChatOutput()
    event = out.build_business_data_content({"type": "text"}, "m", {"x": 1}, "b", {"s": 1}, 7)
    assert list(event.items()) == [
        ("type", "BUSINESS_DATA_CONTENT"),
        ("messageId", "m"),
        ("delta", {"output": {"type": "text"}, "layout": {"x": 1}}),
        ("timestamp", 7),
        ("blockId", "b"),
        ("style", {"s": 1}),
    ]
    assert out.build_tool_call_args("c", {"a": 1}) == {"type": "TOOL_CALL_ARGS", "toolCallId": "c", "delta": {"a": 1}}
    assert abs(out.build_run_started("m")["timestamp"] - time.time() * 1000) < 60_000
    assert out.build_table_output(["a"], [[1]]) == {"type": "table", "data": {"columns": ["a"], "rows": [[1]]}}
    assert out.build_echarts_output({"series": []}) == {"type": "echarts", "data": {"option": {"series": []}}}
    assert out.build_tool("1", "n", "d", "done") == {"id": "1", "name": "n", "description": "d", "progress": "done"}


def test_frames_of_text_models_and_frames():
    build = BaseChatOutput.build_sse_data

    class Event(BaseModel):
        type: str
        code: str | None = None

    assert build("hello") == "data: hello\n\n"
    assert build("one\r\ntwo") == "data: one\ndata: two\n\n"
    assert build(build("hello")) == "data: hello\n\n"
    assert build(Event(type="X")) == 'data: {"type":"X"}\n\n'
    assert build({"type": "X", "a": None, "b": float("nan"), "c": "\ud800"}) == 'data: {"type":"X","b":null,"c":"?"}\n\n'
    assert build({"type": "STATE_DELTA", "delta": [{"a": "}{"}]}) == 'data: {"type":"STATE_DELTA","delta":[{"a":"}{"}]}\n\n'
    with pytest.raises(TypeError):
        build(42)


def test_deltas_by_the_letter_of_the_standard():
    out = BaseChatOutput(object_deltas=True)
    event = out.build_business_data_content(out.build_text("x"), "m", block_id="b")
    assert events_of(out.build_sse_data(event)) == [event]
    assert events_of(BaseChatOutput.build_sse_data(event, object_deltas=True)) == [event]


def test_default_and_extra_fields():
    out = BaseChatOutput(runId="r", role="user")
    assert out.build_step_started("s", anything=1) == {"type": "STEP_STARTED", "stepName": "s", "runId": "r", "role": "user"}
    assert out.build_run_started("m")["role"] == "assistant"
    kept = BaseChatOutput(extra_fields=True).build_step_started("s", anything=1)
    assert kept == {"type": "STEP_STARTED", "stepName": "s", "anything": 1}
    assert BaseChatOutput().build_step_started("s", anything=1, extra_fields=True)["anything"] == 1


def test_snapshots_of_messages_are_readable_by_the_reference_client():
    messages = [
        {"id": "1", "role": "developer", "content": "secret"},
        {"id": "2", "role": "user", "content": "hi"},
        {"id": "3", "role": "assistant", "content": "a}{b"},
    ]
    event = BaseChatOutput().build_message_snapshot(messages)
    assert [message["id"] for message in event["messages"]] == ["2", "3"]
    content = event["messages"][1]["content"]
    assert "}{" not in content
    assert json.loads(content) == {"output": {"type": "text", "content": "a}{b"}}


# The sample.


def test_the_sample_runs_as_printed():
    app = FastAPI()
    app.include_router(hai_sample.router)
    with Server(app) as server:
        response = httpx.post(f"{server.url}/chat", json=REQUEST, trust_env=False)
    assert response.headers["content-type"].startswith("text/event-stream")
    events = events_of(response.text)
    assert kinds(events) == SAMPLE
    handed_over = next(event for event in events if event["type"] == "AGENT_COLLABORATIVE_MESSAGE_CONTENT")
    assert handed_over["messageId"] == "msgId-001"
    assert isinstance(handed_over["timestamp"], int)
    assert json.loads(handed_over["delta"]) == {"task": {"id": "msgId-001", "name": "Agent"}}
    done = check(response.text)
    assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()


SAMPLE = [
    "RUN_STARTED",
    "AGENT_COLLABORATIVE_MESSAGE_START",
    "AGENT_COLLABORATIVE_MESSAGE_CONTENT",
    "AGENT_COLLABORATIVE_MESSAGE_END",
    "STATE_DELTA",
    "STATE_DELTA",
    "STEP_STARTED",
    "BUSINESS_DATA_START",
    "BUSINESS_DATA_CONTENT",
    "BUSINESS_DATA_CONTENT",
    "BUSINESS_DATA_CONTENT",
    "BUSINESS_DATA_END",
    "STEP_FINISHED",
    "RUN_FINISHED",
]


@pytest.mark.parametrize("path", ["/awp", "/chat"])
def test_the_sample_behind_the_router(path):
    app = FastAPI()
    app.include_router(hai_router(hai_sample.ChatAgent))
    with Server(app) as server:
        response = httpx.post(server.url + path, json=REQUEST, trust_env=False)
        schema = httpx.get(f"{server.url}/openapi.json", trust_env=False).json()
    assert response.headers["cache-control"] == "no-store, no-transform"
    assert kinds(events_of(response.text)) == SAMPLE
    assert check(response.text).returncode == 0
    assert path in schema["paths"]


def test_the_router_in_starlette(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "fastapi", None)
    router = hai_router(hai_sample.ChatAgent())
    assert type(router).__module__.startswith("starlette")
    with Server(Starlette(routes=[Mount("/hai", app=router)])) as server:
        response = httpx.post(f"{server.url}/hai/awp", json=REQUEST, trust_env=False)
    assert kinds(events_of(response.text)) == SAMPLE


def test_bad_requests():
    app = FastAPI()
    app.include_router(hai_router(hai_sample.ChatAgent, max_body=1000))
    with Server(app) as server:
        post = lambda body: httpx.post(f"{server.url}/awp", content=body, trust_env=False)  # noqa: E731
        for body in ["", "{", "[]", '{"messages": 7}', '{"messages":[{"content":"no role"}]}', "[" * 900]:
            response = post(body)
            assert response.status_code == 400, body
            assert response.json()["error"]["code"] == "BAD_REQUEST"
        assert post(" " * 1001).status_code == 413
        assert httpx.get(f"{server.url}/awp", trust_env=False).status_code == 405


def test_requests_of_real_user_interfaces():
    parts = [{"type": "text", "text": "a"}, {"type": "image", "url": "x"}]
    body = HAIAgentRequest.model_validate(
        {
            "messages": [
                {"role": "user", "content": parts, "avatar": "kept"},
                {"id": "2", "role": "assistant", "contents": [{"output": {"type": "text", "content": "b"}}]},
                {"id": "3", "role": "assistant", "content": '{"output":{"type":"text","content":"c"}}{"output":{"type":"text","content":"}{"}}'},
                {"id": "4", "role": "tool", "toolCallId": "call", "content": "yes"},
            ],
            "resume": [{"interruptId": "1"}],
            "other": 1,
        }
    )
    assert [message.text() for message in body.messages] == ["a", "b", "c}{", "yes"]
    assert body.messages[0].model_extra == {"avatar": "kept"}
    assert body.model_extra == {"other": 1}
    assert body.threadId and body.runId and body.user_text() == "a"
    assert body.messages[3].toolCallId == "call"


# Agents.


def test_sync_generators_dicts_and_frames():
    class Plain(Agent):
        def run(self, body):
            yield self.outputer.build_run_started("m")
            yield self.outputer.build_sse_data(self.outputer.build_run_finished("m"))

    frames = asyncio.run(collected(Plain(), None))
    assert kinds(events_of("".join(frames))) == ["RUN_STARTED", "RUN_FINISHED"]


def test_a_sync_generator_does_not_block_the_loop():
    turns = threading.Event()

    class Slow(Agent):
        def run(self, body):
            yield {"type": "RUN_STARTED", "waited": turns.wait(30)}

    async def main():
        reading = asyncio.ensure_future(collected(Slow(), None))
        await asyncio.sleep(0)
        turns.set()
        return await reading

    assert events_of("".join(asyncio.run(main())))[0]["waited"] is True


def test_an_agent_that_raises_ends_with_run_error(caplog):
    class Failing(Agent):
        async def run(self, body):
            yield self.outputer.build_run_started("m")
            raise ValueError("a secret of the database")

    async def main():
        frames = []
        with pytest.raises(ValueError):
            async for text in translate_sse(Failing(), None, close_delay=0):
                frames.append(text)
        return events_of("".join(frames))

    events = asyncio.run(main())
    assert kinds(events) == ["RUN_STARTED", "RUN_ERROR"]
    assert "secret" not in events[1]["message"]
    assert any("ValueError" in record.getMessage() for record in caplog.records if record.levelname == "ERROR")


def test_a_client_that_leaves_cancels_the_agent(caplog):
    caplog.set_level("INFO", logger="agentwire.hai")
    closed = threading.Event()

    class Endless(Agent):
        async def run(self, body):
            try:
                yield self.outputer.build_run_started("m")
                while True:
                    yield self.outputer.build_custom("tick", 1)
                    await asyncio.sleep(0.01)
            finally:
                closed.set()

    app = FastAPI()
    app.include_router(hai_router(Endless))
    with Server(app) as server:
        with httpx.stream("POST", f"{server.url}/awp", json=REQUEST, trust_env=False) as response:
            next(response.iter_lines())
        assert closed.wait(30)


def test_a_stream_opens_and_closes():
    class Pushing(Agent):
        async def run(self, body):
            async with self.stream(body) as stream:
                await stream.hand_over("planner", "actor", {"id": "1", "name": "n"})
                async with stream.step("智能处理"), stream.message() as message:
                    await message.text("你好", block_id="b")
                    await message.output(self.outputer.build_button_output("ok"))
                call = await stream.tool_call("confirmAction", {"action": "x"})
                await stream.tool_result(call, {"ok": True})
                await stream.state("add", "/a", 1)

    text = "".join(asyncio.run(collected(Pushing(), HAIAgentRequest.model_validate(REQUEST))))
    events = events_of(text)
    assert (events[0]["threadId"], events[0]["runId"]) == ("t", "r")
    assert events[0]["messageId"] == events[-1]["messageId"]
    assert kinds(events)[-1] == "RUN_FINISHED"
    done = check(text)
    assert done.returncode == 0, done.stdout.decode()


def test_a_stream_that_fails_closes_what_is_open():
    class Failing(Agent):
        async def run(self, body):
            async with self.stream(body) as stream:
                async with stream.step("s"), stream.message() as message:
                    await message.text("half")
                    raise KeyError("x")

    async def main():
        frames = []
        with pytest.raises(KeyError):
            async for text in translate_sse(Failing(), REQUEST, close_delay=0):
                frames.append(text)
        return "".join(frames)

    text = asyncio.run(main())
    assert kinds(events_of(text))[-3:] == ["BUSINESS_DATA_END", "STEP_FINISHED", "RUN_ERROR"]
    assert check(text).returncode == 0


def test_a_stream_with_a_sink_of_its_own():
    frames = []

    async def main():
        async with Stream(REQUEST, sink=frames.append) as stream:
            async with stream.message() as message:
                await message.text("x")
        with pytest.raises(RuntimeError):
            await Stream().send({"type": "RAW"})

    asyncio.run(main())
    assert kinds(events_of("".join(frames))) == [
        "RUN_STARTED",
        "BUSINESS_DATA_START",
        "BUSINESS_DATA_CONTENT",
        "BUSINESS_DATA_END",
        "RUN_FINISHED",
    ]


def test_a_flood_of_frames_waits_for_the_reader():
    said = []

    class Flood(Agent):
        async def run(self, body):
            async with self.stream(body) as stream:
                for number in range(10_000):
                    await stream.state("add", "/n", number)
                    said.append(number)

    async def main():
        frames = translate_sse(Flood(), REQUEST, close_delay=0)
        await anext(frames)
        for _ in range(100):
            await asyncio.sleep(0)
        count = len(said)
        await frames.aclose()
        return count

    assert asyncio.run(main()) < 200
    assert len(said) < 200


def test_ids_are_unique():
    out = BaseChatOutput()
    assert len({out.new_id() for _ in range(1000)}) == 1000
    response = hai_response(hai_sample.ChatAgent, HAIAgentRequest.model_validate(REQUEST))
    assert response.media_type == "text/event-stream"
