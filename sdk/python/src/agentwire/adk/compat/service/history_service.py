"""`HistoryService`: the threads of a user and their conversations, from ADK's sessions."""

from __future__ import annotations

import json
from typing import Any, Optional

from google.adk.events import Event
from starlette.requests import Request

from .... import _native
from ....agents import each, maybe_await
from ....converters import fold
from ....hooks import wire
from ....langgraph import objects
from ....translator import Translator
from ..data_model.config import HistoryConfig
from ..event.agui_event import CustomMessagesSnapshotEvent
from .sessions import SessionsOfRequests

__all__ = ["HistoryService", "messages_of"]

#: The roles of authors that are people or programs, not agents.
ROLES = {"user": "user", "developer": "system"}


class HistoryService(SessionsOfRequests):
    """The threads of a user."""

    def __init__(self, history_config: HistoryConfig) -> None:
        super().__init__(history_config)
        self.history_config = history_config

    async def list_threads(self, request: Request) -> list[dict[str, Any]]:
        """The sessions of the user."""
        listed = await self.config.session_service.list_sessions(**await self.names(request, with_session=False))
        if self.history_config.get_thread_list is not None:
            found: list[dict[str, Any]] = await maybe_await(self.history_config.get_thread_list(listed.sessions))
            return found
        return [{"threadId": session.id} for session in listed.sessions]

    async def delete_thread(self, request: Request) -> dict[str, str]:
        """Deletes a session."""
        await self.config.session_service.delete_session(**await self.names(request))
        return {"status": "deleted"}

    async def get_message_snapshot(self, request: Request) -> CustomMessagesSnapshotEvent:
        """The conversation of a session, by the reader of ADK and the fold."""
        session = await self.session(request)
        return CustomMessagesSnapshotEvent(messages=await messages_of(session, self.history_config))


async def messages_of(session: Any, config: Optional[HistoryConfig] = None) -> list[Any]:
    """The conversation of a session."""
    turns = _Turns(config or HistoryConfig(user_id="", session_id=""))
    for event in session.events:
        await turns.add(event)
    return await turns.end()


class _Turns:
    """The messages of a session: a message of a person, then the events of the agents up to the next one."""

    def __init__(self, config: HistoryConfig) -> None:
        def made(handler: Any) -> Any:
            return None if handler is None else handler(None)

        self._adk = made(config.adk_event_handler)
        self._translator = made(config.translate_handler)
        self._agui = made(config.agui_event_handler)
        self._messages: list[Any] = []
        self._turn: Optional[Translator] = None
        self._events: list[Any] = []

    async def add(self, event: Event) -> None:
        own = _own_messages(event)
        if event.author == "user" or own:
            await self.end()
            self._messages += own
            return
        async for kept in each(event if self._adk is None else self._adk.process(event)):
            if kept is not None:
                await self._translate(kept)

    async def _translate(self, event: Event) -> None:
        if self._turn is None:
            self._turn = Translator("adk", "ag-ui")
        if self._translator is not None:
            async for step in each(self._translator.translate(event)):
                if step is None:
                    continue
                if step.agui_event is not None:
                    await self._push([json.loads(wire(step.agui_event))])
                if step.is_retune:
                    return
                if step.is_replace and step.adk_event is not None:
                    event = step.adk_event
        await self._push(self._turn.push_events(event))

    async def _push(self, events: list[Any]) -> None:
        for event in events:
            if self._agui is None:
                self._events.append(event)
                continue
            async for made in each(self._agui.process(objects(json.dumps(event).encode())[0])):
                if made is not None:
                    self._events.append(json.loads(wire(made)))

    async def end(self) -> list[Any]:
        """Ends the turn; the messages so far."""
        if self._turn is not None:
            await self._push(self._turn.finish_events())
            self._messages = fold(self._events, messages=self._messages).messages
            self._turn, self._events = None, []
        return self._messages


def _own_messages(event: Event) -> list[dict[str, Any]]:
    """The messages of an event that is not an agent's: words, and the results of calls that waited."""
    role = ROLES.get(event.author) or ROLES.get((event.content.role if event.content else None) or "")
    parts = event.content.parts if role and event.content and event.content.parts else []
    found: list[dict[str, Any]] = []
    for number, part in enumerate(parts):
        id = event.id if number == 0 else f"{event.id}-{number}"
        if part.text:
            found.append({"id": id, "role": role, "content": part.text})
        elif part.function_response is not None and event.author == "user":
            response = part.function_response
            content = _native.to_json(response.response)
            found.append({"id": id, "role": "tool", "toolCallId": response.id or "", "content": content})
    return found
