"""Events of HAI as frames of an event stream."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Optional

from ..recorder import plain

#: First words of a line of an event stream. Text that begins with one and ends with an empty line is a frame already.
_FIELDS = ("data:", "event:", "id:", "retry:", ":")


def dumps(value: Any) -> str:
    """Compact JSON in UTF-8, as the Rust builder writes it."""
    return json.dumps(plain(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def frame(chat_info: Any, *, object_deltas: bool = False) -> str:
    """One frame: `data: …` and an empty line."""
    if isinstance(chat_info, (bytes, bytearray, memoryview)):
        chat_info = bytes(chat_info).decode("utf-8", "replace")
    if isinstance(chat_info, str):
        if chat_info.startswith(_FIELDS) and chat_info.endswith(("\n\n", "\r\n\r\n")):
            return chat_info
        text = chat_info.encode("utf-8", "replace").decode("utf-8")
        # A line break would end the field.
        return "".join(f"data: {line}\n" for line in re.split("\r\n|\r|\n", text)) + "\n"
    event = as_event(chat_info)
    return f"data: {dumps(_on_the_wire(event, object_deltas))}\n\n"


def as_event(chat_info: Any) -> dict[str, Any]:
    """A dict or a model as a dict without empty members."""
    for method in ("model_dump", "dict"):
        dump = getattr(chat_info, method, None)
        if callable(dump) and not isinstance(chat_info, (dict, type)):
            members: Any = dump(exclude_none=True)
            return dict(members)
    if isinstance(chat_info, Mapping):
        return {key: value for key, value in chat_info.items() if value is not None}
    raise TypeError(f"expected an event (dict, model or text), found {type(chat_info).__name__}")


def parsed(text: str) -> Optional[dict[str, Any]]:
    """The event in a frame."""
    lines = [line[5:].removeprefix(" ") for line in re.split("\r\n|\r|\n", text) if line.startswith("data:")]
    try:
        event = json.loads("\n".join(lines))
    except ValueError:
        return None
    return event if isinstance(event, dict) else None


def _on_the_wire(event: dict[str, Any], object_deltas: bool) -> dict[str, Any]:
    kind, delta = event.get("type"), event.get("delta")
    if kind == "TOOL_CALL_START" and event.get("parentMessageId") == "":
        event = {key: value for key, value in event.items() if key != "parentMessageId"}
    if object_deltas or kind == "STATE_DELTA" or "delta" not in event:
        return event
    if kind == "TOOL_CALL_ARGS":
        return event if isinstance(delta, str) else {**event, "delta": dumps(delta)}
    if not isinstance(delta, Mapping):
        return event
    delta = dict(delta)
    if kind == "BUSINESS_DATA_CONTENT":
        # The reference client joins the deltas of a message and reads the block and the style there.
        for key in ("blockId", "style"):
            if event.get(key) and key not in delta:
                delta[key] = event[key]
    return {**event, "delta": escape_brace_pairs(dumps(delta))}


def escape_brace_pairs(document: str) -> str:
    """`{` behind `}` as an escape: the reference client inserts a comma between the two, also within text.

    Compact JSON has the pair only within strings.
    """
    return document.replace("}{", "}\\u007b")
