"""The command line: `agentwire`, or `python -m agentwire`."""

from __future__ import annotations

import re
import signal
import sys

#: A Python object as an argument of `serve`.
OBJECT = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


def main() -> int:
    """Runs the command line of this process and returns its exit code."""
    from . import _native

    arguments = sys.argv[1:]
    if arguments[:1] == ["serve"] and any(OBJECT.fullmatch(argument) for argument in arguments[1:2]):
        from .serve import serve

        return serve(arguments[1], arguments[2:])
    # Python ignores SIGPIPE and raises KeyboardInterrupt; the command handles both itself.
    for name in ("SIGINT", "SIGPIPE"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_DFL)
    return _native.main(["agentwire", *arguments])


if __name__ == "__main__":
    sys.exit(main())
