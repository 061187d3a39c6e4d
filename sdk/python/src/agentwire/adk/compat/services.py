"""`HistoryService` and `StateService`: the conversation and the state of ADK sessions, as in adk-agui-middleware."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Optional

from ag_ui.core import BaseEvent, EventType, StateSnapshotEvent
from fastapi import FastAPI, HTTPException
from fastapi import Request as FastAPIRequest
from google.adk.events import Event, EventActions
from google.adk.sessions import InMemorySessionService
from pydantic import Field
from starlette.requests import Request

from ...agents import each, maybe_await
from ...converters import apply_patch, fold
from ...errors import AgentwireError
from ...translator import Translator
from .names import Extractor, HistoryPathConfig, StatePathConfig, _Model

__all__ = [
    "HistoryConfig",
    "HistoryService",
    "StateConfig",
    "StateService",
    "register_agui_history_endpoint",
    "register_state_endpoint",
]


class _SessionConfig(_Model):
    app_name: Extractor = "default"
    user_id: Extractor
    session_id: Extractor
    session_service: Any = Field(default_factory=InMemorySessionService)


class HistoryConfig(_SessionConfig):
    """Where app, user and session of a request are, and the handlers of the history."""

    retune_on_stream_complete: bool = False
    get_thread_list: Optional[Callable[..., Any]] = None
    adk_event_handler: Optional[type[Any]] = None
    agui_event_handler: Optional[type[Any]] = None
    translate_handler: Optional[type[Any]] = None


class StateConfig(_SessionConfig):
    """The same for the state."""

    get_state: Optional[Callable[..., Any]] = None


class CustomMessagesSnapshotEvent(BaseEvent):
    """The conversation; messages as dicts, so that those of every version of AG-UI fit."""

    type: Any = EventType.MESSAGES_SNAPSHOT
    messages: list[Any]


class _Sessions:
    def __init__(self, config: Any) -> None:
        self.config = config

    async def _names(self, request: Request, with_session: bool = True) -> dict[str, str]:
        names = ["app_name", "user_id", *(["session_id"] if with_session else [])]
        found = {}
        for name in names:
            extractor = getattr(self.config, name)
            found[name] = str(await maybe_await(extractor(request)) if callable(extractor) else extractor)
        return found

    async def _session(self, request: Request) -> Any:
        session = await self.config.session_service.get_session(**await self._names(request))
        if session is None:
            raise HTTPException(404, {"error": "SESSION_NOT_FOUND", "error_description": "no such session"})
        return session


class HistoryService(_Sessions):
    """The threads of a user."""

    def __init__(self, history_config: HistoryConfig) -> None:
        super().__init__(history_config)

    async def list_threads(self, request: Request) -> list[dict[str, Any]]:
        """The sessions of the user."""
        names = await self._names(request, with_session=False)
        listed = await self.config.session_service.list_sessions(**names)
        if self.config.get_thread_list is not None:
            found: list[dict[str, Any]] = await maybe_await(self.config.get_thread_list(listed.sessions))
            return found
        return [{"threadId": session.id} for session in listed.sessions]

    async def delete_thread(self, request: Request) -> dict[str, str]:
        """Deletes a session."""
        await self.config.session_service.delete_session(**await self._names(request))
        return {"status": "deleted"}

    async def get_message_snapshot(self, request: Request) -> CustomMessagesSnapshotEvent:
        """The conversation of a session, by the reader of ADK and the fold."""
        session = await self._session(request)
        handler = self.config.adk_event_handler
        handler = None if handler is None else handler(None)
        messages: list[Any] = []
        turn: list[Any] = []
        for event in session.events:
            if event.author == "user":
                messages, turn = _folded(messages, turn), []
                messages += _words(event)
            else:
                kept = [event] if handler is None else [made async for made in each(handler.process(event))]
                turn += [made for made in kept if made is not None]
        messages = _folded(messages, turn)
        return CustomMessagesSnapshotEvent(messages=messages)


def _words(event: Event) -> list[dict[str, Any]]:
    parts = event.content.parts if event.content and event.content.parts else []
    text = "".join(part.text for part in parts if part.text)
    return [{"id": event.id, "role": "user", "content": text}] if text else []


def _folded(messages: list[Any], turn: list[Any]) -> list[Any]:
    if not turn:
        return messages
    translator = Translator("adk", "ag-ui")
    events: list[Any] = []
    for event in turn:
        events += translator.push_events(event)
    events += translator.finish_events()
    return fold(events, messages=messages).messages


class StateService(_Sessions):
    """The state of a session."""

    def __init__(self, state_config: StateConfig) -> None:
        super().__init__(state_config)

    async def get_state_snapshot(self, request: Request) -> StateSnapshotEvent:
        """The state as an event."""
        state = dict((await self._session(request)).state)
        if self.config.get_state is not None:
            state = await maybe_await(self.config.get_state(state))
        return StateSnapshotEvent(type=EventType.STATE_SNAPSHOT, snapshot=state)

    async def patch_state(self, request: Request, state_patch: list[dict[str, Any]]) -> dict[str, str]:
        """Applies a JSON Patch, all or nothing."""
        session = await self._session(request)
        before = dict(session.state)
        try:
            after = apply_patch(before, state_patch)
        except AgentwireError as error:
            raise HTTPException(409, {"error": "PATCH_FAILED", "error_description": str(error)}) from error
        removed = [key for key in before if key not in after]
        if removed:
            # ADK has no way to remove a key.
            message = f"ADK cannot remove the key `{removed[0]}`"
            raise HTTPException(409, {"error": "PATCH_FAILED", "error_description": message})
        delta = {key: value for key, value in after.items() if before.get(key, _ABSENT) != value}
        event = Event(invocation_id=f"patch-{session.id}", author="user", actions=EventActions(state_delta=delta))
        await self.config.session_service.append_event(session=session, event=event)
        return {"status": "updated"}


_ABSENT = object()


def _dumped(event: Any) -> Any:
    return json.loads(event.model_dump_json(by_alias=True, exclude_none=True))


def _share(app: Any, service: _Sessions) -> None:
    """The sessions of the app's own service, if the configuration has none of its own."""
    router = app.router if isinstance(app, FastAPI) else app
    shared = router.__dict__.get("agentwire_sessions")
    if shared is not None and "session_service" not in service.config.model_fields_set:
        service.config.session_service = shared


