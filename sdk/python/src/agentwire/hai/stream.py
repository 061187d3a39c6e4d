"""A run that opens and closes its parts itself."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import Any, Optional, Union

from .output import BaseChatOutput

#: Takes the frames of the run that `translate_sse` is running.
SINK: ContextVar[Optional[Callable[[str], Any]]] = ContextVar("agentwire.hai.sink", default=None)


class Stream:
    """Writes one run: RUN_STARTED first, RUN_FINISHED or RUN_ERROR last, and everything that was opened is closed.

        async with Stream(body) as stream:
            async with stream.step("智能处理"), stream.message() as message:
                await message.text("你好")

    Frames go to `sink`, a function that may be async. In an agent that `translate_sse` runs, the default sink is its
    response.
    """

    def __init__(
        self,
        body: Any = None,
        *,
        outputer: Optional[BaseChatOutput] = None,
        sink: Optional[Callable[[str], Union[None, Awaitable[None]]]] = None,
        message_id: Optional[str] = None,
    ) -> None:
        self.outputer = BaseChatOutput() if outputer is None else outputer
        self.message_id = self.outputer.new_id() if message_id is None else message_id
        self._ids = {key: value for key in ("threadId", "runId") if (value := _member(body, key))}
        self._sink = sink
        self._open: list[dict[str, Any]] = []

    async def send(self, event: Any) -> None:
        """Writes an event: a dict, a model or a frame."""
        sink = self._sink if self._sink is not None else SINK.get()
        if sink is None:
            raise RuntimeError("a Stream needs a sink outside of translate_sse: Stream(body, sink=...)")
        done = sink(self.outputer.build_sse_data(event))
        if inspect.isawaitable(done):
            await done

    async def __aenter__(self) -> Stream:
        await self.send({**self.outputer.build_run_started(self.message_id), **self._ids})
        return self

    async def __aexit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Any) -> None:
        if error is not None and not isinstance(error, Exception):
            return  # Cancelled: nobody reads on.
        while self._open:
            await self.send(self._open.pop())
        if error is None:
            await self.send({**self.outputer.build_run_finished(self.message_id), **self._ids})
        else:
            await self.send(failure(self.outputer, error))

    @contextlib.asynccontextmanager
    async def _part(self, first: dict[str, Any], last: dict[str, Any]) -> AsyncIterator[None]:
        await self.send(first)
        self._open.append(last)
        yield
        # After an exception the run closes its parts.
        if last in self._open:
            self._open.remove(last)
            await self.send(last)

    @contextlib.asynccontextmanager
    async def step(self, name: str) -> AsyncIterator[Stream]:
        """A step."""
        async with self._part(self.outputer.build_step_started(name), self.outputer.build_step_finished(name)):
            yield self

    @contextlib.asynccontextmanager
    async def message(self, message_id: Optional[str] = None, role: str = "assistant") -> AsyncIterator[Message]:
        """A message; by default the message of the run."""
        own = self.message_id if message_id is None else message_id
        first = self.outputer.build_business_data_start(own, role=role)
        async with self._part(first, self.outputer.build_business_data_end(own, role=role)):
            yield Message(self, own)

    async def hand_over(self, from_agent: str, to_agent: str, task: Mapping[str, Any], message_id: Optional[str] = None) -> None:
        """A task that one agent gives to another."""
        out, own = self.outputer, self.outputer.new_id() if message_id is None else message_id
        await self.send(out.build_agent_collaborative_message_start(from_agent, to_agent, own))
        await self.send(out.build_agent_collaborative_message_content(task, own))
        await self.send(out.build_agent_collaborative_message_end(own))

    async def tool_call(self, name: str, args: Any, *, tool_call_id: Optional[str] = None, parent_message_id: str = "") -> str:
        """A whole tool call; returns its id."""
        out, own = self.outputer, self.outputer.new_id("call") if tool_call_id is None else tool_call_id
        await self.send(out.build_tool_call_start(own, name, parent_message_id or self.message_id))
        await self.send(out.build_tool_call_args(own, args))
        await self.send(out.build_tool_call_end(own))
        return own

    async def tool_result(self, tool_call_id: str, content: Any, message_id: Optional[str] = None) -> None:
        """The result of a tool call."""
        own = self.outputer.new_id() if message_id is None else message_id
        await self.send(self.outputer.build_tool_call_result(own, tool_call_id, content))

    async def state(self, op: str, path: str, value: Any) -> None:
        """A change of the state."""
        await self.send(self.outputer.build_state_delta(op, path, value))


class Message:
    """An open message of a stream."""

    def __init__(self, stream: Stream, message_id: str) -> None:
        self.stream = stream
        self.id = message_id

    async def output(self, output: Mapping[str, Any], **placement: Any) -> None:
        """Adds an output; `layout`, `block_id` and `style` place it."""
        await self.stream.send(self.stream.outputer.build_business_data_content(output, self.id, **placement))

    async def text(self, content: str, **placement: Any) -> None:
        """Adds text."""
        await self.output(self.stream.outputer.build_text_output(content), **placement)


def failure(outputer: BaseChatOutput, error: BaseException) -> dict[str, Any]:
    """RUN_ERROR of an exception. The text of an exception that was not made for users is only in the log."""
    code, message = getattr(error, "code", None), getattr(error, "message", None)
    if isinstance(code, str) and isinstance(message, str):
        return outputer.build_run_error(message, code)
    return outputer.build_run_error("the agent failed", "UPSTREAM_FAILED")


def _member(body: Any, key: str) -> Any:
    return body.get(key) if isinstance(body, Mapping) else getattr(body, key, None)
