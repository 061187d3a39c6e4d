"""The place of a session."""

from __future__ import annotations

from pydantic import BaseModel

__all__ = ["SessionParameter"]


class SessionParameter(BaseModel):
    """The place of a session."""

    app_name: str
    user_id: str
    session_id: str
