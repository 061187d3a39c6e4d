"""`agentwire serve MODULE:ATTRIBUTE`: a graph, an ADK agent, an agent or a gateway, in process.

uvicorn serves it if it is installed, otherwise the gateway's own server, with a loop in the main thread.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

from .errors import AgentwireError, StoreError

if TYPE_CHECKING:
    from .gateway import Gateway

__all__ = ["serve"]

#: The exit codes of `agentwire serve`: a wrong command line, and a port or store that cannot be used.
USAGE, IO = 2, 4


def serve(location: str, arguments: list[str]) -> int:
    """Serves the object at `location` until a signal; returns the exit code."""
    from .gateway import Gateway, load_object

    parser = argparse.ArgumentParser(prog="agentwire serve MODULE:ATTRIBUTE", description=__doc__)
    parser.add_argument("-l", "--listen", default="127.0.0.1:7117", help="host and port")
    parser.add_argument("-s", "--store", default=None, help="sqlite:PATH, memory: or a PostgreSQL URI")
    parser.add_argument("-c", "--config", default=None, help="an agentwire.toml")
    parser.add_argument("--insecure", action="store_true", help="allow an address beyond loopback without protection")
    parser.add_argument("--cors", action="append", default=[], help="an origin whose pages may use the gateway")
    try:
        options = parser.parse_args(arguments)
    except SystemExit as exit:
        return exit.code if isinstance(exit.code, int) else USAGE
    host, _, port = options.listen.rpartition(":")
    if not host or not port.isdigit():
        return _failed(f"--listen: {options.listen!r} is not HOST:PORT")
    sys.path.insert(0, os.getcwd())
    try:
        found: Any = load_object(location)
        if isinstance(found, Gateway):
            given = [name for name in ("store", "config", "cors", "insecure") if getattr(options, name)]
            if given:
                return _failed(f"--{given[0]}: {location} is a Gateway, which has its own")
        else:
            name = location.rpartition(":")[2].rpartition(".")[2]
            more: dict[str, Any] = {"insecure": True} if options.insecure else {}
            found = Gateway({name: found}, config=options.config, store=options.store, cors=options.cors, **more)
        found.check_listener(options.listen)
    except AgentwireError as error:
        return _failed(str(error))
    except OSError as error:
        return _failed(f"cannot listen on `{options.listen}`: {error}", IO)
    try:
        import uvicorn
    except ImportError:
        return _serve_natively(found, options.listen)

    def on_signal(number: int, frame: Any) -> None:
        raise SystemExit(0)

    # uvicorn raises the signal again after its graceful end, which is a regular one here.
    signal.signal(signal.SIGTERM, on_signal)
    try:
        uvicorn.run(found, host=host.strip("[]"), port=int(port), log_level="info")
    except SystemExit as exit:
        # uvicorn has told that it cannot listen, or that the gateway cannot start.
        return IO if exit.code else 0
    return 0


def _serve_natively(gateway: Gateway, listen: str) -> int:
    """The gateway's own server, for an environment without uvicorn."""

    def on_ready(address: str) -> None:
        print(f"  listening  http://{address}", file=sys.stderr, flush=True)

    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    try:
        asyncio.run(gateway.serve(listen, on_ready=on_ready))
    except StoreError as error:
        return _failed(str(error), IO)
    except AgentwireError as error:
        return _failed(str(error))
    except OSError as error:
        return _failed(f"cannot listen on `{listen}`: {error}", IO)
    return 0


def _failed(message: str, code: int = USAGE) -> int:
    print(f"error: {message}", file=sys.stderr)
    return code
