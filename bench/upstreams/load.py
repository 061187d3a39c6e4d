"""Clients that read runs to their end and record the arrival time of each piece of text.

load.py URL RUNS AT_ONCE      prints JSON: the measurements of each run
"""

import asyncio
import json
import sys
import time
import urllib.parse
import uuid

PIECE = b'"TEXT_MESSAGE_CONTENT"'


async def run(url):
    where = urllib.parse.urlsplit(url)
    # A UUID, because LangGraph's own thread ids are UUIDs.
    thread = str(uuid.uuid4())
    message = {"id": str(uuid.uuid4()), "role": "user", "content": "tell me a long story"}
    body = json.dumps({"threadId": thread, "runId": str(uuid.uuid4()), "messages": [message], "state": {}, "tools": [], "context": [], "forwardedProps": {}})
    reader, writer = await asyncio.open_connection(where.hostname, where.port, limit=1 << 24)
    head = f"POST {where.path or '/'} HTTP/1.1\r\nhost: {where.netloc}\r\naccept: text/event-stream\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {len(body)}\r\n\r\n"
    writer.write((head + body).encode())
    came, size, events, rest, failed = [], 0, 0, b"", None
    while data := await reader.read(1 << 16):
        now = time.monotonic_ns()
        size += len(data)
        rest += data
        *whole, rest = rest.split(b"\n\n")
        for frame in whole:
            if b"data: " not in frame:
                continue
            events += 1
            if PIECE in frame:
                came.append(now)
            elif b'"RUN_ERROR"' in frame:
                failed = frame.decode()
    writer.close()
    return {"thread": thread, "came": came, "bytes": size, "events": events, "failed": failed}


async def main():
    url, runs, at_once = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    waiting = iter(range(runs))
    done = []

    async def worker():
        for _ in waiting:
            done.append(await run(url))

    await asyncio.gather(*(worker() for _ in range(at_once)))
    print(json.dumps(done))


asyncio.run(main())
