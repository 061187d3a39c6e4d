"""Events of the middleware's own.

The THINKING_* types left AG-UI with ag-ui-protocol 1.0; these classes exist with every version. A client of AG-UI 1 gets
them as REASONING_* events.
"""

from __future__ import annotations

from typing import Any

from ag_ui.core import BaseEvent, EventType

__all__ = [
    "CustomMessagesSnapshotEvent",
    "CustomThinkingTextMessageContentEvent",
    "CustomThinkingTextMessageEndEvent",
    "CustomThinkingTextMessageStartEvent",
]


class _Thinking(BaseEvent):
    thinking_id: str


class CustomThinkingTextMessageStartEvent(_Thinking):
    """The start of a thought with an id."""

    type: Any = "THINKING_TEXT_MESSAGE_START"


class CustomThinkingTextMessageContentEvent(_Thinking):
    """A piece of a thought with an id."""

    type: Any = "THINKING_TEXT_MESSAGE_CONTENT"
    delta: str


class CustomThinkingTextMessageEndEvent(_Thinking):
    """The end of a thought with an id."""

    type: Any = "THINKING_TEXT_MESSAGE_END"


class CustomMessagesSnapshotEvent(BaseEvent):
    """The conversation. The messages are those of any version of AG-UI."""

    type: Any = EventType.MESSAGES_SNAPSHOT
    messages: list[Any]
