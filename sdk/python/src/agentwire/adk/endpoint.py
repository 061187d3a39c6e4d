"""The names of ag_ui_adk: `ADKAgent`, `add_adk_fastapi_endpoint` and `create_adk_app`."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Optional, Union

from ag_ui.core import BaseEvent, RunAgentInput
from fastapi import FastAPI, Request
from starlette.responses import JSONResponse, Response

from ..agents import complete_input, maybe_await
from ..fastapi import Handed, gateway_of
from ..gateway import Gateway
from ..hooks import wire
from ..identity import Caller
from ..langgraph import objects
from ..translator import input_text, new_ids
from .local import AdkLocal, is_app

if TYPE_CHECKING:
    from ..bridge import Call
    from ..translator import Input

__all__ = [
    "ADKAgent",
    "AgentResolver",
    "add_adk_fastapi_endpoint",
    "create_adk_app",
    "make_extract_headers",
    "resolve_agent_from_message_history",
]

_log = logging.getLogger("agentwire.adk")
#: The key of the state by which ag_ui_adk finds the session of a thread.
THREAD_KEY = "_ag_ui_thread_id"
#: The member of the ASGI scope of a request whose caller is that of `ADKAgent`.
IS_NAMED = "agentwire.adk.is_named"
#: Prefixes of keys that a client may not write.
SCOPED = ("app:", "user:")
#: Arguments of ag_ui_adk without an effect here, with their defaults there and the reason.
IGNORED: dict[str, tuple[Any, str]] = {
    "session_timeout_seconds": (1200, "sessions are not swept; `retention` of the gateway is for its own log"),
    "session_manager": (None, "give `session_service`"),
    "tool_timeout_seconds": (300, "a call waits for its result as long as the thread exists"),
    "max_concurrent_executions": (10, "`limits.runs` of the gateway"),
    "cleanup_interval_seconds": (300, "sessions are not swept"),
    "max_sessions_per_user": (None, "`retention.threads_per_user` of the gateway"),
    "delete_session_on_cleanup": (True, "sessions are not swept"),
    "save_session_to_memory_on_cleanup": (True, "sessions are not swept"),
    "hitl_max_wait_seconds": (None, "a call waits for its result as long as the thread exists"),
    "predict_state": (None, "a hook can add STATE_DELTA events"),
    "emit_messages_snapshot": (False, "reconnects and the history give the conversation"),
    "streaming_function_call_arguments": (False, "arguments are always sent as they come"),
    "use_thread_id_as_session_id": (False, "the session of a new thread always has its id"),
    "allow_scoped_state_keys": (False, "`extract_state_from_request` can set them"),
    "a2ui": (None, "its tools work as they are"),
    "emit_interrupt_outcome": (False, "clients of AG-UI 1 always get the outcome"),
    "seed_first_run_history": (True, "the session of a new thread gets the conversation of the request"),
    "plugin_close_timeout": (5.0, "plugins are closed with the runner"),
}


class ADKAgent(AdkLocal):
    """An ADK agent or `App` with the arguments of ag_ui_adk.

    It is an agent of a gateway, and `run` gives the events of a run without HTTP.
    """

    def __init__(
        self,
        adk_agent: Any,
        app_name: Optional[str] = None,
        session_timeout_seconds: Optional[int] = 1200,
        app_name_extractor: Optional[Callable[[RunAgentInput], str]] = None,
        user_id: Optional[str] = None,
        user_id_extractor: Optional[Callable[[RunAgentInput], str]] = None,
        session_service: Any = None,
        session_manager: Any = None,
        artifact_service: Any = None,
        memory_service: Any = None,
        credential_service: Any = None,
        run_config_factory: Optional[Callable[[RunAgentInput], Any]] = None,
        use_in_memory_services: bool = True,
        execution_timeout_seconds: int = 600,
        tool_timeout_seconds: int = 300,
        max_concurrent_executions: int = 10,
        cleanup_interval_seconds: int = 300,
        max_sessions_per_user: Optional[int] = None,
        delete_session_on_cleanup: bool = True,
        save_session_to_memory_on_cleanup: bool = True,
        hitl_max_wait_seconds: Optional[int] = None,
        predict_state: Optional[Iterable[Any]] = None,
        emit_messages_snapshot: bool = False,
        streaming_function_call_arguments: bool = False,
        use_thread_id_as_session_id: bool = False,
        allow_scoped_state_keys: bool = False,
        capabilities: Optional[dict[str, Any]] = None,
        a2ui: Optional[dict[str, Any]] = None,
        emit_interrupt_outcome: bool = False,
        seed_first_run_history: bool = True,
        *,
        plugin_close_timeout: float = 5.0,
        **settings: Any,
    ) -> None:
        given = locals()
        for name, (default, reason) in IGNORED.items():
            if given[name] != default:
                _log.warning("ADKAgent(%s=…) has no effect: %s", name, reason)
        if app_name and app_name_extractor:
            raise ValueError("Cannot specify both 'app_name' and 'app_name_extractor'")
        if user_id and user_id_extractor:
            raise ValueError("Cannot specify both 'user_id' and 'user_id_extractor'")
        timeouts = {"total": f"{execution_timeout_seconds}s", **settings.pop("timeouts", {})}
        if capabilities is not None:
            settings["capabilities"] = capabilities
        factory = run_config_factory
        super().__init__(
            adk_agent,
            app_name=app_name or getattr(adk_agent, "name", None),
            run_config=None if factory is None else lambda request: factory(request.ag_ui),
            use_in_memory_services=use_in_memory_services,
            services={
                "session_service": session_service,
                "artifact_service": artifact_service,
                "memory_service": memory_service,
                "credential_service": credential_service,
            },
            timeouts=timeouts,
            **settings,
        )
        self._app_name_extractor = app_name_extractor
        self._static_user_id = user_id
        self._user_id_extractor = user_id_extractor
        self._capabilities = capabilities
        self._gateway: Optional[Gateway] = None

    @classmethod
    def from_app(cls, app: Any, user_id: Optional[str] = None, **options: Any) -> ADKAgent:
        """An agent of an ADK `App`, with its name and plugins. The options are those of the class."""
        if not is_app(app):
            raise TypeError(f"an App is needed, not {type(app).__name__}")
        return cls(app, app_name=app.name, user_id=user_id, **options)

    def get_capabilities(self) -> Optional[dict[str, Any]]:
        """The capabilities that were given."""
        return self._capabilities

    def caller(self, input: RunAgentInput) -> Caller:
        """User and app of a request."""
        extractor = self._user_id_extractor
        user = self._static_user_id or (extractor(input) if extractor else f"thread_user_{input.thread_id}")
        app = self._app_name_extractor(input) if self._app_name_extractor else self.app_name
        return Caller(user, app)

    def place(self, call: Call, app: str, user: str) -> tuple[str, str]:
        if call.record is not None and call.record.scope.get(IS_NAMED):
            return call.payload["tenant"], call.payload["user"]
        named = self.caller(call.run_request().ag_ui)
        is_chosen = self._static_user_id or self._user_id_extractor
        return named.tenant, named.user if is_chosen else user

    async def session_id(self, app: str, user: str, session: str) -> str:
        sessions = self.services["session_service"]
        if await sessions.get_session(app_name=app, user_id=user, session_id=session) is None:
            for other in (await sessions.list_sessions(app_name=app, user_id=user)).sessions:
                if (other.state or {}).get(THREAD_KEY) == session:
                    return str(other.id)
        return session

    async def run(self, input: Input) -> AsyncGenerator[BaseEvent, None]:
        """The events of a run, as objects of `ag_ui.core`."""
        value = complete_input(json.loads(input_text(input, new_ids())))
        if self._gateway is None:
            self._gateway = Gateway({"agent": self}, store="memory:", signals=False)
            await self._gateway.start()
        caller = self.caller(RunAgentInput.model_validate(value))
        handle = self._gateway.start_run(value, "agent", caller, scope={IS_NAMED: True})
        async for event in handle:
            yield objects(json.dumps(event).encode())[0]

    async def close(self) -> None:
        """Ends the runs that `run` started."""
        gateway, self._gateway = self._gateway, None
        if gateway is not None:
            await gateway.drain()


AgentResolver = Callable[[Request, RunAgentInput], Awaitable[Optional[ADKAgent]]]
StateExtractor = Callable[[Request, RunAgentInput], Any]


def resolve_agent_from_message_history(
    messages: Sequence[Any], agent_registry: Mapping[str, ADKAgent]
) -> Optional[ADKAgent]:
    """The agent whose call the last message answers: the assistant message with the call has its name."""
    if not messages or messages[-1].role != "tool":
        return None
    last = messages[-1]
    for message in reversed(messages[:-1]):
        calls = getattr(message, "tool_calls", None) or []
        if any(call.id == last.tool_call_id for call in calls):
            return agent_registry.get(message.name) if message.name else None
    return None


def make_extract_headers(headers_to_extract: list[str]) -> StateExtractor:
    """A function that puts request headers into `state["headers"]`: `x-user-id` as `user_id`."""

    async def extract(request: Request, input_data: RunAgentInput) -> dict[str, Any]:
        found = {}
        for name in headers_to_extract:
            value = request.headers.get(name)
            if value is not None:
                key = name.lower()
                found[key.removeprefix("x-").replace("-", "_")] = value
        if not found:
            return {}
        state = input_data.state if isinstance(input_data.state, dict) else {}
        own = state.get("headers")
        return {**state, "headers": {**found, **(own if isinstance(own, dict) else {})}}

    return extract


def add_adk_fastapi_endpoint(
    app: Any,
    agent: Union[ADKAgent, Any],
    path: str = "/",
    extract_headers: Optional[list[str]] = None,
    extract_state_from_request: Optional[StateExtractor] = None,
    agent_resolver: Optional[AgentResolver] = None,
    **kwargs: Any,
) -> None:
    """Adds an agent to a FastAPI app or router: `POST {path}`, `GET {path}/capabilities`, `POST /agents/state`.

    Further arguments are those of the route of `POST`, such as `dependencies` or `tags`.
    """
    if extract_headers is not None:
        if extract_state_from_request is not None:
            raise ValueError(
                "Cannot use both 'extract_headers' and 'extract_state_from_request' parameters together."
            )
        warnings.warn(
            "`extract_headers` is deprecated: use extract_state_from_request=make_extract_headers(…)",
            DeprecationWarning,
            stacklevel=2,
        )
        extract_state_from_request = make_extract_headers(extract_headers)
    first = agent if isinstance(agent, ADKAgent) else ADKAgent(agent)
    endpoint = _Endpoint(gateway_of(app), first, extract_state_from_request, agent_resolver)

    async def run(input_data: Any, request: Any) -> Response:
        return await endpoint.run(input_data, request)

    async def capabilities(request: Any) -> Response:
        chosen, _ = await endpoint.chosen(_empty("capabilities"), request)
        return JSONResponse(chosen.get_capabilities() or {})

    async def state(body: Any, request: Any) -> Response:
        return await endpoint.state(body, request)

    run.__annotations__ = {"input_data": RunAgentInput, "request": Request, "return": Response}
    capabilities.__annotations__ = {"request": Request, "return": Response}
    state.__annotations__ = {"body": dict[str, Any], "request": Request, "return": Response}
    place = path or ("/" if isinstance(app, FastAPI) else "")
    app.add_api_route(place, run, methods=["POST"], response_class=Response, **kwargs)
    app.add_api_route(f"{path.rstrip('/')}/capabilities", capabilities, methods=["GET"], response_class=Response)
    app.add_api_route("/agents/state", state, methods=["POST"], response_class=Response)


def create_adk_app(
    agent: Union[ADKAgent, Any],
    path: str = "/",
    extract_headers: Optional[list[str]] = None,
    extract_state_from_request: Optional[StateExtractor] = None,
    agent_resolver: Optional[AgentResolver] = None,
    **kwargs: Any,
) -> FastAPI:
    """A FastAPI app with an agent."""
    app = FastAPI(title="ADK Middleware for AG-UI Protocol")
    add_adk_fastapi_endpoint(
        app, agent, path, extract_headers, extract_state_from_request, agent_resolver, **kwargs
    )
    return app


def _empty(thread: str) -> RunAgentInput:
    return RunAgentInput(
        thread_id=thread, run_id=thread, state={}, messages=[], tools=[], context=[], forwarded_props=None
    )


class _Endpoint:
    """The routes of an agent, and of those that a resolver names in its place."""

    def __init__(
        self,
        gateway: Gateway,
        first: ADKAgent,
        extract: Optional[StateExtractor],
        resolver: Optional[AgentResolver],
    ) -> None:
        self._gateway = gateway
        self._first = first
        self._extract = extract
        self._resolver = resolver
        self._names: dict[int, str] = {}
        self._name(first)

    def _name(self, agent: ADKAgent) -> str:
        """The name of an agent in the gateway; all of a route share their threads."""
        if id(agent) not in self._names:
            name = f"adk-agent-{len(self._gateway.agents) + 1}"
            if self._names:
                agent.settings.setdefault("threads", self._names[id(self._first)])
            self._gateway.add_agent(name, agent)
            self._names[id(agent)] = name
        return self._names[id(agent)]

    async def chosen(self, input: RunAgentInput, request: Request) -> tuple[ADKAgent, RunAgentInput]:
        """The agent of a request, and its input with the state of the request."""
        state = input.state if isinstance(input.state, dict) else {}
        own = {key: value for key, value in state.items() if not key.startswith(SCOPED)}
        if len(own) < len(state):
            _log.warning("dropped %d keys for the app or user from the client's state", len(state) - len(own))
        input = input.model_copy(update={"state": own})
        if self._extract is not None:
            more = await maybe_await(self._extract(request, input))
            input = input.model_copy(update={"state": {**own, **(more or {})}})
        agent = await maybe_await(self._resolver(request, input)) if self._resolver is not None else None
        if agent is not None and not isinstance(agent, ADKAgent):
            raise TypeError("agent_resolver must return an ADKAgent instance or None")
        return agent or self._first, input

    async def run(self, input: RunAgentInput, request: Request) -> Response:
        agent, input = await self.chosen(input, request)
        return Handed(
            self._gateway,
            f"/agents/{self._name(agent)}",
            body=wire(input).encode(),
            caller=agent.caller(input),
            scope={IS_NAMED: True},
        )

    async def state(self, body: Mapping[str, Any], request: Request) -> Response:
        """State and messages of a thread, as ag_ui_adk's experimental route."""
        from .compat.service.history_service import messages_of

        thread = str(body.get("threadId", ""))
        agent, input = await self.chosen(_empty(thread), request)
        caller = agent.caller(input)
        app, user = caller.tenant, caller.user
        if not agent._static_user_id and not agent._user_id_extractor:
            user = str((input.state or {}).get("user_id") or body.get("userId") or user)
        session = await agent.services["session_service"].get_session(
            app_name=app, user_id=user, session_id=await agent.session_id(app, user, thread)
        )
        messages = [] if session is None else await messages_of(session)
        found = {} if session is None else dict(session.state)
        return JSONResponse(
            {"threadId": thread, "threadExists": session is not None, "state": found, "messages": messages}
        )
