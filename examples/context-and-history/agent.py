#!/usr/bin/env python3
"""An agent that uses all parts of a run's input: context, conversation and state."""
import json
import sys

run = json.loads(sys.stdin.readline())
context = {entry["description"]: entry["value"] for entry in run["context"]}
asked = [message for message in run["messages"] if message["role"] == "user"]
state = run["state"]
language = state.get("frontend_state", {}).get("language", "none")
message = f"{run['runId']}-answer"


def emit(kind: str, **members) -> None:
    print(json.dumps({"type": kind, **members}), flush=True)


emit("STATE_DELTA", delta=[{"op": "add", "path": "/visits", "value": state.get("visits", 0) + 1}])
text = f"Room {context.get('room', 'unknown')}, language {language}: you asked {len(asked)} times, last: {asked[-1]['content']}"
emit("TEXT_MESSAGE_START", messageId=message, role="assistant")
emit("TEXT_MESSAGE_CONTENT", messageId=message, delta=text)
emit("TEXT_MESSAGE_END", messageId=message)
