"""A server kit for HAI, the Human Agent Interaction Protocol.

`BaseChatOutput` has the builder functions of the standard, `Agent` and `translate_sse` run an agent, and `hai_router`
serves it with FastAPI or Starlette. Importing this package imports nothing but the standard library: the request
models need pydantic and the routes need Starlette, and both are imported when they are used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .agent import Agent, translate_sse
from .output import BaseChatOutput
from .stream import Message, Stream

if TYPE_CHECKING:
    from .models import HAIAgentRequest as HAIAgentRequest
    from .models import HAIMessage as HAIMessage
    from .web import hai_response as hai_response
    from .web import hai_router as hai_router

__all__ = [
    "Agent",
    "BaseChatOutput",
    "HAIAgentRequest",
    "HAIMessage",
    "Message",
    "Stream",
    "hai_response",
    "hai_router",
    "translate_sse",
]

_LATE = {"HAIMessage": "models", "HAIAgentRequest": "models", "hai_response": "web", "hai_router": "web"}


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f".{_LATE[name]}", __name__), name)
    globals()[name] = value
    return value
