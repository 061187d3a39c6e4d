#!/usr/bin/env python3
"""An agent that is too slow, in the way named by its argument."""
import json
import sys
import time

run = json.loads(sys.stdin.readline())
manner = sys.argv[1]
message = f"{run['runId']}-answer"


def emit(kind: str, **members) -> None:
    print(json.dumps({"type": kind, **members}), flush=True)


if manner == "never-begins":
    time.sleep(3600)
emit("TEXT_MESSAGE_START", messageId=message, role="assistant")
emit("TEXT_MESSAGE_CONTENT", messageId=message, delta="I begin ")
if manner == "falls-silent":
    time.sleep(3600)
words = 3600 * 5 if manner == "never-ends" else 5
for _ in range(words):
    time.sleep(0.2)
    emit("TEXT_MESSAGE_CONTENT", messageId=message, delta="and go on ")
emit("TEXT_MESSAGE_END", messageId=message)
