"""The queues of a run, as objects with `put`."""

from __future__ import annotations

from typing import Optional

from ..data_model.queue import EventQueue
from ..manager.queue import QueueManager

__all__ = ["QueueHandler"]


class QueueHandler:
    """The queues of a run."""

    def __init__(self, event_queue: Optional[EventQueue] = None) -> None:
        self.event_queue = event_queue or EventQueue()

    def get_adk_queue(self) -> QueueManager:
        """ADK events, which are translated and sent."""
        return QueueManager(self.event_queue.adk_event_queue)

    def get_agui_queue(self) -> QueueManager:
        """AG-UI events, which are sent."""
        return QueueManager(self.event_queue.agui_event_queue)
