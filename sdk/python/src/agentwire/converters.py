"""Messages, state and patches: the gateway's own converters."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import _native
from .translator import input_text

if TYPE_CHECKING:
    from google.genai.types import Content

    from .translator import Input

__all__ = ["Folded", "apply_patch", "diff", "fold", "to_adk_content"]


@dataclass(frozen=True)
class Folded:
    """The messages and the state that a client holds."""

    messages: list[dict[str, Any]]
    state: Any


def fold(events: Iterable[Any], *, messages: Iterable[Any] = (), state: Any = None) -> Folded:
    """The messages and the state after AG-UI `events` (dicts or objects), beginning with `messages` and `state`."""
    lines = "".join(f"{_wire(event)}\n" for event in events)
    start = f"[{','.join(_wire(message) for message in messages)}]"
    found, value = _native.fold(lines, start, None if state is None else _native.to_json(state))
    return Folded(json.loads(found), json.loads(value))


def apply_patch(document: Any, patch: Iterable[Any]) -> Any:
    """`document` after a JSON Patch (RFC 6902), all or nothing; the given one is not changed.

    Raises `AgentwireError` with the code `PATCH_FAILED` if an operation does not apply, or costs too much.
    """
    return json.loads(_native.apply_patch(_native.to_json(document), _native.to_json(list(patch))))


def diff(old: Any, new: Any) -> list[dict[str, Any]]:
    """A JSON Patch from one document to another."""
    found: list[dict[str, Any]] = json.loads(_native.diff(_native.to_json(old), _native.to_json(new)))
    return found


def to_adk_content(input: Input) -> Content:
    """The new part of an input for an ADK runner: the words of the user, or the answers to calls."""
    try:
        from google.genai.types import Content
    except ImportError as error:
        raise ImportError('to_adk_content needs google-adk: pip install "agentwire-gateway[adk]"') from error
    found = json.loads(_native.adk_content(input_text(input)))
    return Content.model_validate(found if found is not None else {"role": "user", "parts": []})


def _wire(value: Any) -> str:
    """A dict, or an object of `ag_ui.core`, with the names on the wire."""
    dump = getattr(value, "model_dump_json", None)
    if callable(dump):
        return str(dump(by_alias=True, exclude_none=True))
    return _native.to_json(value)
