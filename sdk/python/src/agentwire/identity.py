"""Identity: the sender of a request."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Optional, Union
from urllib.parse import parse_qsl

from .errors import Failure, Refused

__all__ = ["Caller", "IdentityFn", "RequestInfo"]

#: Longest body that an identity function gets.
Scope = MutableMapping[str, Any]


@dataclass(frozen=True)
class Caller:
    """The sender of a request. `thread` replaces the thread that the request names."""

    user: str = "default-user"
    tenant: str = "default"
    thread: Optional[str] = None


@dataclass
class RequestInfo:
    """A request, before anything is done for it."""

    method: str
    path: str
    #: Names in lower case; of a header that is there twice, the last value.
    headers: Mapping[str, str]
    #: The parameters of the query.
    query: Mapping[str, str]
    body: bytes = b""
    #: The parameters of the route's path.
    path_params: Mapping[str, str] = field(default_factory=dict)
    #: The name of the agent; empty for routes of the server.
    agent: str = ""
    #: The group of the route: `main`, `runs`, `history`, `state` or `server`.
    part: str = "main"
    #: The ASGI scope; empty for a request without HTTP.
    scope: Scope = field(default_factory=dict)

    @cached_property
    def json(self) -> Any:
        """The body, parsed; `None` if it is not JSON."""
        try:
            return json.loads(self.body)
        except ValueError:
            return None

    @cached_property
    def input(self) -> Optional[dict[str, Any]]:
        """The AG-UI input of a request that starts a run."""
        found = self.json
        is_input = isinstance(found, dict) and ("threadId" in found or "messages" in found)
        return found if is_input else None

    @cached_property
    def request(self) -> Any:
        """The same as a `starlette.requests.Request`, whose body can be read."""
        try:
            from starlette.requests import Request
        except ImportError as error:
            raise ImportError('a Starlette request needs FastAPI: pip install "agentwire-gateway[fastapi]"') from error
        body = self.body

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        scope = {**self.scope, "path_params": dict(self.path_params)} if self.scope else _scope(self)
        return Request(scope, receive)


def _scope(info: RequestInfo) -> dict[str, Any]:
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in info.headers.items()]
    return {
        "type": "http",
        "method": info.method,
        "path": info.path,
        "query_string": b"",
        "headers": headers,
        "path_params": dict(info.path_params),
    }


def info_of(scope: Scope, path: str) -> RequestInfo:
    """The request of a scope, without its body."""
    headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope.get("headers", ())}
    query = scope.get("query_string", b"").decode("latin-1")
    return RequestInfo(
        method=scope.get("method", "GET"),
        path=path,
        headers=headers,
        query=dict(parse_qsl(query, keep_blank_values=True)),
        scope=scope,
    )


IdentityFn = Callable[[RequestInfo], Union[Caller, str, None, Awaitable[Union[Caller, str, None]]]]


def caller_of(found: Any) -> Caller:
    """The caller that an identity function gave."""
    if found is None:
        raise Refused("the request names no user", code="NO_IDENTITY", status=401)
    if isinstance(found, str):
        return Caller(found)
    if isinstance(found, Caller):
        return found
    raise TypeError(f"an identity function gives a Caller, a str or None, not {type(found).__name__}")


def refusal(error: BaseException) -> Optional[Failure]:
    """The failure that an exception stands for, if it may be told: one of agentwire, or an HTTP exception."""
    if isinstance(error, Failure):
        return error
    status, detail = getattr(error, "status_code", None), getattr(error, "detail", None)
    if isinstance(status, int) and 400 <= status < 600:
        code = {400: "BAD_REQUEST", 401: "NO_IDENTITY", 403: "FORBIDDEN"}.get(status, "HOOK_REFUSED")
        return Refused(str(detail) if detail is not None else "refused", code=code, status=status)
    return None
