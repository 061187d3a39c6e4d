"""The command line: `agentwire`, or `python -m agentwire`."""

from __future__ import annotations

import re
import signal
import sys
from typing import Optional

#: A Python object as an argument of `serve`.
OBJECT = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


#: The options of `serve` that an object may come behind.
OPTIONS = ("-c", "--config", "-l", "--listen", "-s", "--store", "--cors")


def _object_at(arguments: list[str]) -> Optional[int]:
    """The place of a Python object among the arguments of `serve`."""
    at = 0
    while at < len(arguments):
        argument = arguments[at]
        if not argument.startswith("-"):
            return at if OBJECT.fullmatch(argument) else None
        # The value of an option may look like an object: `sqlite:agentwire.db`.
        at += 2 if argument in OPTIONS else 1
    return None


def main() -> int:
    """Runs the command line of this process and returns its exit code."""
    from . import _native

    arguments = sys.argv[1:]
    if arguments[:1] == ["serve"]:
        options = arguments[1:]
        at = _object_at(options)
        if at is not None:
            from .serve import serve

            return serve(options.pop(at), options)
    # Python ignores SIGPIPE and raises KeyboardInterrupt; the command handles both itself.
    for name in ("SIGINT", "SIGPIPE"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_DFL)
    return _native.main(["agentwire", *arguments])


if __name__ == "__main__":
    sys.exit(main())
