"""Thoughts as steps of a translation."""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator, AsyncIterable
from typing import Any, Optional

from ag_ui.core import BaseEvent
from google.adk.events import Event

from ...data_model.event import TranslateEvent
from ...event.agui_event import (
    CustomThinkingTextMessageContentEvent,
    CustomThinkingTextMessageEndEvent,
    CustomThinkingTextMessageStartEvent,
)

__all__ = ["ThinkingEventUtil", "ThinkingMessageEventUtil"]


class _ThinkingEvent(BaseEvent):
    type: Any


class ThinkingEventUtil:
    """Makes the events around thoughts."""

    @staticmethod
    def create_thinking_event_start(adk_event: Optional[Event] = None) -> TranslateEvent:
        """The model begins to think."""
        return TranslateEvent(agui_event=_ThinkingEvent(type="THINKING_START", raw_event=adk_event))

    @staticmethod
    def create_thinking_event_end(adk_event: Optional[Event] = None) -> TranslateEvent:
        """The model has thought."""
        return TranslateEvent(agui_event=_ThinkingEvent(type="THINKING_END", raw_event=adk_event))


class ThinkingMessageEventUtil:
    """Makes the events of thoughts."""

    @staticmethod
    def create_thinking_message_start_event(thinking_id: str, adk_event: Optional[Event] = None) -> TranslateEvent:
        """The start of a thought."""
        event = CustomThinkingTextMessageStartEvent(thinking_id=thinking_id, raw_event=adk_event)
        return TranslateEvent(agui_event=event)

    @staticmethod
    def create_thinking_message_content_event(
        message: str, thinking_id: str, adk_event: Optional[Event] = None
    ) -> TranslateEvent:
        """A piece of a thought."""
        event = CustomThinkingTextMessageContentEvent(thinking_id=thinking_id, delta=message, raw_event=adk_event)
        return TranslateEvent(agui_event=event)

    @staticmethod
    def create_thinking_message_end_event(thinking_id: str, adk_event: Optional[Event] = None) -> TranslateEvent:
        """The end of a thought."""
        event = CustomThinkingTextMessageEndEvent(thinking_id=thinking_id, raw_event=adk_event)
        return TranslateEvent(agui_event=event)

    async def generate_thinking_message_event(
        self, message: str, uid: Optional[str] = None, adk_event: Optional[Event] = None
    ) -> AsyncGenerator[TranslateEvent, None]:
        """A whole thought."""

        async def pieces() -> AsyncGenerator[str, None]:
            yield message

        async for step in self.generate_thinking_message_event_with_generator(pieces(), uid, adk_event):
            yield step

    async def generate_thinking_message_event_with_generator(
        self, message: AsyncIterable[str], uid: Optional[str] = None, adk_event: Optional[Event] = None
    ) -> AsyncGenerator[TranslateEvent, None]:
        """A thought in pieces."""
        id = uid or str(uuid.uuid4())
        yield self.create_thinking_message_start_event(id, adk_event)
        async for piece in message:
            yield self.create_thinking_message_content_event(piece, id, adk_event)
        yield self.create_thinking_message_end_event(id, adk_event)