def register_agui_history_endpoint(
    app: Any, history_service: HistoryService, path_config: Optional[HistoryPathConfig] = None
) -> None:
    """Adds the routes of the history."""
    paths = path_config or HistoryPathConfig()
    _share(app, history_service)

    async def threads(request: Any) -> Any:
        return await history_service.list_threads(request)

    async def delete(request: Any) -> Any:
        return await history_service.delete_thread(request)

    async def messages(request: Any) -> Any:
        return _dumped(await history_service.get_message_snapshot(request))

    for path, method, function in (
        (paths.agui_thread_list_path, "GET", threads),
        (paths.agui_thread_delete_path, "DELETE", delete),
        (paths.agui_message_snapshot_path, "GET", messages),
    ):
        function.__annotations__ = {"request": FastAPIRequest, "return": Any}
        app.add_api_route(path, function, methods=[method])


def register_state_endpoint(
    app: Any, state_service: StateService, path_config: Optional[StatePathConfig] = None
) -> None:
    """Adds the routes of the state."""
    paths = path_config or StatePathConfig()
    _share(app, state_service)

    async def snapshot(request: Any) -> Any:
        return _dumped(await state_service.get_state_snapshot(request))

    async def patch(request: Any, state_patch: Any) -> Any:
        return await state_service.patch_state(request, state_patch)

    snapshot.__annotations__ = {"request": FastAPIRequest, "return": Any}
    patch.__annotations__ = {"request": FastAPIRequest, "state_patch": list[dict[str, Any]], "return": Any}
    app.add_api_route(paths.agui_state_snapshot_path, snapshot, methods=["GET"])
    app.add_api_route(paths.agui_patch_state_path, patch, methods=["PATCH"])

