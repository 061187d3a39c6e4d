"""The queues of a run."""

from __future__ import annotations

from asyncio import Queue
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["EventQueue"]


class EventQueue(BaseModel):
    """The queues of a run: ADK events and AG-UI events."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    adk_event_queue: Queue[Any] = Field(default_factory=Queue)
    agui_event_queue: Queue[Any] = Field(default_factory=Queue)
