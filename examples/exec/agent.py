#!/usr/bin/env python3
"""An agent in Python without dependencies: one line of JSON in, AG-UI events as lines out."""
import json
import sys

run = json.loads(sys.stdin.readline())
asked = [message for message in run["messages"] if message["role"] == "user"]
text = asked[-1]["content"] if asked else ""
message = f"{run['runId']}-answer"


def emit(kind: str, **members) -> None:
    print(json.dumps({"type": kind, **members}), flush=True)


emit("RUN_STARTED", threadId=run["threadId"], runId=run["runId"])
emit("TEXT_MESSAGE_START", messageId=message, role="assistant")
for word in f"You said: {text}".split(" "):
    emit("TEXT_MESSAGE_CONTENT", messageId=message, delta=word + " ")
emit("TEXT_MESSAGE_END", messageId=message)
emit("RUN_FINISHED", threadId=run["threadId"], runId=run["runId"])
