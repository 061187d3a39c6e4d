"""A stand-in for LangGraph Server or ADK's API server: every run is the recording, byte for byte.

replay.py langgraph|adk RATE      events per second and run; 0 sends as fast as the client reads
"""

import asyncio
import json
import sys

from recording import Times, lines

kind, rate = sys.argv[1], float(sys.argv[2])
recorded = lines(kind)
times = Times()
threads = set()
if kind == "langgraph":
    frames = [f"event: events\r\ndata: {line}\r\nid: {number}-0\r\n\r\n".encode() for number, line in enumerate(recorded)]
    ended = json.loads(recorded[-1])["data"]["output"]
    state = json.dumps({"values": ended, "next": [], "tasks": []})
else:
    frames = [f"data: {line}\n\n".encode() for line in recorded]


async def request(reader):
    """Method, path and body; None when the connection is closed."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    method, path, _ = head.split(" ", 2)
    length = [line.split(":")[1] for line in head.splitlines() if line.lower().startswith("content-length:")]
    body = await reader.readexactly(int(length[0])) if length else b""
    return method, path.split("?")[0], json.loads(body) if body else None


def head(status, more=""):
    return f"HTTP/1.1 {status}\r\nconnection: close\r\n{more}\r\n".encode()


async def connection(reader, writer):
    try:
        method, path, body = await request(reader)
        parts = path.strip("/").split("/")
        if parts[0] == "times":
            answer = json.dumps(times.of.get(parts[1], []))
        elif path == "/run_sse" or path.endswith("/runs/stream"):
            run = body["sessionId"] if kind == "adk" else parts[1]
            threads.add(run)
            where = f"content-location: /threads/{run}/runs/r-{run}\r\n"
            writer.write(head("200 OK", f"content-type: text/event-stream\r\n{where}"))
            async for number in times.paced(run, len(frames), rate):
                writer.write(frames[number])
                if rate or number % 64 == 0:
                    await writer.drain()
            await writer.drain()
            return
        elif method == "POST":
            answer = "{}"
        elif parts[-2:-1] == ["runs"]:
            answer = '{"status":"success"}'
        elif parts[-1] == "state" and parts[1] in threads:
            answer = state
        else:
            writer.write(head("404 Not Found", "content-type: application/json\r\n") + b'{"detail":"not found"}')
            return
        writer.write(head("200 OK", "content-type: application/json\r\n") + answer.encode())
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        try:
            await writer.drain()
        except ConnectionError:
            pass
        writer.close()


async def main():
    server = await asyncio.start_server(connection, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


asyncio.run(main())
