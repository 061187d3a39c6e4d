"""The agent of a service in the gateway: the session is that of the extracted app and user, the handlers are hooks."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Optional

from google.adk.events import Event
from google.genai.types import Content

from ...agents import each, maybe_await, pour
from ...errors import Failure, Refused
from ...hooks import Hooks, RunContext, SessionLock, Translation, wire
from ...identity import RequestInfo
from ...langgraph import objects
from ..local import AdkLocal
from .data_model.common import InputInfo
from .handler.session_lock_handler import DefaultSessionLockHandler
from .pending import PENDING, REQUEST, write_pending

if TYPE_CHECKING:
    from ...bridge import Call
    from .service.sse_service import SSEService

__all__ = ["COMPAT_RUN", "CompatAgent", "CompatRun"]

_log = logging.getLogger("agentwire.adk")
#: The member of the ASGI scope with the request of a run.
COMPAT_RUN = "agentwire.adk.run"
#: The name of the custom event with an ADK event's metadata.
METADATA = "adk_custom_metadata"
#: Events that a handler of AG-UI events does not see: they are not translations of an ADK event.
OF_RUN = ("RUN_STARTED", "RUN_FINISHED", "RUN_ERROR")


@dataclass
class CompatRun:
    """A run with its request."""

    info: InputInfo
    #: True after a call that waits for a result.
    is_waiting: bool = False
    #: Texts that are repeated behind their pieces.
    repeats: deque[str] = field(default_factory=deque)


def run_of(info: Optional[RequestInfo]) -> Optional[CompatRun]:
    """The run of a request; none after it was taken up again by another process."""
    found: Optional[CompatRun] = info.scope.get(COMPAT_RUN) if info is not None else None
    return found


@contextmanager
def told_as(code: str, show_errors: bool) -> Iterator[None]:
    """The exception of a program as a RUN_ERROR. Its text is in the log only, unless it is to be shown."""
    try:
        yield
    except Failure:
        raise
    except Exception as error:
        _log.exception("a run ends with %s", code)
        raise Refused(repr(error) if show_errors else "Agent execution failed", code=code) from error


class CompatAgent(AdkLocal):
    """The agent of a service."""

    def __init__(self, service: SSEService) -> None:
        runner, handlers, config = service.runner_config, service.handler_context, service.config_context
        patience = config.session_lock_config
        interval = f"{max(1, round(patience.lock_retry_interval * 1000))}ms"
        settings: dict[str, Any] = {
            "busy": {"policy": "wait", "retries": patience.lock_retry_times, "interval": interval},
        }
        if config.event_source_response_mode:
            settings["sse"] = "standard"
        if config.ag_ui_profile is not None:
            settings["ag_ui"] = {"profile": config.ag_ui_profile}
        options = {"snapshot": "always"}
        if config.is_add_adk_event_in_agui_event and not config.auto_remove_agui_raw_event:
            options["raw"] = "attach"
        has_lock = handlers.session_lock_handler is not DefaultSessionLockHandler
        super().__init__(
            service.agent,
            app_name="app",
            plugins=runner.plugins or (),
            run_config=runner.run_config,
            options=options,
            services={
                "session_service": runner.session_service,
                "artifact_service": runner.get_artifact_service(),
                "memory_service": runner.get_memory_service(),
                "credential_service": runner.get_credential_service(),
            },
            hooks=_hooks(service),
            lock=CompatLock(service) if has_lock else None,
            **settings,
        )
        self._service = service
        #: The calls that wait, of live runs.
        self._pending: dict[int, dict[str, str]] = {}

    def place(self, call: Call, app: str, user: str) -> tuple[str, str]:
        return call.payload["tenant"], call.payload["user"]

    async def answer_run(self, call: Call, body: dict[str, Any]) -> None:
        app, user = self.place(call, self.app_name, body["userId"])
        sessions, session_id = self.services["session_service"], body["sessionId"]
        found = await sessions.get_session(app_name=app, user_id=user, session_id=session_id)
        pending = dict(found.state.get(PENDING) or {}) if found is not None else {}
        for part in (body.get("newMessage") or {}).get("parts") or []:
            pending.pop((part.get("functionResponse") or {}).get("id"), None)
        self._pending[call.id] = pending
        try:
            with told_as("EXECUTION_ERROR", self._service.config_context.show_errors):
                await super().answer_run(call, body)
        finally:
            await write_pending(sessions, app, user, session_id, self._pending.pop(call.id))

    async def pour(self, call: Call, events: Any) -> None:
        run = run_of(call.record.info() if call.record is not None else None)
        shown = self._shown(events, run, self._pending[call.id])
        handler_class = self._service.handler_context.adk_event_timeout_handler
        if handler_class is None:
            await pour(call, shown)
            return
        handler = handler_class(run.info if run is not None else None)
        timeout = await maybe_await(handler.get_timeout())
        try:
            await asyncio.wait_for(pour(call, shown), timeout)
        except asyncio.TimeoutError:
            _log.warning("the agent took longer than %s s", timeout)
            await pour(call, _kept(handler.process_timeout_fallback()))

    async def _shown(self, events: Any, run: Optional[CompatRun], pending: dict[str, str]) -> AsyncIterator[Any]:
        """The events up to a call that waits for a result, and then the results of the calls that were open.

        ADK's run is read to its end, so that its session is whole when the client answers.
        """
        open_calls: set[Any] = set()
        streamed: set[str] = set()
        is_waiting = False
        repeats = run is not None and self._service.config_context.retune_on_stream_complete
        async for event in events:
            if run is not None:
                for queued in run.info.event_queue.get_adk_queue().drain():
                    yield queued
                if repeats:
                    _note_repeat(event, streamed, run)
            if event.author == "user":
                # The client knows its own messages.
                continue
            answered = {response.id for response in event.get_function_responses()} & open_calls
            open_calls -= answered
            if is_waiting:
                if answered:
                    parts = [part for part in event.content.parts if part.function_response]
                    parts = [part for part in parts if part.function_response.id in answered]
                    yield event.model_copy(update={"content": Content(role=event.content.role, parts=parts)})
                continue
            yield event
            if event.partial:
                continue
            waiting = event.long_running_tool_ids or ()
            for call in event.get_function_calls():
                if call.id not in waiting:
                    open_calls.add(call.id)
                elif call.id and call.name:
                    pending[call.id] = call.name
                    is_waiting = True
            if is_waiting and run is not None:
                run.is_waiting = True


def _note_repeat(event: Event, streamed: set[str], run: CompatRun) -> None:
    """Notes the whole text of a message whose pieces were sent."""
    parts = event.content.parts if event.content and event.content.parts else []
    text = "".join(part.text for part in parts if part.text and not part.thought)
    if text and event.partial:
        streamed.add(event.author)
    elif text and event.author in streamed and event.is_final_response():
        streamed.discard(event.author)
        run.repeats.append(text)


async def _kept(given: Any) -> AsyncIterator[Any]:
    async for event in each(given):
        if event is not None:
            yield event


class CompatLock(SessionLock):
    """The lock handler of a service."""

    def __init__(self, service: SSEService) -> None:
        self._service = service
        patience = service.config_context.session_lock_config
        self.timeout = float(patience.lock_retry_times * patience.lock_retry_interval + 30)

    async def lock(self, run: RunContext) -> Optional[bool]:
        found = run_of(run.request_info)
        handler = self._service.session_lock_handler
        if found is None or await maybe_await(handler.lock(found.info)):
            return True
        message = await maybe_await(handler.get_locked_message(found.info))
        raise Refused(message.message, code="THREAD_IS_LOCKED")

    async def unlock(self, run: RunContext) -> None:
        found = run_of(run.request_info)
        if found is not None:
            await maybe_await(self._service.session_lock_handler.unlock(found.info))


def _event(value: Any) -> Any:
    """An event of the gateway as an object of `ag_ui.core`."""
    return objects(json.dumps(value).encode())[0]


class CompatHooks(Hooks):
    """The handlers of a run. Subclasses have the points that their service needs."""

    service: SSEService

    def __init__(self, run: RunContext) -> None:
        super().__init__(run)
        self.compat = run_of(run.request_info)
        info = self.compat.info if self.compat is not None else None
        handlers, config = self.service.handler_context, self.service.config_context
        self._show_errors = config.show_errors
        self._removes_raw = config.auto_remove_agui_raw_event
        self._said: dict[str, str] = {}

        def made(handler: Any) -> Any:
            return None if handler is None else handler(info)

        with self._told_as("EXECUTION_ERROR"):
            self._adk = made(handlers.adk_event_handler)
            self._agui = made(handlers.agui_event_handler)
            self._snapshot = made(handlers.agui_state_snapshot_handler)
            self._translator = made(handlers.translate_handler)
        record = handlers.in_out_record_handler
        with self._told_as("AGENT_ERROR"):
            self._record: Any = None if record is None else record()

    def _told_as(self, code: str) -> Any:
        return told_as(code, self._show_errors)

    async def event(self, event: Any) -> Any:
        kind = event["type"]
        if kind == "RUN_STARTED":
            yield event
        if self.compat is not None:
            for queued in self.compat.info.event_queue.get_agui_queue().drain():
                yield queued
        if kind == "RUN_STARTED":
            return
        if kind == "CUSTOM" and event["name"] == "adk.metadata":
            event = {**event, "name": METADATA}
        if self._removes_raw:
            event = {key: value for key, value in event.items() if key != "rawEvent"}
        if kind == "STATE_SNAPSHOT":
            async for snapshot in self._state(event):
                yield snapshot
        elif kind in OF_RUN or self._agui is None:
            for before in [*_requests(event), *self._repeated(event)]:
                yield before
            yield event
        else:
            for before in self._repeated(event):
                async for made in self._handled(before):
                    yield made
            async for made in self._handled(event):
                yield made

    async def _handled(self, event: Any) -> AsyncIterator[Any]:
        with self._told_as("EXECUTION_ERROR"):
            async for made in each(self._agui.process(_event(event))):
                if made is not None:
                    yield made

    async def _state(self, event: Any) -> AsyncIterator[Any]:
        """The state at the end of a run; none if a call waits."""
        if self.compat is not None and self.compat.is_waiting:
            return
        state = await self._final_state(event["snapshot"])
        if self._snapshot is not None:
            with self._told_as("EXECUTION_ERROR"):
                state = await maybe_await(self._snapshot.process(state))
        if state is not None:
            yield {**event, "snapshot": state}

    async def _final_state(self, known: Any) -> Any:
        """The state of the session, as in the middleware: a handler may have dropped events that changed it."""
        if self.compat is None or not isinstance(known, dict):
            return known
        info, sessions = self.compat.info, self.service.runner_config.session_service
        session = await sessions.get_session(
            app_name=info.app_name, user_id=info.user_id, session_id=info.session_id
        )
        if session is None:
            return known
        hidden = {key for key in session.state if key == PENDING or key.startswith("temp:")} - known.keys()
        return {**known, **{key: value for key, value in session.state.items() if key not in hidden}}

    def _repeated(self, event: Any) -> list[Any]:
        """The whole text of a message again, before its end."""
        repeats = self.compat.repeats if self.compat is not None else None
        if not repeats and not self.service.config_context.retune_on_stream_complete:
            return []
        kind, id = event["type"], event.get("messageId", "")
        if kind == "TEXT_MESSAGE_CONTENT":
            self._said[id] = self._said.get(id, "") + event["delta"]
        elif kind == "TEXT_MESSAGE_END" and repeats and self._said.pop(id, None) == repeats[0]:
            return [{"type": "TEXT_MESSAGE_CONTENT", "messageId": id, "delta": repeats.popleft()}]
        return []


def _requests(event: Mapping[str, Any]) -> list[Any]:
    """ADK's own requests to a person as tool calls, in which form clients of the middleware know them."""
    outcome = event.get("outcome") if event["type"] == "RUN_FINISHED" else None
    events: list[Any] = []
    for interrupt in (outcome or {}).get("interrupts") or []:
        about = interrupt.get("metadata") or {}
        name, id = str(about.get("name", "")), interrupt["id"]
        if name.startswith(REQUEST):
            arguments = json.dumps(about.get("arguments") or {})
            events.append({"type": "TOOL_CALL_START", "toolCallId": id, "toolCallName": name})
            events.append({"type": "TOOL_CALL_ARGS", "toolCallId": id, "delta": arguments})
            events.append({"type": "TOOL_CALL_END", "toolCallId": id})
    return events


