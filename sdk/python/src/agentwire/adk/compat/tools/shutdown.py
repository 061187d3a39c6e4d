"""Functions for the end of the program."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Optional

__all__ = ["ShutdownHandler"]

_log = logging.getLogger("agentwire.adk")


class ShutdownHandler:
    """Functions that are called when the app ends. There is one object per process.

    It installs no signal handler: the gateway of an app calls `close` after its last run.
    """

    _only: Optional[ShutdownHandler] = None
    _functions: list[Callable[[], Awaitable[None]]]

    def __new__(cls) -> ShutdownHandler:
        if cls._only is None:
            cls._only = super().__new__(cls)
            cls._only._functions = []
        return cls._only

    def register_shutdown_function(self, shutdown_function: Callable[[], Awaitable[None]]) -> None:
        """Adds a function."""
        self._functions.append(shutdown_function)

    async def close(self) -> None:
        """Calls all functions once, in their order; one that fails does not stop the others."""
        functions, self._functions = self._functions, []
        for function in functions:
            try:
                await function()
            except Exception:
                _log.exception("the shutdown function %r failed", getattr(function, "__name__", function))
