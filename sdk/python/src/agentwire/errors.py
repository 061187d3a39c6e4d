"""The exceptions of agentwire."""

from __future__ import annotations

from typing import Any, Optional

__all__ = [
    "AGUIAdapterError",
    "AgentwireError",
    "ConfigError",
    "EventTranslationError",
    "Failure",
    "GatewayClosed",
    "ReaderCut",
    "Refused",
    "Stopped",
    "StoreError",
    "ToolCallTrackingError",
    "UnknownEventTypeError",
]


class AgentwireError(Exception):
    """The base of all exceptions of agentwire. `code` is a stable code, where there is one."""

    code: Optional[str] = None

    def __init__(self, message: str = "", *, code: Optional[str] = None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code

    def __reduce__(self) -> tuple[Any, ...]:
        # Copied and pickled without `__init__`, whose arguments differ between the classes.
        return _restored, (type(self), self.args), dict(vars(self))


def _restored(kind: type[AgentwireError], arguments: tuple[Any, ...]) -> AgentwireError:
    error = kind.__new__(kind)
    error.args = arguments
    return error


class ConfigError(AgentwireError, ValueError):
    """A wrong name, option or argument. `hint` says which are allowed, or which was probably meant."""

    def __init__(
        self,
        message: str = "",
        *,
        key: Optional[str] = None,
        hint: Optional[str] = None,
        line: Optional[int] = None,
        column: Optional[int] = None,
    ) -> None:
        super().__init__(message)
        self.key = key
        self.hint = hint or None
        self.line = line
        self.column = column

    def __str__(self) -> str:
        message = super().__str__()
        return message if self.hint is None else f"{message} ({self.hint})"


class AGUIAdapterError(AgentwireError):
    """The base of the exceptions of an adapter."""


class EventTranslationError(AGUIAdapterError):
    """An event that cannot be translated: its number in the stream, the place in it, the problem, and its start."""

    def __init__(
        self, message: str = "", *, index: Optional[int] = None, path: str = "", problem: str = "", event: Any = None
    ) -> None:
        super().__init__(message)
        self.index = index
        self.path = path
        self.problem = problem or message
        self.event = event


class UnknownEventTypeError(EventTranslationError):
    """An event of a type that the format does not have."""

    def __init__(self, message: str = "", *, type: Optional[str] = None, **details: Any) -> None:
        super().__init__(message, **details)
        self.type = type


class ToolCallTrackingError(AGUIAdapterError):
    """Never raised: for `except` clauses that exist."""


class Failure(AgentwireError):
    """The ending of a run that an agent chooses: code and message are told to the user as they are."""

    def __init__(
        self, code: str, message: str, detail: Any = None, retry_after: Optional[float] = None
    ) -> None:
        super().__init__(message, code=code)
        self.message = message
        self.detail = detail
        self.retry_after = retry_after


class Refused(Failure):
    """A request or run that identity, a hook or a lock refuses: code and message are told as they are."""

    def __init__(
        self,
        message: str = "refused",
        code: str = "HOOK_REFUSED",
        status: Optional[int] = None,
        detail: Any = None,
        retry_after: Optional[float] = None,
    ) -> None:
        super().__init__(code, message, detail, retry_after)
        self.status = status


class StoreError(AgentwireError):
    """The store cannot be opened or used."""


class Stopped(AgentwireError):
    """The run was stopped. An agent sees that as `CancelledError`."""


class GatewayClosed(AgentwireError):
    """The gateway was not started, was drained, or belongs to the parent of this process."""


class ReaderCut(AgentwireError):
    """A reader that does not keep up: its connection must end without a regular end of the response."""


def encodable(text: str) -> str:
    """Text without unpaired surrogates, which UTF-8 cannot have."""
    return text.encode("utf-8", "replace").decode()


def described(error: BaseException) -> str:
    """An exception as text, which its own code may refuse to give."""
    try:
        return encodable(f"{type(error).__name__}: {error}")
    except Exception:
        return type(error).__name__
