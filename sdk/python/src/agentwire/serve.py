"""`agentwire serve MODULE:ATTRIBUTE`: a graph, an ADK agent, an agent or a gateway, in process with uvicorn."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from .errors import AgentwireError

__all__ = ["serve"]

#: The exit code of a wrong command line.
USAGE = 2


def serve(location: str, arguments: list[str]) -> int:
    """Serves the object at `location` until a signal; returns the exit code."""
    from .gateway import Gateway, load_object

    parser = argparse.ArgumentParser(prog="agentwire serve MODULE:ATTRIBUTE", description=__doc__)
    parser.add_argument("--listen", default="127.0.0.1:7117", help="host and port")
    parser.add_argument("--store", default=None, help="sqlite:PATH, memory: or a PostgreSQL URI")
    parser.add_argument("--config", default=None, help="an agentwire.toml")
    parser.add_argument("--cors", action="append", default=[], help="an origin whose pages may use the gateway")
    try:
        options = parser.parse_args(arguments)
    except SystemExit as exit:
        return exit.code if isinstance(exit.code, int) else USAGE
    host, _, port = options.listen.rpartition(":")
    if not host or not port.isdigit():
        return _failed(f"--listen: {options.listen!r} is not HOST:PORT")
    try:
        import uvicorn
    except ImportError:
        return _failed("`serve MODULE:ATTRIBUTE` needs uvicorn: pip install uvicorn")
    sys.path.insert(0, os.getcwd())
    try:
        found: Any = load_object(location)
        if not isinstance(found, Gateway):
            name = location.rpartition(":")[2].rpartition(".")[2]
            found = Gateway({name: found}, config=options.config, store=options.store, cors=options.cors)
    except AgentwireError as error:
        return _failed(str(error))
    uvicorn.run(found, host=host.strip("[]"), port=int(port), log_level="info")
    return 0


def _failed(message: str) -> int:
    print(f"error: {message}", file=sys.stderr)
    return USAGE
