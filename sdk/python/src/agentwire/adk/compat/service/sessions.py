"""The session of a request, for the history and the state."""

from __future__ import annotations

from typing import Any

from fastapi import HTTPException
from starlette.requests import Request

from ....agents import maybe_await
from ..data_model.error import ErrorModel

__all__ = ["SessionsOfRequests", "refused"]


def refused(status: int, error: str, description: str) -> HTTPException:
    """An error response."""
    return HTTPException(status, ErrorModel(error=error, error_description=description).model_dump())


class SessionsOfRequests:
    """Finds sessions by the extractors of a configuration."""

    def __init__(self, config: Any) -> None:
        self.config = config

    async def names(self, request: Request, *, with_session: bool = True) -> dict[str, str]:
        """App, user and session of a request."""
        found = {}
        for name in ("app_name", "user_id", "session_id") if with_session else ("app_name", "user_id"):
            extractor = getattr(self.config, name)
            found[name] = str(await maybe_await(extractor(request)) if callable(extractor) else extractor)
        return found

    async def session(self, request: Request) -> Any:
        """The session of a request; 404 if there is none."""
        session = await self.config.session_service.get_session(**await self.names(request))
        if session is None:
            raise refused(404, "SESSION_NOT_FOUND", "Session not found")
        return session
