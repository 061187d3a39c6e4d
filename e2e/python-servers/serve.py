"""`agentwire serve` for the tests of `e2e/gateway`, by a `Gateway` in the ASGI server that SERVER names.

The tests start this instead of the binary; it understands the arguments that they use.
"""

import argparse
import asyncio
import os
import pathlib
import signal
import socket
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import agentwire


def gateway():
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["serve"])
    parser.add_argument("--listen", required=True)
    parser.add_argument("--log")
    parser.add_argument("--store", default="sqlite:agentwire.db")
    parser.add_argument("--ag-ui")
    parser.add_argument("--cors", action="append", default=[])
    options = parser.parse_args()
    if not options.ag_ui and os.path.exists("agentwire.toml"):
        return agentwire.Gateway(config="agentwire.toml", store=options.store, cors=options.cors)
    agent = agentwire.upstream("ag-ui", url=options.ag_ui) if options.ag_ui else agentwire.upstream("demo")
    return agentwire.Gateway({"agent": agent}, default="agent", store=options.store, cors=options.cors)


def tell(port):
    print(f"  listening  http://127.0.0.1:{port} ", file=sys.stderr, flush=True)


def bound():
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", 0))
    listener.listen(1024)
    return listener


def uvicorn(app, http, loop):
    import uvicorn

    class Server(uvicorn.Server):
        async def startup(self, sockets=None):
            await super().startup(sockets)
            tell(sockets[0].getsockname()[1])

    config = uvicorn.Config(app, http=http, loop=loop, log_level="warning", lifespan="on")
    Server(config).run(sockets=[bound()])


def hypercorn(app):
    import hypercorn.asyncio
    import hypercorn.config

    listener = bound()
    config = hypercorn.config.Config()
    config.bind = [f"fd://{listener.fileno()}"]

    async def main():
        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
        tell(listener.getsockname()[1])
        await hypercorn.asyncio.serve(app, config, shutdown_trigger=stop.wait)

    asyncio.run(main())


def granian(app):
    from granian.constants import Interfaces
    from granian.server.embed import Server

    listener = bound()
    port = listener.getsockname()[1]
    listener.close()

    async def main():
        server = Server(app, address="127.0.0.1", port=port, interface=Interfaces.ASGI)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, server.stop)
        serving = asyncio.create_task(server.serve())
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                break
            except OSError:
                await asyncio.sleep(0.05)
        tell(port)
        await serving

    asyncio.run(main())


def plain(app):
    import plain_server

    asyncio.run(plain_server.serve(app, bound(), tell))


def own(app):
    asyncio.run(app.serve("127.0.0.1:0", on_ready=lambda address: tell(address.rpartition(":")[2])))


SERVERS = {
    "uvicorn-h11": lambda app: uvicorn(app, "h11", "asyncio"),
    "uvicorn-httptools": lambda app: uvicorn(app, "httptools", "uvloop"),
    "hypercorn": hypercorn,
    "granian": granian,
    "plain": plain,
    "own": own,
}

if __name__ == "__main__":
    SERVERS[os.environ["SERVER"]](gateway())
