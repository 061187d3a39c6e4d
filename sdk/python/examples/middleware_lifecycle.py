"""Every handler of adk-agui-middleware around a run: uvicorn middleware_lifecycle:app"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from typing import Any, Optional

from ag_ui.core import BaseEvent, CustomEvent, EventType, TextMessageContentEvent
from agentwire.adk import (
    BaseADKEventHandler,
    BaseADKEventTimeoutHandler,
    BaseAGUIEventHandler,
    BaseAGUIStateSnapshotHandler,
    BaseInOutHandler,
    BaseTranslateHandler,
    ConfigContext,
    HandlerContext,
    InputInfo,
    SessionLockConfig,
    SessionLockHandler,
    SSEService,
    TranslateEvent,
    register_agui_endpoint,
)
from fastapi import FastAPI
from google.adk.agents import BaseAgent
from google.adk.agents.invocation_context import InvocationContext
from google.adk.events import Event
from google.genai import types

log = logging.getLogger("lifecycle")


class Greeter(BaseAgent):
    """Your LlmAgent is here."""

    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncGenerator[Event, None]:
        parts = ctx.user_content.parts if ctx.user_content and ctx.user_content.parts else []
        text = f"ADK heard: {' '.join(part.text or '' for part in parts)}"
        content = types.Content(role="model", parts=[types.Part(text=text)])
        yield Event(author=self.name, invocation_id=ctx.invocation_id, content=content)


class OneAtATime(SessionLockHandler):
    """One run per session, in this process."""

    def __init__(self, lock_config: SessionLockConfig) -> None:
        super().__init__(lock_config)
        self.taken: set[tuple[str, str]] = set()

    async def lock(self, input_info: InputInfo) -> bool:
        key = (input_info.user_id, input_info.session_id)
        is_free = key not in self.taken
        self.taken.add(key)
        return is_free

    async def unlock(self, input_info: InputInfo) -> None:
        self.taken.discard((input_info.user_id, input_info.session_id))


class Native(BaseADKEventHandler):
    """Drops ADK events without content."""

    async def process(self, event: Event) -> AsyncGenerator[Optional[Event], None]:
        yield event if event.content else None


class Limit(BaseADKEventTimeoutHandler):
    """Two minutes for a run."""

    async def get_timeout(self) -> int:
        return 120

    async def process_timeout_fallback(self) -> AsyncGenerator[Optional[Event], None]:
        yield None


class Announce(BaseTranslateHandler):
    """Sends an event of its own before each translation."""

    async def translate(self, adk_event: Event) -> AsyncGenerator[TranslateEvent, None]:
        event = CustomEvent(type=EventType.CUSTOM, name="author", value=adk_event.author)
        yield TranslateEvent(agui_event=event)


class Louder(BaseAGUIEventHandler):
    """Changes the text."""

    async def process(self, event: BaseEvent) -> AsyncGenerator[Optional[BaseEvent], None]:
        if isinstance(event, TextMessageContentEvent):
            event.delta = event.delta.upper()
        yield event


class Snapshot(BaseAGUIStateSnapshotHandler):
    """Adds to the state that the client gets."""

    async def process(self, state_snapshot: dict[str, Any]) -> Optional[dict[str, Any]]:
        return {**state_snapshot, "seen": True}


class Record(BaseInOutHandler):
    """Writes a log of input and output."""

    async def input_record(self, input_info: InputInfo) -> None:
        log.info("run %s of %s", input_info.agui_content.run_id, input_info.user_id)

    async def output_record(self, agui_event: BaseEvent) -> None:
        log.info("%s", agui_event.type)

    async def output_catch_and_change(self, agui_event: BaseEvent) -> BaseEvent:
        return agui_event


app = FastAPI()
handlers = HandlerContext(
    session_lock_handler=OneAtATime,
    adk_event_handler=Native,
    adk_event_timeout_handler=Limit,
    translate_handler=Announce,
    agui_event_handler=Louder,
    agui_state_snapshot_handler=Snapshot,
    in_out_record_handler=Record,
)
service = SSEService(Greeter(name="greeter"), ConfigContext(user_id="user"), handler_context=handlers)
register_agui_endpoint(app, service)
