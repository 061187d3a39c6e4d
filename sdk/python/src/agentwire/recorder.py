"""Writes the stream of a graph as JSON lines, in the shape of LangGraph Server."""

from __future__ import annotations

import base64
import dataclasses
import json
import math
import os
import sys
import uuid
from enum import Enum
from typing import IO, Any, AsyncIterator, Callable, Union

#: The largest number of JSON: that of a double.
MAX_NUMBER = int(sys.float_info.max)

#: Maximum nesting depth of a value: agentwire's own limit, which also ends cycles.
MAX_DEPTH = 100


async def record(events: AsyncIterator[Any], file: Union[str, os.PathLike[str], IO[Any]]) -> int:
    """Writes each event of `events` as one line, without buffering, and returns their number.

    `events` is `graph.astream_events(..., version="v2")` or `graph.astream(..., stream_mode=[...])`; `file` is a
    path or an object with `write`. If the graph raises, a last line contains the exception, as from the server,
    and the exception is raised again.
    """
    if isinstance(file, (str, os.PathLike)):
        with open(file, "wb") as opened:
            return await record(events, opened)
    count = 0
    try:
        async for event in events:
            _write(file, to_line(event))
            count += 1
    except Exception as error:
        _write(file, to_line({"event": "error", "data": error}))
        raise
    return count


def to_line(event: Any) -> str:
    """One event as one line of JSON, without the line break."""
    return _to_line(event)


def _python_to_line(event: Any) -> str:
    """The same in Python, for a source tree without the compiled module. The tests compare the two."""
    return json.dumps(plain(event), ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _write(file: IO[Any], line: str) -> None:
    try:
        file.write(line + "\n")
    except TypeError:
        file.write((line + "\n").encode("utf-8"))
    flush = getattr(file, "flush", None)
    if flush is not None:
        flush()


def plain(value: Any) -> Any:
    """`value` as dicts, lists, strings and numbers, as in the server's serialiser."""
    return _plain(value, MAX_DEPTH)


def _plain(value: Any, depth: int) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        # A larger number is none that a reader takes.
        return int(value) if -MAX_NUMBER <= value <= MAX_NUMBER else _bounded(value)
    if isinstance(value, str):
        # An unpaired surrogate cannot be encoded as UTF-8. A subclass may be an enum, whose `str` is its name.
        return str.__str__(value).encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if depth == 0:
        return _bounded(value)
    if isinstance(value, dict):
        return {str(key): _plain(item, depth - 1) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item, depth - 1) for item in value]
    if isinstance(value, BaseException):
        return {"error": type(value).__name__, "message": str(value)}
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, Enum):
        return _plain(value.value, depth - 1)
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(bytes(value)).decode("ascii")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name), depth - 1) for field in dataclasses.fields(value)}
    # Messages, documents and other pydantic models.
    for method in ("model_dump", "dict", "isoformat"):
        convert = getattr(value, method, None)
        if callable(convert) and not isinstance(value, type):
            try:
                return _plain(convert(), depth - 1)
            except Exception:
                break
    slots = getattr(type(value), "__slots__", ())
    if slots and not isinstance(slots, str):
        names = (name for name in slots if not name.startswith("__"))
        return {name: _plain(getattr(value, name, None), depth - 1) for name in names}
    return str(value)


def _bounded(value: Any) -> str:
    """A value that cannot be written, as short text: `repr` of a cycle or of a deep value could be long, or fail."""
    if isinstance(value, int) and value.bit_length() <= 4096:
        return str(int(value))
    return f"<{type(value).__name__}>"


_to_line: Callable[[Any], str]
try:
    from ._native import to_line as _to_line
except ImportError:
    _to_line = _python_to_line
