"""Messages as AG-UI events."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, Optional

from ag_ui.core import (
    BaseEvent,
    EventType,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
)
from google.adk.events import Event

from ...event.agui_event import CustomMessagesSnapshotEvent

__all__ = ["MessageEventUtil"]


class MessageEventUtil:
    """Makes the events of messages."""

    @staticmethod
    async def generate_message_event(
        message_id: str, message: str, adk_event: Optional[Event] = None
    ) -> AsyncGenerator[BaseEvent, None]:
        """A message of the assistant: its start, its text, its end."""
        yield TextMessageStartEvent(
            type=EventType.TEXT_MESSAGE_START, message_id=message_id, role="assistant", raw_event=adk_event
        )
        yield TextMessageContentEvent(
            type=EventType.TEXT_MESSAGE_CONTENT, message_id=message_id, delta=message, raw_event=adk_event
        )
        yield TextMessageEndEvent(type=EventType.TEXT_MESSAGE_END, message_id=message_id, raw_event=adk_event)

    @staticmethod
    def create_message_snapshot(
        message_list: Optional[list[Any]], adk_event: Optional[Event] = None
    ) -> CustomMessagesSnapshotEvent:
        """The conversation."""
        return CustomMessagesSnapshotEvent(messages=message_list or [], raw_event=adk_event)
