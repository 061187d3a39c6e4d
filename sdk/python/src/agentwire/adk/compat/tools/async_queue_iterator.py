"""A queue as an async iterator."""

from __future__ import annotations

from asyncio import Queue
from typing import Any

__all__ = ["AsyncQueueIterator"]


class AsyncQueueIterator:
    """The items of a queue, up to `None`."""

    def __init__(self, queue: Queue[Any]) -> None:
        self.queue = queue

    def __aiter__(self) -> AsyncQueueIterator:
        return self

    async def __anext__(self) -> Any:
        item = await self.queue.get()
        self.queue.task_done()
        if item is None:
            raise StopAsyncIteration
        return item
