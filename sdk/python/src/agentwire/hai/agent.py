"""Agents of the standard's sample, and their runs as event streams."""

from __future__ import annotations

import asyncio
import inspect
import logging
import queue
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextvars import ContextVar, copy_context
from functools import wraps
from typing import Any, Optional

from .frame import frame, parsed
from .output import BaseChatOutput
from .stream import SINK, Stream, failure

logger = logging.getLogger("agentwire.hai")

#: The standard closes a stream this long after its last event, so that the client has read it.
CLOSE_DELAY = 0.2

#: Frames of an agent that wait for the client. The agent waits while it is full.
_WAITING_FRAMES = 64

_BODY: ContextVar[Any] = ContextVar("agentwire.hai.body", default=None)
_END: Any = object()


class Agent:
    """Base class of agents.

    `run` is an async generator, a generator or a coroutine that writes to a `Stream`. It yields dicts or frames of
    `self.outputer`.
    """

    agent_name = "Agent"
    #: The language model of the agent: set by the subclass.
    llm: Any = None

    def __init__(self, agent_name: str = "Agent", outputer: Optional[BaseChatOutput] = None) -> None:
        self.agent_name = agent_name
        self.outputer = BaseChatOutput() if outputer is None else outputer

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "run" in cls.__dict__:
            cls.run = _with_body(cls.__dict__["run"])  # type: ignore[method-assign]

    def run(self, body: Any) -> Any:
        """The answer to a request."""
        raise NotImplementedError(f"{type(self).__name__} has no run")

    def stream(self, body: Any = None, **options: Any) -> Stream:
        """A stream with the builder of this agent."""
        return Stream(body if body is not None else _BODY.get(), outputer=self.outputer, **options)

    def get_agent_messages(self) -> list[dict[str, Any]]:
        """The messages of the current request, as language models take them: `role` and `content`."""
        messages = _member(_BODY.get(), "messages") or []
        return [{"role": _member(message, "role"), "content": _content(message)} for message in messages]


async def translate_sse(agent: Any, body: Any, *, close_delay: float = CLOSE_DELAY) -> AsyncIterator[str]:
    """The frames of a run of `agent`.

    If the agent raises, the last frame is RUN_ERROR, and the exception is raised again. If the client leaves, the
    agent's generator is closed.
    """
    is_ended = False
    source = _frames(agent, body)
    try:
        async for text in source:
            is_ended = is_ended or _is_ending(text)
            yield text
    except asyncio.CancelledError:
        logger.info("the stream was cancelled: the client has probably disconnected")
        raise
    except Exception as error:
        logger.error("the agent failed: %s", type(error).__name__, exc_info=error)
        if not is_ended:
            yield frame(failure(_outputer(agent), error))
        raise
    finally:
        await source.aclose()  # type: ignore[attr-defined]
        await asyncio.sleep(close_delay)


async def _frames(agent: Any, body: Any) -> AsyncIterator[str]:
    outputer = _outputer(agent)
    response = agent.run(body)
    if inspect.iscoroutine(response):
        async for text in _pushed(response):
            yield text
        return
    if inspect.isawaitable(response):
        response = await response
    if hasattr(response, "__aiter__"):
        items = response.__aiter__()
        try:
            async for item in items:
                yield outputer.build_sse_data(item)
        finally:
            close = getattr(items, "aclose", None)
            if close is not None:
                await close()
    elif response is not None:
        async for item in _in_thread(iter(response)):
            yield outputer.build_sse_data(item)


async def _in_thread(items: Iterator[Any]) -> AsyncIterator[Any]:
    """A generator that blocks, without blocking the loop."""
    context = copy_context()

    def following() -> Any:
        return next(items, _END)

    try:
        while (item := await asyncio.to_thread(context.run, following)) is not _END:
            yield item
    finally:
        close = getattr(items, "close", None)
        if close is not None:
            try:
                close()
            except ValueError:
                pass  # It is running in its thread, and ends there.


async def _pushed(work: Any) -> AsyncIterator[str]:
    """The frames that a coroutine writes to its `Stream`."""
    frames: asyncio.Queue[Any] = asyncio.Queue(_WAITING_FRAMES)

    async def run() -> None:
        SINK.set(frames.put)
        try:
            await work
        finally:
            # The reader may be gone; it needs no end then.
            if frames.full():
                await asyncio.sleep(0)
            await frames.put(_END)

    task = asyncio.ensure_future(run())
    try:
        while (text := await frames.get()) is not _END:
            yield text
        await task
    finally:
        if not task.done():
            task.cancel()
            while not frames.empty():
                frames.get_nowait()
            await asyncio.wait([task])


def _with_body(run: Any) -> Any:
    """`run`, which keeps its request for `get_agent_messages`."""

    @wraps(run)
    def wrapper(self: Any, body: Any, *args: Any, **kwargs: Any) -> Any:
        # Every request has a context of its own.
        _BODY.set(body)
        items = run(self, body, *args, **kwargs)
        return _Run(items) if inspect.isasyncgen(items) else items

    return wrapper


class _Run:
    """The items of an async generator; a plain `for` gives the events as dicts.

    The standard's own `translate_sse` reads an async generator with a plain `for` and serializes what it gets. The
    generator then runs in a loop of its own, in a thread.
    """

    def __init__(self, items: Any) -> None:
        self._items = items
        self.aclose = items.aclose
        self.asend = items.asend
        self.athrow = items.athrow

    def __aiter__(self) -> Any:
        return self._items.__aiter__()

    def __anext__(self) -> Any:
        return self._items.__anext__()

    def __iter__(self) -> Iterator[Any]:
        ready: queue.Queue[tuple[bool, Any]] = queue.Queue(_WAITING_FRAMES)
        left = threading.Event()

        async def read() -> None:
            async for item in self._items:
                ready.put((False, item))
                if left.is_set():
                    await self._items.aclose()
                    return

        def work() -> None:
            try:
                asyncio.run(read())
            except BaseException as error:  # Raised again where it is read.
                ready.put((True, error))
            else:
                ready.put((True, None))

        thread = threading.Thread(target=copy_context().run, args=(work,), daemon=True)
        thread.start()
        try:
            while True:
                is_last, item = ready.get()
                if is_last:
                    if item is not None:
                        raise item
                    return
                event = parsed(item) if isinstance(item, str) else None
                yield item if event is None else event
        finally:
            left.set()
            while thread.is_alive():
                try:
                    ready.get(timeout=0.05)
                except queue.Empty:
                    pass


def _outputer(agent: Any) -> BaseChatOutput:
    outputer = getattr(agent, "outputer", None)
    return outputer if isinstance(outputer, BaseChatOutput) else BaseChatOutput()


def _is_ending(text: str) -> bool:
    if '"RUN_FINISHED"' not in text and '"RUN_ERROR"' not in text:
        return False
    return (parsed(text) or {}).get("type") in ("RUN_FINISHED", "RUN_ERROR")


def _member(body: Any, key: str) -> Any:
    return body.get(key) if isinstance(body, Mapping) else getattr(body, key, None)


def _content(message: Any) -> Any:
    text = getattr(message, "text", None)
    return text() if callable(text) else _member(message, "content")