async def _input_record(self: Any, input: dict[str, Any]) -> None:
    if self.compat is not None:
        with self._told_as("AGENT_ERROR"):
            await maybe_await(self._record.input_record(self.compat.info))


async def _output_record(self: Any, event: Any) -> None:
    with self._told_as("AGENT_ERROR"):
        await maybe_await(self._record.output_record(_event(event)))


async def _output(self: Any, event: Any) -> Any:
    with self._told_as("AGENT_ERROR"):
        changed = await maybe_await(self._record.output_catch_and_change(_event(event)))
    with self._told_as("ENCODING_ERROR"):
        return json.loads(wire(changed))


async def _native(self: Any, event: Any) -> Any:
    if getattr(event, "author", None) == "user":
        yield event
        return
    with self._told_as("EXECUTION_ERROR"):
        async for made in each(self._adk.process(event)):
            yield made


async def _translate(self: Any, event: Any) -> Any:
    if getattr(event, "author", None) == "user":
        return
    with self._told_as("EXECUTION_ERROR"):
        async for step in each(self._translator.translate(event)):
            if step is None:
                continue
            if step.agui_event is not None:
                yield step.agui_event
            if step.is_retune:
                yield Translation.skip
                return
            if step.is_replace and step.adk_event is not None:
                yield Translation.replace(step.adk_event)


def _hooks(service: SSEService) -> type[Hooks]:
    """The handlers of a service as hooks: only the points that there are."""
    handlers = service.handler_context
    members: dict[str, Any] = {"service": service}
    if handlers.adk_event_handler is not None:
        members["native"] = _native
    if handlers.translate_handler is not None:
        members["translate"] = _translate
    if handlers.in_out_record_handler is not None:
        members |= {"input_record": _input_record, "output_record": _output_record, "output": _output}
    return type("CompatHooks", (CompatHooks,), members)
