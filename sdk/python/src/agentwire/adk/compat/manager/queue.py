"""A queue of a run."""

from __future__ import annotations

from asyncio import Queue
from typing import Any, Union

from ag_ui.core import BaseEvent
from google.adk.events import Event

from ..tools.async_queue_iterator import AsyncQueueIterator

__all__ = ["QueueManager"]


class QueueManager:
    """A queue of events of a run."""

    def __init__(self, queue: Queue[Any]) -> None:
        self.queue = queue

    async def put(self, event: Union[Event, BaseEvent, None]) -> None:
        """Adds an event; `None` is the end of the queue."""
        await self.queue.put(event)

    def get_iterator(self) -> AsyncQueueIterator:
        """The events up to the end of the queue."""
        return AsyncQueueIterator(self.queue)

    def drain(self) -> list[Any]:
        """The events that there are now."""
        found = []
        while not self.queue.empty():
            found.append(self.queue.get_nowait())
        return [event for event in found if event is not None]
