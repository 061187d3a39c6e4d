"""Writes the benchmark stream to stdout: `stream.py MESSAGES` (each has 200 text deltas)."""

import json
import sys

WORDS = ["the", " quick", " brown", " fox", " jumps", " over", " the lazy", " dog.", "\n\n", " naïve", ' "quoted"', " 日本"]
DELTAS = 200
# Placeholder for the number of the message: the text around it is the same for every twelfth message, so a gigabyte
# does not have to be encoded piece by piece.
NUMBER = "@@"


def event(**members) -> str:
    return f"data: {json.dumps(members, ensure_ascii=False, separators=(',', ':'))}\n\n"


def message(first: int) -> str:
    """A message that starts with that word, a tool call and a state change."""
    name, call = f"message-{NUMBER}", f"call-{NUMBER}"
    words = (WORDS[(index * 7 + first) % len(WORDS)] for index in range(DELTAS))
    return "".join(
        [
            event(type="TEXT_MESSAGE_START", messageId=name, role="assistant"),
            *(event(type="TEXT_MESSAGE_CONTENT", messageId=name, delta=word) for word in words),
            event(type="TEXT_MESSAGE_END", messageId=name),
            event(type="TOOL_CALL_START", toolCallId=call, toolCallName="search", parentMessageId=name),
            event(type="TOOL_CALL_ARGS", toolCallId=call, delta='{"query":"fox"}'),
            event(type="TOOL_CALL_END", toolCallId=call),
            event(type="TOOL_CALL_RESULT", messageId=f"result-{NUMBER}", toolCallId=call, content="12 hits"),
            event(type="STATE_DELTA", delta=[{"op": "add", "path": "/count", "value": NUMBER}]),
        ]
    )


def main() -> None:
    out = sys.stdout.buffer
    messages = [message(first) for first in range(len(WORDS))]
    out.write(event(type="RUN_STARTED", threadId="thread-1", runId="run-1").encode())
    for number in range(int(sys.argv[1])):
        out.write(messages[number % len(WORDS)].replace(NUMBER, str(number)).encode())
    out.write(event(type="RUN_FINISHED", threadId="thread-1", runId="run-1").encode())


main()
