"""`SSEService`: an ADK agent behind the main route, as an agent of a gateway."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncGenerator
from typing import Any, Optional

from ag_ui.core import BaseEvent, RunAgentInput, RunErrorEvent
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from ....agents import maybe_await
from ....fastapi import Handed
from ....gateway import Gateway
from ....hooks import wire
from ....identity import Caller
from ....langgraph import objects
from ..base_abc.handler import BaseInOutHandler
from ..base_abc.sse_service import BaseSSEService, EventRunner
from ..data_model.common import InputInfo
from ..data_model.config import RunnerConfig
from ..data_model.context import ConfigContext, HandlerContext
from ..event.error_event import AGUIErrorEvent
from ..agent import COMPAT_RUN, CompatAgent, CompatRun
from ..pending import answered, pending_calls
from ..tools.shutdown import ShutdownHandler

__all__ = ["SSEService"]

_numbers = itertools.count(1)


class SSEService(BaseSSEService):
    """An ADK agent with extractors, services and handlers.

    `gateway` is the gateway of its runs; by default all services of an app share one, whose store is `store`.
    """

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
        self.session_lock_handler = self.handler_context.session_lock_handler(config_context.session_lock_config)
        self.shutdown_handler = ShutdownHandler()
        self.store = store
        #: The name of the agent in the gateway.
        self.name = f"adk-{next(_numbers)}"
        self._gateway: Optional[Gateway] = None
        self._agent = CompatAgent(self)
        if gateway is not None:
            self.attach(gateway)

    @property
    def gateway(self) -> Gateway:
        """The gateway of its runs."""
        if self._gateway is None:
            self.attach(Gateway({}, store=self.store))
        assert self._gateway is not None
        return self._gateway

    @property
    def has_gateway(self) -> bool:
        """True if the service belongs to a gateway."""
        return self._gateway is not None

    def attach(self, gateway: Gateway) -> None:
        """Makes the service an agent of a gateway."""
        gateway.add_agent(self.name, self._agent)
        self._gateway = gateway

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
        found: Optional[dict[str, Any]] = await self._extracted(extractor, agui_content, request)
        return found

    async def get_runner(
        self, agui_content: RunAgentInput, request: Request
    ) -> tuple[EventRunner, InputInfo, Optional[BaseInOutHandler]]:
        """The run of a request, which has not begun.

        There is no handler in the third place: the gateway calls the handlers of a run, for all its readers at once.
        """
        info = InputInfo(
            agui_content=agui_content,
            request=request,
            app_name=await self.extract_app_name(agui_content, request),
            user_id=await self.extract_user_id(agui_content, request),
            session_id=await self.extract_session_id(agui_content, request),
            initial_state=await self.extract_initial_state(agui_content, request),
        )
        return _Run(self, info), info, None

    async def event_generator(
        self, runner: EventRunner, input_info: InputInfo, inout_handler: Optional[BaseInOutHandler] = None
    ) -> Response:
        """The response with the events of a run."""
        if isinstance(runner, _Run) and inout_handler is None:
            return await runner.response()
        return StreamingResponse(self._encoded(runner, inout_handler), media_type="text/event-stream")

    async def _encoded(
        self, runner: EventRunner, inout_handler: Optional[BaseInOutHandler]
    ) -> AsyncGenerator[str, None]:
        """The frames of a runner of the program's own."""
        try:
            async for event in runner():
                yield await self._frame(event, inout_handler)
        except Exception as error:
            yield await self._frame(AGUIErrorEvent.create_agent_error_event(error), inout_handler)

    async def _frame(self, event: BaseEvent, inout_handler: Optional[BaseInOutHandler]) -> str:
        if inout_handler is not None:
            await maybe_await(inout_handler.output_record(event))
            event = await maybe_await(inout_handler.output_catch_and_change(event))
        try:
            data = wire(event)
        except Exception as error:
            event = AGUIErrorEvent.create_encoding_error_event(error)
            data = wire(event)
        kind = getattr(event.type, "value", event.type)
        name = f"event: {kind}\n" if self.config_context.event_source_response_mode else ""
        return f"{name}data: {data}\n\n"


class _Run:
    """The run of a request: a function that gives its events, or the whole response."""

    def __init__(self, service: SSEService, info: InputInfo) -> None:
        self._service = service
        self._info = info

    async def __call__(self) -> AsyncGenerator[BaseEvent, None]:
        body, error = await self._body()
        if error is not None:
            yield await self._recorded(error)
            return
        service = self._service
        scope = {COMPAT_RUN: CompatRun(self._info)}
        handle = service.gateway.start_run(json.loads(body), service.name, self._caller(), scope=scope)
        async for event in handle:
            yield objects(json.dumps(event).encode())[0]

    async def response(self) -> Response:
        """The response that the gateway gives."""
        body, error = await self._body()
        service = self._service
        if error is not None:
            event = await self._recorded(error)

            async def single() -> AsyncGenerator[str, None]:
                yield await service._frame(event, None)

            return StreamingResponse(single(), media_type="text/event-stream")
        scope = {COMPAT_RUN: CompatRun(self._info)}
        return Handed(service.gateway, f"/agents/{service.name}", body=body, caller=self._caller(), scope=scope)

    def _caller(self) -> Caller:
        return Caller(self._info.user_id, self._info.app_name, self._info.session_id)

    async def _body(self) -> tuple[bytes, Optional[RunErrorEvent]]:
        """The input of the gateway, or the reason why there is no run."""
        info, config = self._info, self._service.config_context
        pending = await pending_calls(self._service.runner_config.session_service, info)
        if config.convert_run_agent_input is not None:
            info.agui_content = await maybe_await(config.convert_run_agent_input(info.agui_content, dict(pending)))
        body = json.loads(wire(info.agui_content))
        if info.initial_state is not None:
            body["state"] = info.initial_state
        error = answered(body, pending, info.session_id)
        return json.dumps(body).encode(), error

    async def _recorded(self, event: RunErrorEvent) -> Any:
        """An error before the run, as the in-out handler wants it."""
        make = self._service.handler_context.in_out_record_handler
        if make is None:
            return event
        handler = make()
        await maybe_await(handler.input_record(self._info))
        await maybe_await(handler.output_record(event))
        return await maybe_await(handler.output_catch_and_change(event))
