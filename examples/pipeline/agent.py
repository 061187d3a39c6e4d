#!/usr/bin/env python3
"""An agent that looks up a customer and repeats the question."""
import json
import sys

run = json.loads(sys.stdin.readline())
asked = [message for message in run["messages"] if message["role"] == "user"]
text = asked[-1]["content"] if asked else ""
message, call = f"{run['runId']}-answer", f"{run['runId']}-call"


def emit(kind: str, **members) -> None:
    print(json.dumps({"type": kind, **members}), flush=True)


emit("RUN_STARTED", threadId=run["threadId"], runId=run["runId"])
emit("TOOL_CALL_START", toolCallId=call, toolCallName="lookup")
# In pieces, as streamed by a model.
for piece in ['{"cust', 'omer":"C-100', '42","fast":true}']:
    emit("TOOL_CALL_ARGS", toolCallId=call, delta=piece)
emit("TOOL_CALL_END", toolCallId=call)
emit("TOOL_CALL_RESULT", messageId=f"{call}-result", toolCallId=call, content='{"customer":"C-10042","open":3}')
emit("TEXT_MESSAGE_START", messageId=message, role="assistant")
emit("TEXT_MESSAGE_CONTENT", messageId=message, delta=f"You said: {text}")
emit("TEXT_MESSAGE_END", messageId=message)
emit("RUN_FINISHED", threadId=run["threadId"], runId=run["runId"])
