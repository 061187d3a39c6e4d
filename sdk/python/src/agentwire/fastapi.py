"""One line for FastAPI: an agent at a path of an app or router."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Optional

try:
    from fastapi import APIRouter, FastAPI, Request
    from starlette.responses import Response
except ImportError as error:
    raise ImportError('agentwire.fastapi needs FastAPI: pip install "agentwire-gateway[fastapi]"') from error

from .agents import AGENT_KEYS, AgentLike, agent_of, with_settings
from .bridge import Receive, Send
from .errors import ConfigError
from .gateway import Gateway
from .identity import Caller, Scope

__all__ = ["Handed", "add_agent", "gateway_of"]

if TYPE_CHECKING:
    from .adk.compat.endpoint import register_agui_endpoint as register_agui_endpoint
    from .adk.compat.endpoint import register_agui_history_endpoint as register_agui_history_endpoint
    from .adk.compat.endpoint import register_state_endpoint as register_state_endpoint


def __getattr__(name: str) -> Any:
    if name not in ("register_agui_endpoint", "register_agui_history_endpoint", "register_state_endpoint"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .adk.compat import endpoint

    return getattr(endpoint, name)


#: The settings of an agent; those that the gateway has too are the gateway's.
OF_AGENT = AGENT_KEYS - {"hooks", "identity", "limits", "lock", "routes", "sse"}
#: The routes of an agent by name: method, path below the agent, path in the gateway.
ROUTES = {
    "ag_ui": [("POST", "", "")],
    "hai": [("POST", "/awp", "/awp")],
    "ai_sdk": [("POST", "/api/chat", "/api/chat"), ("GET", "/api/chat/{id}/stream", "/api/chat/{id}/stream")],
    "history": [
        ("GET", "/thread/list", "/thread/list"),
        ("DELETE", "/thread/{id}", "/thread/{id}"),
        ("GET", "/message_snapshot/{id}", "/message_snapshot/{id}"),
    ],
    "state": [
        ("GET", "/state_snapshot/{id}", "/state_snapshot/{id}"),
        ("PATCH", "/state/{id}", "/state/{id}"),
    ],
    "runs": [
        ("GET", "/runs/{run}", "/runs/{run}"),
        ("POST", "/runs/{run}/stop", "/runs/{run}/stop"),
        ("GET", "/runs/{run}/stream", "/runs/{run}/stream"),
        ("GET", "/threads/{id}/pending", "/threads/{id}/pending"),
    ],
}


class Handed(Response):
    """A response that a gateway gives."""

    def __init__(
        self,
        gateway: Gateway,
        path: str,
        *,
        body: Optional[bytes] = None,
        caller: Optional[Caller] = None,
        scope: Optional[Mapping[str, Any]] = None,
    ) -> None:
        super().__init__()
        self._gateway = gateway
        self._path = path
        self._body = body
        self._caller = caller
        self._scope = scope

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._gateway.hand_over(
            scope, receive, send, self._path, body=self._body, caller=self._caller, more=self._scope
        )


def _known_gateway(app: Any) -> Optional[Gateway]:
    router = app.router if isinstance(app, FastAPI) else app
    found: Optional[Gateway] = router.__dict__.get("agentwire")
    return found


def gateway_of(app: Any, **settings: Any) -> Gateway:
    """The gateway of an app or router, which is made with the first agent and lives as long as the app."""
    router = app.router if isinstance(app, FastAPI) else app
    found = _known_gateway(app)
    if found is not None:
        return found
    gateway = Gateway({}, **{"store": "memory:", **settings})
    router.__dict__["agentwire"] = gateway
    if isinstance(app, FastAPI):
        app.state.agentwire = gateway
    before: Callable[[Any], Any] = router.lifespan_context

    @asynccontextmanager
    async def lifespan(owner: Any) -> AsyncIterator[Any]:
        async with gateway.lifespan(), before(owner) as state:
            yield state

    router.lifespan_context = lifespan
    return gateway


def add_agent(
    app: Any,
    agent: AgentLike,
    path: str = "/",
    *,
    name: str = "agent",
    gateway: Optional[Gateway] = None,
    routes: Sequence[str] = ("ag_ui",),
    dependencies: Sequence[Any] = (),
    **settings: Any,
) -> Gateway:
    """Adds an agent to a FastAPI app or router, as ordinary routes at `path`.

    `routes` are those of `ag_ui`, `hai`, `ai_sdk`, `history`, `state` and `runs` that are wanted. All agents of an app
    share one gateway (`app.state.agentwire`), which is started and drained with the app. `settings` are the keys of
    `[agents.NAME]`, and with the first agent those of the gateway, which also has `identity`, `hooks`, `lock`, `limits`
    and `sse`.
    """
    if not isinstance(app, (FastAPI, APIRouter)):
        raise ConfigError(f"an app or router of FastAPI is needed, not {type(app).__name__}", key="app")
    unknown = [route for route in routes if route not in ROUTES]
    if unknown:
        raise ConfigError(f"unknown routes {unknown[0]!r}", key="routes", hint=f"routes: {', '.join(ROUTES)}")
    made = agent_of(name, agent)
    of_agent = {key: settings.pop(key) for key in list(settings) if key in OF_AGENT}
    if of_agent:
        made = with_settings(made, of_agent)
    if settings and (gateway is not None or _known_gateway(app) is not None):
        key = next(iter(settings))
        hint = "settings of the gateway belong to its first agent, or to the Gateway itself"
        raise ConfigError(f"`{key}` cannot be set here", key=key, hint=hint)
    own = gateway if gateway is not None else gateway_of(app, **settings)
    add_routes(app, own, made, path, name, routes, {"dependencies": list(dependencies)})
    return own


def add_routes(
    app: Any,
    gateway: Gateway,
    agent: AgentLike,
    path: str,
    name: str,
    groups: Sequence[str],
    options: Mapping[str, Any],
) -> None:
    """Adds an agent to a gateway and its routes to an app; `options` are those of `add_api_route`."""
    if name in gateway.agents:
        raise ConfigError(f"there is an agent {name!r} already", key="name", hint="give each agent a name")
    gateway.add_agent(name, agent_of(name, agent))
    base = path.rstrip("/")
    for group in groups:
        for method, below, target in ROUTES[group]:
            place = f"{base}{below}" or ("/" if isinstance(app, FastAPI) else "")
            _add_route(app, gateway, method, place, f"/agents/{name}{target}", options)


def _add_route(
    app: Any, gateway: Gateway, method: str, place: str, target: str, options: Mapping[str, Any]
) -> None:
    async def endpoint(request: Request) -> Response:
        path = target
        for key, value in request.path_params.items():
            path = path.replace("{" + key + "}", str(value))
        # FastAPI may have read the body for a dependency.
        body = await request.body() if request.method in ("POST", "PATCH", "PUT") else None
        return Handed(gateway, path, body=body)

    endpoint.__annotations__ = {"request": Request, "return": Response}
    app.add_api_route(place, endpoint, methods=[method], response_class=Response, **options)
