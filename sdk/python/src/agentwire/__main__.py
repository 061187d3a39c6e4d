"""The command line: `agentwire`, or `python -m agentwire`."""

from __future__ import annotations

import signal
import sys


def main() -> int:
    """Runs the command line of this process and returns its exit code."""
    from . import _native

    # Python ignores SIGPIPE and raises KeyboardInterrupt; the command handles both itself.
    for name in ("SIGINT", "SIGPIPE"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_DFL)
    return _native.main(["agentwire", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
