"""The gateway beside a Django app: uvicorn django_asgi:app

Paths below `/ai` are the gateway's, all others are Django's.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any

import agentwire
import django  # type: ignore[import-untyped]
from django.conf import settings  # type: ignore[import-untyped]
from django.core.asgi import get_asgi_application  # type: ignore[import-untyped]
from django.http import HttpRequest, HttpResponse  # type: ignore[import-untyped]
from django.urls import path  # type: ignore[import-untyped]

if not settings.configured:
    settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["127.0.0.1", "localhost"], SECRET_KEY="for this example")
    django.setup()


def hello(request: HttpRequest) -> HttpResponse:
    """A view of Django."""
    return HttpResponse(b"hello from Django")


urlpatterns = [path("hello", hello)]


@agentwire.agent
async def echo(request: agentwire.RunRequest) -> AsyncIterator[str]:
    """Repeats the question."""
    yield f"You said {request.user_text()}"


gateway = agentwire.Gateway({"echo": echo}, store="memory:")
site = get_asgi_application()

Scope = MutableMapping[str, Any]


async def app(
    scope: Scope,
    receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
    send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
) -> None:
    """Sends each request to its app; the gateway's life is that of the server."""
    if scope["type"] == "lifespan":
        await gateway(scope, receive, send)
    elif scope["path"] == "/ai" or scope["path"].startswith("/ai/"):
        await gateway({**scope, "root_path": "/ai"}, receive, send)
    else:
        await site(scope, receive, send)
