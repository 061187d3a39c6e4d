"""The request of a run, and the patience of the session lock."""

from __future__ import annotations

from typing import Any, Optional

from ag_ui.core import RunAgentInput
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request

from ..handler.queue import QueueHandler

__all__ = ["InputInfo", "SessionLockConfig"]


class SessionLockConfig(BaseModel):
    """The patience of a run whose thread another one has."""

    #: Seconds after which a lock of a lost run is free. The gateway's own lease needs no such limit.
    lock_timeout: Optional[int] = 300
    lock_retry_times: int = 3
    lock_retry_interval: float = 10.0


class InputInfo(BaseModel):
    """The request of a run."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    agui_content: RunAgentInput
    request: Request
    app_name: str
    user_id: str
    session_id: str
    initial_state: Optional[dict[str, Any]] = None
    #: `event_queue.get_agui_queue().put(event)` sends an event to the client.
    event_queue: QueueHandler = Field(default_factory=QueueHandler)
