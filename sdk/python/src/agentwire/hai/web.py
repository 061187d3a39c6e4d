"""HAI agents in FastAPI and Starlette."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

try:
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response, StreamingResponse
except ImportError as error:
    raise ImportError(
        'the routes of agentwire.hai need FastAPI or Starlette: pip install "agentwire-gateway[fastapi]"'
    ) from error

from pydantic import ValidationError

from .agent import CLOSE_DELAY, translate_sse
from .models import HAIAgentRequest

#: The largest request, in bytes.
MAX_BODY = 10 << 20

HEADERS = {"cache-control": "no-store, no-transform", "x-accel-buffering": "no"}


def hai_response(agent: Any, body: Any, *, close_delay: float = CLOSE_DELAY) -> StreamingResponse:
    """The answer of `agent` as an event stream. `agent` is an agent, or a class or function that makes one."""
    made = agent if hasattr(agent, "run") and not isinstance(agent, type) else agent()
    frames = translate_sse(made, body, close_delay=close_delay)
    return StreamingResponse(frames, media_type="text/event-stream", headers=HEADERS)


def hai_router(agent: Any, *, paths: Sequence[str] = ("/awp", "/chat"), max_body: int = MAX_BODY, close_delay: float = CLOSE_DELAY) -> Any:
    """Routes of `agent`: an `APIRouter` for `app.include_router` if FastAPI is installed, otherwise a Starlette `Router`.

    `agent` is an agent that serves all requests, or a class or function that makes one for each.
    """

    async def chat(request: Request) -> Response:
        raw = bytearray()
        async for chunk in request.stream():
            raw += chunk
            if len(raw) > max_body:
                return _refused(413, "LIMIT_EXCEEDED", f"the body is larger than {max_body} bytes")
        try:
            body = HAIAgentRequest.model_validate(json.loads(raw))
        except ValidationError as error:
            return _refused(400, "BAD_REQUEST", _first_problem(error))
        except (ValueError, RecursionError):
            return _refused(400, "BAD_REQUEST", "the body is not valid JSON")
        return hai_response(agent, body, close_delay=close_delay)

    try:
        from fastapi import APIRouter
    except ImportError:
        from starlette.routing import Route, Router

        return Router(routes=[Route(path, chat, methods=["POST"]) for path in paths])
    router = APIRouter()
    for path in paths:
        # The model is shown in the page of the routes; the body is read above, where its size is limited.
        schema = {"requestBody": {"required": True, "content": {"application/json": {"schema": HAIAgentRequest.model_json_schema()}}}}
        router.add_api_route(path, chat, methods=["POST"], response_class=StreamingResponse, openapi_extra=schema)
    return router


def _refused(status: int, code: str, message: str) -> JSONResponse:
    return JSONResponse({"error": {"code": code, "message": message}}, status_code=status)


def _first_problem(error: ValidationError) -> str:
    problem = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(str(part) for part in problem['loc']) or 'body'}: {problem['msg']}"
