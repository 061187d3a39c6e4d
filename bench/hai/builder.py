"""The writing peer: the builder of the standard's back-end sample, as used by a plain Python server.

Prints one JSON object: nanoseconds of CPU time per text delta, the best of several rounds.
"""

import json
import time

ROUNDS = 5
DELTAS = 200_000
WORDS = ["Hello", " there", ", this", " is", ' "quoted"', " text", ".\n", " Und", " so", " wörter"]
MESSAGE = "run--7f1d1a52-8f0b-4a0e-9a55-0c5d5f0b7a11"


def build_text_output(content):
    return {"type": "text", "content": content}


def build_business_data_content(output, message_id, layout=None, block_id=None, style=None, timestamp=None):
    delta = {"output": output}
    if layout:
        delta["layout"] = layout
    event = {
        "type": "BUSINESS_DATA_CONTENT",
        "messageId": message_id,
        # The reference server sends the object as a string, because the client joins strings.
        "delta": json.dumps(delta, ensure_ascii=False),
        "timestamp": timestamp or int(time.time() * 1000),
    }
    if block_id:
        event["blockId"] = block_id
    if style:
        event["style"] = style
    return event


def build_sse_data(chat_info):
    kept = {key: value for key, value in chat_info.items() if value is not None}
    return f"data: {json.dumps(kept, ensure_ascii=False)}\n\n".encode()


def answer():
    sent = 0
    for index in range(DELTAS):
        output = build_text_output(WORDS[index % len(WORDS)])
        sent += len(build_sse_data(build_business_data_content(output, MESSAGE)))
    assert sent > DELTAS * 100


best = float("inf")
for _ in range(ROUNDS):
    before = time.process_time_ns()
    answer()
    best = min(best, (time.process_time_ns() - before) / DELTAS)
print(json.dumps({"builder": best}))
