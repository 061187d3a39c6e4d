"""`SSEService`: an ADK agent behind the routes of adk-agui-middleware, as an agent of a gateway."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterable
from typing import TYPE_CHECKING, Any, Optional

from ag_ui.core import RunAgentInput
from fastapi import FastAPI
from fastapi import Request as FastAPIRequest
from starlette.requests import Request
from starlette.responses import Response

from ...agents import each, maybe_await, pour
from ...errors import Refused
from ...fastapi import Handed, gateway_of
from ...gateway import Gateway
from ...hooks import Hooks, RunContext, SessionLock, Translation
from ...identity import Caller
from ...langgraph import objects
from ..local import AdkLocal
from .names import (
    ConfigContext,
    DefaultSessionLockHandler,
    HandlerContext,
    InputInfo,
    PathConfig,
    RunnerConfig,
    SessionLockHandler,
)

if TYPE_CHECKING:
    from ...bridge import Call

__all__ = ["SSEService", "register_agui_endpoint"]

_numbers = itertools.count(1)


class SSEService:
    """An ADK agent with extractors, services and handlers."""

    def __init__(
        self,
        agent: Any,
        config_context: ConfigContext,
        runner_config: Optional[RunnerConfig] = None,
        handler_context: Optional[HandlerContext] = None,
        *,
        gateway: Optional[Gateway] = None,
        store: str = "memory:",
    ) -> None:
        self.agent = agent
        self.config_context = config_context
        self.runner_config = runner_config or RunnerConfig()
        self.handler_context = handler_context or HandlerContext()
        self.gateway = gateway
        self.store = store
        self.name = f"adk-{next(_numbers)}"
        #: The requests whose runs have not begun, and those of live runs.
        self.infos: dict[tuple[str, str, str], InputInfo] = {}
        self.local = CompatAgent(self)

    async def _extracted(self, extractor: Any, content: RunAgentInput, request: Request) -> Any:
        return await maybe_await(extractor(content, request)) if callable(extractor) else extractor

    async def extract_app_name(self, agui_content: RunAgentInput, request: Request) -> str:
        """The app of a request."""
        return str(await self._extracted(self.config_context.app_name, agui_content, request))

    async def extract_user_id(self, agui_content: RunAgentInput, request: Request) -> str:
        """The user of a request."""
        return str(await self._extracted(self.config_context.user_id, agui_content, request))

    async def extract_session_id(self, agui_content: RunAgentInput, request: Request) -> str:
        """The session of a request."""
        return str(await self._extracted(self.config_context.session_id, agui_content, request))

    async def extract_initial_state(self, agui_content: RunAgentInput, request: Request) -> Optional[dict[str, Any]]:
        """The state of a request."""
        extractor = self.config_context.extract_initial_state
        found: Optional[dict[str, Any]] = None
        if extractor is not None:
            found = await maybe_await(extractor(agui_content, request))
        return found

    async def input_info(self, agui_content: RunAgentInput, request: Request) -> InputInfo:
        """Everything about a request."""
        return InputInfo(
            agui_content=agui_content,
            request=request,
            app_name=await self.extract_app_name(agui_content, request),
            user_id=await self.extract_user_id(agui_content, request),
            session_id=await self.extract_session_id(agui_content, request),
            initial_state=await self.extract_initial_state(agui_content, request),
        )

    async def respond(self, agui_content: RunAgentInput, request: Request) -> Response:
        """The response to a request."""
        if not agui_content.messages and not getattr(agui_content, "resume", None):
            # These routes never sync.
            from .names import AGUIErrorEvent

            return _single(AGUIErrorEvent.create_no_input_message_error(agui_content.thread_id))
        info = await self.input_info(agui_content, request)
        convert = self.config_context.convert_run_agent_input
        if convert is not None:
            info.agui_content = await maybe_await(convert(info.agui_content, await self.pending(info)))
        body = json.loads(info.agui_content.model_dump_json(by_alias=True, exclude_none=True))
        if info.initial_state is not None:
            body["state"] = info.initial_state
        self.infos[(info.app_name, info.user_id, info.agui_content.run_id)] = info
        caller = Caller(info.user_id, info.app_name, info.session_id)
        assert self.gateway is not None
        return Handed(self.gateway, f"/agents/{self.name}", body=json.dumps(body).encode(), caller=caller)

    async def pending(self, info: InputInfo) -> dict[str, str]:
        """The calls of the session that wait for an answer: id and name."""
        sessions = self.runner_config.session_service
        session = await sessions.get_session(
            app_name=info.app_name, user_id=info.user_id, session_id=info.session_id
        )
        found = (session.state if session is not None else {}).get("pending_tool_calls", {})
        return dict(found) if isinstance(found, dict) else {}


def _single(event: Any) -> Response:
    from starlette.responses import PlainTextResponse

    text = f"data: {event.model_dump_json(by_alias=True, exclude_none=True)}\n\n"
    return PlainTextResponse(text, media_type="text/event-stream")


class CompatAgent(AdkLocal):
    """The agent of a service: sessions are those of the extracted app and user."""

    def __init__(self, service: SSEService) -> None:
        runner, handlers, config = service.runner_config, service.handler_context, service.config_context
        lock_config = config.session_lock_config
        lock: Optional[SessionLock] = None
        if handlers.session_lock_handler is not DefaultSessionLockHandler:
            lock = CompatLock(service, handlers.session_lock_handler(lock_config))
        interval = f"{max(1, round(lock_config.lock_retry_interval * 1000))}ms"
        settings: dict[str, Any] = {
            "busy": {"policy": "wait", "retries": lock_config.lock_retry_times, "interval": interval},
        }
        super().__init__(
            service.agent,
            app_name="app",
            plugins=runner.plugins or (),
            run_config=runner.run_config,
            services={
                "session_service": runner.session_service,
                "artifact_service": runner.get_artifact_service(),
                "memory_service": runner.get_memory_service(),
                "credential_service": runner.get_credential_service(),
            },
            hooks=_hooks(service),
            lock=lock,
            **settings,
        )
        self._service = service

    def place(self, call: Call, app: str, user: str) -> tuple[str, str]:
        return call.payload["tenant"], call.payload["user"]

    async def pour(self, call: Call, events: Any) -> None:
        handler_class = self._service.handler_context.adk_event_timeout_handler
        if handler_class is None:
            await pour(call, events)
            return
        key = (call.payload["tenant"], call.payload["user"], call.payload["run"])
        handler = handler_class(self._service.infos.get(key))
        timeout = await maybe_await(handler.get_timeout())
        try:
            await asyncio.wait_for(pour(call, events), timeout)
        except asyncio.TimeoutError:
            await pour(call, _kept(handler.process_timeout_fallback()))


async def _kept(given: Any) -> AsyncIterable[Any]:
    async for event in each(given):
        if event is not None:
            yield event


def _info(service: SSEService, run: RunContext) -> Optional[InputInfo]:
    return service.infos.get((run.caller.tenant, run.caller.user, run.run_id))


class CompatLock(SessionLock):
    """A lock handler of the program."""

    def __init__(self, service: SSEService, handler: SessionLockHandler) -> None:
        self._service = service
        self._handler = handler
        config = handler.lock_config
        self.timeout = float(config.lock_retry_times * config.lock_retry_interval + 30)

    async def lock(self, run: RunContext) -> Optional[bool]:
        info = _info(self._service, run)
        if info is None:
            return True
        config = self._handler.lock_config
        for attempt in range(config.lock_retry_times + 1):
            if await maybe_await(self._handler.lock(info)):
                return True
            if attempt < config.lock_retry_times:
                await asyncio.sleep(config.lock_retry_interval)
        message = await maybe_await(self._handler.get_locked_message(info))
        raise Refused(message.message, code="THREAD_IS_LOCKED")

    async def unlock(self, run: RunContext) -> None:
        info = _info(self._service, run)
        if info is not None:
            await maybe_await(self._handler.unlock(info))


def _event(value: Any) -> Any:
    return objects(json.dumps(value).encode())[0]


def _hooks(service: SSEService) -> type[Hooks]:
    """The handlers of a service as hooks: only those that there are."""
    handlers = service.handler_context

    class Base(Hooks):
        def __init__(self, run: RunContext) -> None:
            super().__init__(run)
            self.info = _info(service, run)

            def made(handler: Any) -> Any:
                return None if handler is None else handler(self.info)

            self.adk = made(handlers.adk_event_handler)
            self.agui = made(handlers.agui_event_handler)
            self.snapshot = made(handlers.agui_state_snapshot_handler)
            self.translator = made(handlers.translate_handler)
            record = handlers.in_out_record_handler
            self.record: Any = None if record is None else record()

        def __del__(self) -> None:
            service.infos.pop((self.run.caller.tenant, self.run.caller.user, self.run.run_id), None)

    members: dict[str, Any] = {}

    async def input_record(self: Any, input: dict[str, Any]) -> None:
        if self.record is not None and self.info is not None:
            await maybe_await(self.record.input_record(self.info))

    # Always there, so that an object lives as long as the run.
    members["input_record"] = input_record
    if handlers.adk_event_handler is not None:

        async def native(self: Any, event: Any) -> Any:
            if getattr(event, "author", None) == "user":
                yield event
                return
            async for made in each(self.adk.process(event)):
                yield made

        members["native"] = native
    if handlers.translate_handler is not None:

        async def translate(self: Any, event: Any) -> Any:
            if getattr(event, "author", None) == "user":
                return
            async for step in each(self.translator.translate(event)):
                if step is None:
                    continue
                if step.agui_event is not None:
                    yield step.agui_event
                if step.is_replace and step.adk_event is not None:
                    yield Translation.replace(step.adk_event)
                if step.is_retune:
                    yield Translation.skip
                    return

        members["translate"] = translate

    async def event(self: Any, event: Any) -> Any:
        if self.info is not None:
            for said in self.info.event_queue.get_agui_queue().drain():
                if said is not None:
                    yield said
        if self.agui is None:
            yield event
            return
        async for made in each(self.agui.process(_event(event))):
            yield made

    members["event"] = event
    if handlers.agui_state_snapshot_handler is not None:

        async def state(self: Any, state: Any) -> Any:
            changed = await maybe_await(self.snapshot.process(state))
            return state if changed is None else changed

        members["state"] = state
    if handlers.in_out_record_handler is not None:

        async def output_record(self: Any, event: Any) -> None:
            await maybe_await(self.record.output_record(_event(event)))

        async def output(self: Any, event: Any) -> Any:
            return await maybe_await(self.record.output_catch_and_change(_event(event)))

        members["output_record"] = output_record
        members["output"] = output
    return type("CompatHooks", (Base,), members)


def register_agui_endpoint(app: Any, sse_service: SSEService, path_config: Optional[PathConfig] = None) -> None:
    """Adds the main route of a service to an app or router of FastAPI."""
    config = sse_service.config_context
    if sse_service.gateway is None:
        # The form of the stream is that of the app's gateway, which is made with its first service.
        more = {"sse": "standard"} if config.event_source_response_mode else {}
        sse_service.gateway = gateway_of(app, store=sse_service.store, **more)
    sse_service.gateway.add_agent(sse_service.name, sse_service.local)
    router = app.router if isinstance(app, FastAPI) else app
    # History and state of the app are those of its service, unless they have sessions of their own.
    router.__dict__["agentwire_sessions"] = sse_service.runner_config.session_service
    path = (path_config or PathConfig()).agui_main_path
    if not path and isinstance(app, FastAPI):
        path = "/"

    async def endpoint(agui_content: Any, request: Any) -> Response:
        return await sse_service.respond(agui_content, request)

    endpoint.__annotations__ = {"agui_content": RunAgentInput, "request": FastAPIRequest, "return": Response}
    app.add_api_route(path, endpoint, methods=["POST"], response_class=Response)
