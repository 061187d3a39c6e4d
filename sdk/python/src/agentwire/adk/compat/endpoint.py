"""The routes of the services in an app or router of FastAPI."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Optional

from ag_ui.core import RunAgentInput
from fastapi import FastAPI, HTTPException, Request
from starlette.responses import Response

from ...errors import ConfigError, Failure
from ...fastapi import ROUTES, Handed, gateway_of
from ...hooks import wire
from ...identity import Caller
from .base_abc.sse_service import BaseSSEService
from .data_model.config import HistoryPathConfig, PathConfig, StatePathConfig
from .data_model.error import ErrorModel
from .service.history_service import HistoryService
from .service.sessions import SessionsOfRequests
from .service.sse_service import SSEService
from .service.state_service import StateService
from .tools.shutdown import ShutdownHandler

__all__ = ["register_agui_endpoint", "register_agui_history_endpoint", "register_state_endpoint"]

_log = logging.getLogger("agentwire.adk")


@asynccontextmanager
async def _answered() -> AsyncIterator[None]:
    """Exceptions of the program as error responses, with their text in the log only."""
    try:
        yield
    except (HTTPException, Failure):
        raise
    except Exception as error:
        _log.exception("a request failed")
        detail = ErrorModel(error="Internal Server Error.", error_description="the reason is in the log")
        raise HTTPException(500, detail.model_dump()) from error


def _router(app: Any) -> Any:
    return app.router if isinstance(app, FastAPI) else app


def _place(app: Any, path: str) -> str:
    """The path of a route; the root of an app is `/`."""
    return path or ("/" if isinstance(app, FastAPI) else "")


def _add(app: Any, path: str, method: str, function: Any, **types: Any) -> None:
    function.__annotations__ = {"request": Request, "return": Any, **types}
    app.add_api_route(_place(app, path), function, methods=[method])


def register_agui_endpoint(
    app: Any,
    sse_service: BaseSSEService,
    path_config: Optional[PathConfig] = None,
    *,
    routes: Sequence[str] = (),
) -> None:
    """Adds the main route of a service to an app or router of FastAPI.

    `routes` are those of other protocols and of the gateway that are wanted below the same path, for the sender that the
    extractors name: `hai` (`/awp`), `ai_sdk` (`/api/chat`), `runs`.
    """
    path = (path_config or PathConfig()).agui_main_path
    if isinstance(sse_service, SSEService):
        if not sse_service.has_gateway:
            sse_service.attach(gateway_of(app, store=sse_service.store))
            _close_with(app)
        # History and state of the app are those of its service, unless they have sessions of their own.
        owner = _router(app).__dict__
        owner["agentwire_sessions"] = sse_service.runner_config.session_service
        for service in owner.pop("agentwire_waiting", []):
            _share(app, service)

    async def run(agui_content: Any, request: Any) -> Response:
        async with _answered():
            return await sse_service.event_generator(*await sse_service.get_runner(agui_content, request))

    run.__annotations__ = {"agui_content": RunAgentInput, "request": Request, "return": Response}
    app.add_api_route(_place(app, path), run, methods=["POST"], response_class=Response)
    for group in routes:
        if group not in ("hai", "ai_sdk", "runs") or not isinstance(sse_service, SSEService):
            raise ConfigError(f"unknown routes {group!r}", key="routes", hint="routes: hai, ai_sdk, runs")
        for method, below, target in ROUTES[group]:
            _add_other(app, sse_service, method, f"{path.rstrip('/')}{below}", target)


def _add_other(app: Any, service: SSEService, method: str, place: str, target: str) -> None:
    """A route of another protocol, for the caller that the extractors name."""

    async def other(request: Any) -> Response:
        async with _answered():
            body = await request.body()
            content = _content(body, request.path_params)
            app_name = await service.extract_app_name(content, request)
            caller = Caller(await service.extract_user_id(content, request), app_name)
            path = f"/agents/{service.name}{target}"
            for key, value in request.path_params.items():
                path = path.replace("{" + key + "}", str(value))
            return Handed(service.gateway, path, body=body if method == "POST" else None, caller=caller)

    _add(app, place, method, other, **{"return": Response})


def _content(body: bytes, path_params: Any) -> RunAgentInput:
    """The input that the extractors get for a request of another protocol."""
    try:
        value = json.loads(body or b"{}")
    except ValueError:
        value = {}
    value = value if isinstance(value, dict) else {}
    thread = value.get("threadId") or value.get("id") or path_params.get("id") or ""
    return RunAgentInput(
        thread_id=str(thread),
        run_id=str(value.get("runId") or ""),
        state={},
        messages=[],
        tools=[],
        context=[],
        forwarded_props={},
    )


def _close_with(app: Any) -> None:
    """Calls the functions of `ShutdownHandler` at the end of an app, once for each app."""
    router = _router(app)
    if router.__dict__.get("agentwire_shutdown"):
        return
    router.__dict__["agentwire_shutdown"] = True
    before = router.lifespan_context

    @asynccontextmanager
    async def lifespan(owner: Any) -> AsyncIterator[Any]:
        try:
            async with before(owner) as state:
                yield state
        finally:
            await ShutdownHandler().close()

    router.lifespan_context = lifespan


def _share(app: Any, service: SessionsOfRequests) -> None:
    """The sessions of the app's own service, if the configuration has none of its own."""
    if "session_service" in service.config.model_fields_set:
        return
    owner = _router(app).__dict__
    shared = owner.get("agentwire_sessions")
    if shared is not None:
        service.config.session_service = shared
    else:
        # The service of the app may be registered after those of its history and state.
        owner.setdefault("agentwire_waiting", []).append(service)


def register_agui_history_endpoint(
    app: Any, history_service: HistoryService, path_config: Optional[HistoryPathConfig] = None
) -> None:
    """Adds the routes of the history."""
    paths = path_config or HistoryPathConfig()
    _share(app, history_service)

    async def threads(request: Any) -> Any:
        async with _answered():
            return await history_service.list_threads(request)

    async def delete(request: Any) -> Any:
        async with _answered():
            return await history_service.delete_thread(request)

    async def messages(request: Any) -> Any:
        async with _answered():
            return json.loads(wire(await history_service.get_message_snapshot(request)))

    _add(app, paths.agui_thread_list_path, "GET", threads)
    _add(app, paths.agui_thread_delete_path, "DELETE", delete)
    _add(app, paths.agui_message_snapshot_path, "GET", messages)


def register_state_endpoint(
    app: Any, state_service: StateService, path_config: Optional[StatePathConfig] = None
) -> None:
    """Adds the routes of the state."""
    paths = path_config or StatePathConfig()
    _share(app, state_service)

    async def snapshot(request: Any) -> Any:
        async with _answered():
            return json.loads(wire(await state_service.get_state_snapshot(request)))

    async def patch(request: Any, state_patch: Any) -> Any:
        async with _answered():
            return await state_service.patch_state(request, state_patch)

    _add(app, paths.agui_state_snapshot_path, "GET", snapshot)
    _add(app, paths.agui_patch_state_path, "PATCH", patch, state_patch=list[dict[str, Any]])
