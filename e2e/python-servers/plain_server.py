"""A small HTTP/1.1 server that does what the ASGI specification says, and checks that its app does too.

A message that the specification does not allow ends the process, so that the test fails.
"""

import asyncio
import os
import sys
import traceback


class Wrong(BaseException):
    """The app broke a rule of ASGI."""


def check(condition, rule):
    if not condition:
        raise Wrong(rule)


async def serve(app, listener, on_ready):
    messages = asyncio.Queue()
    await messages.put({"type": "lifespan.startup"})
    said = asyncio.Queue()
    scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": {}}
    lifespan = asyncio.create_task(app(scope, messages.get, said.put))
    check((await said.get())["type"] == "lifespan.startup.complete", "the lifespan does not start")
    server = await asyncio.start_server(lambda *pair: connected(app, *pair), sock=listener)
    on_ready(listener.getsockname()[1])
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(15, stop.set)
    await stop.wait()
    server.close()
    await messages.put({"type": "lifespan.shutdown"})
    check((await said.get())["type"] == "lifespan.shutdown.complete", "the lifespan does not end")
    await lifespan


async def connected(app, reader, writer):
    try:
        while await exchange(app, reader, writer):
            pass
    except Wrong as wrong:
        print(f"ASGI: {wrong}", file=sys.stderr, flush=True)
        os._exit(3)
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    except Exception:
        # The app refuses to go on: the connection is cut.
        traceback.print_exc()
    finally:
        writer.close()


async def exchange(app, reader, writer):
    """One request and its response. True if another may follow."""
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head[:-4].split(b"\r\n")
    method, target, _ = first.split(b" ")
    headers = [(name.strip().lower(), value.strip()) for name, _, value in (line.partition(b":") for line in lines)]
    fields = dict(headers)
    path, _, query = target.partition(b"?")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": method.decode(),
        "scheme": "http",
        "path": unquoted(path),
        "raw_path": path,
        "query_string": query,
        "root_path": "",
        "headers": headers,
        "client": writer.get_extra_info("peername"),
        "server": writer.get_extra_info("sockname"),
        "state": {},
    }
    length = int(fields.get(b"content-length", b"0"))
    is_chunked = fields.get(b"transfer-encoding") == b"chunked"
    body_left = length
    state = {"started": False, "ended": False, "left": False}
    watch = None

    async def receive():
        nonlocal body_left, is_chunked, watch
        if is_chunked:
            size = int(await reader.readline(), 16)
            data = await reader.readexactly(size)
            await reader.readexactly(2)
            is_chunked = size > 0
            return {"type": "http.request", "body": data, "more_body": is_chunked}
        if body_left is not None:
            data = await reader.readexactly(min(body_left, 1000))
            body_left = body_left - len(data) or None
            return {"type": "http.request", "body": data, "more_body": body_left is not None}
        if not state["ended"]:
            # The client says nothing more until the response has ended, unless it leaves.
            watch = asyncio.ensure_future(reader.read(1))
            state["left"] = await watch == b""
        return {"type": "http.disconnect"}

    async def send(message):
        kind = message["type"]
        check(not state["ended"], f"{kind} after the end")
        if kind == "http.response.start":
            check(not state["started"], "two starts")
            state["started"] = True
            check(type(message["status"]) is int, "the status is an int")
            lines = [b"HTTP/1.1 %d X" % message["status"]]
            names = set()
            for name, value in message.get("headers", ()):
                check(isinstance(name, bytes) and isinstance(value, bytes), "headers are bytes")
                check(name == name.lower(), "names of headers are lower case")
                check(b"\n" not in name + value and b"\r" not in name + value, "no line breaks in headers")
                names.add(name)
                lines.append(name + b": " + value)
            check(b"transfer-encoding" not in names and b"connection" not in names, "no headers of the connection")
            state["chunked"] = b"content-length" not in names and message["status"] not in (204, 304)
            if state["chunked"]:
                lines.append(b"transfer-encoding: chunked")
            writer.write(b"\r\n".join(lines) + b"\r\n\r\n")
        elif kind == "http.response.body":
            check(state["started"], "a body before the start")
            data = message.get("body", b"")
            check(isinstance(data, bytes), "a body is bytes")
            if method == b"HEAD":
                data = b""
            elif state["chunked"] and data:
                data = b"%x\r\n%b\r\n" % (len(data), data)
            state["ended"] = not message.get("more_body", False)
            if state["ended"] and state["chunked"] and method != b"HEAD":
                data += b"0\r\n\r\n"
            writer.write(data)
        else:
            raise Wrong(f"unknown message {kind}")
        if writer.is_closing():
            state["left"] = True
            raise OSError("the client has left")
        await writer.drain()

    await app(scope, receive, send)
    if watch is not None:
        watch.cancel()
        await asyncio.wait([watch])
    check(state["ended"] or state["left"], "the app returned without the end of its response")
    if state["left"]:
        return False
    # A body that was not read makes the connection useless.
    return body_left is None and not is_chunked


def unquoted(path):
    from urllib.parse import unquote

    return unquote(path.decode("latin-1"))
