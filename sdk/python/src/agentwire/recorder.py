"""Writes the stream of a graph as JSON lines, in the shape of LangGraph Server."""

from __future__ import annotations

import base64
import dataclasses
import json
import math
import os
import uuid
from enum import Enum
from typing import IO, Any, AsyncIterator, Union

#: Maximum nesting depth of a value: agentwire's own limit, which also ends cycles.
MAX_DEPTH = 100


async def record(events: AsyncIterator[Any], file: Union[str, os.PathLike, IO[Any]]) -> int:
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
    return json.dumps(_plain(event, MAX_DEPTH), ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _write(file: IO[Any], line: str) -> None:
    try:
        file.write(line + "\n")
    except TypeError:
        file.write((line + "\n").encode("utf-8"))
    flush = getattr(file, "flush", None)
    if flush is not None:
        flush()


def _plain(value: Any, depth: int) -> Any:
    """`value` as dicts, lists, strings and numbers, as in the server's serialiser."""
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, str):
        # An unpaired surrogate cannot be encoded as UTF-8.
        return str(value).encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if depth == 0:
        return repr(value)
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
