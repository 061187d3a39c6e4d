"""The handlers of a service: classes of the program, of which one object is made per request.

A method may be an async generator function, or a coroutine function that returns an async generator.
"""

from __future__ import annotations

from abc import ABCMeta, abstractmethod
from collections.abc import AsyncGenerator
from typing import Any, Optional

from ag_ui.core import BaseEvent, RunErrorEvent
from google.adk.events import Event

from ..data_model.common import InputInfo, SessionLockConfig
from ..data_model.event import TranslateEvent
from ..event.error_event import AGUIErrorEvent

__all__ = [
    "BaseADKEventHandler",
    "BaseADKEventTimeoutHandler",
    "BaseAGUIEventHandler",
    "BaseAGUIStateSnapshotHandler",
    "BaseInOutHandler",
    "BaseTranslateHandler",
    "SessionLockHandler",
]


class _OfRequest(metaclass=ABCMeta):
    def __init__(self, input_info: Optional[InputInfo]) -> None:
        self.input_info = input_info


class BaseADKEventHandler(_OfRequest):
    """Filters ADK events before the translation."""

    @abstractmethod
    def process(self, event: Event) -> AsyncGenerator[Optional[Event], None]:
        """The events in the place of an event; `None` is nothing."""


class BaseADKEventTimeoutHandler(_OfRequest):
    """Ends a stream that takes too long."""

    @abstractmethod
    async def get_timeout(self) -> int:
        """The time limit of the whole stream, in seconds."""

    @abstractmethod
    def process_timeout_fallback(self) -> AsyncGenerator[Optional[Event], None]:
        """The events in the place of the rest of the stream."""


class BaseTranslateHandler(_OfRequest):
    """Translates ADK events before the default translation."""

    @abstractmethod
    def translate(self, adk_event: Event) -> AsyncGenerator[TranslateEvent, None]:
        """The steps of the translation of an event; without a step, the default translation."""


class BaseAGUIEventHandler(_OfRequest):
    """Filters AG-UI events after the translation."""

    @abstractmethod
    def process(self, event: BaseEvent) -> AsyncGenerator[Optional[BaseEvent], None]:
        """The events in the place of an event; `None` is nothing."""


class BaseAGUIStateSnapshotHandler(_OfRequest):
    """Changes the state that the client gets at the end of a run."""

    @abstractmethod
    async def process(self, state_snapshot: dict[str, Any]) -> Optional[dict[str, Any]]:
        """The state in its place; `None` for no STATE_SNAPSHOT."""


class BaseInOutHandler(metaclass=ABCMeta):
    """Sees the input and all events that the client gets, and may change the events."""

    @abstractmethod
    async def input_record(self, input_info: InputInfo) -> None:
        """Sees the input."""

    @abstractmethod
    async def output_record(self, agui_event: BaseEvent) -> None:
        """Sees an event."""

    @abstractmethod
    async def output_catch_and_change(self, agui_event: BaseEvent) -> BaseEvent:
        """The event in its place."""


class SessionLockHandler(metaclass=ABCMeta):
    """A lock around runs. One object is made per service."""

    def __init__(self, lock_config: SessionLockConfig) -> None:
        self.lock_config = lock_config

    @abstractmethod
    async def lock(self, input_info: InputInfo) -> bool:
        """True if the run has the lock now."""

    @abstractmethod
    async def unlock(self, input_info: InputInfo) -> None:
        """Releases the lock."""

    async def get_locked_message(self, input_info: InputInfo) -> RunErrorEvent:
        """The last event of a run that did not get the lock."""
        return AGUIErrorEvent.create_is_locked_error(input_info.session_id)
