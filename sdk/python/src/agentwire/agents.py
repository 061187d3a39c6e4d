"""Agents of a gateway: async generators, graphs, ADK agents, and everything that `[agents.x] upstream` can be."""

from __future__ import annotations

import asyncio
import copy
import inspect
import json
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Optional, Union, cast, overload

from .errors import ConfigError
from .identity import Caller, IdentityFn, RequestInfo
from .translator import formats

if TYPE_CHECKING:
    from .bridge import Call

__all__ = ["Agent", "AgentLike", "RunRequest", "agent", "upstream"]

PythonAgent = Callable[["RunRequest"], AsyncIterable[Any]]
AgentLike = Union["Agent", PythonAgent, str, Any]


@dataclass
class RunRequest:
    """The request of a run to its agent."""

    #: The AG-UI input: messages, state, tools, context, resume.
    input: dict[str, Any]
    caller: Caller
    #: The headers of the client's request, with names in lower case; of a run that was taken up again, none.
    headers: Mapping[str, str] = field(default_factory=dict)
    #: The request that started the run, if there was one.
    info: Optional[RequestInfo] = None

    @property
    def thread_id(self) -> str:
        return str(self.input.get("threadId", ""))

    @property
    def run_id(self) -> str:
        return str(self.input.get("runId", ""))

    @property
    def messages(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.input.get("messages") or []
        return found

    @property
    def state(self) -> Any:
        return self.input.get("state")

    @property
    def tools(self) -> list[dict[str, Any]]:
        """The tools of the user interface."""
        found: list[dict[str, Any]] = self.input.get("tools") or []
        return found

    @property
    def context(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.input.get("context") or []
        return found

    @property
    def resume(self) -> list[dict[str, Any]]:
        """The answers to the interrupts of the last run."""
        found: list[dict[str, Any]] = self.input.get("resume") or []
        return found

    @property
    def forwarded_props(self) -> Any:
        return self.input.get("forwardedProps")

    def user_text(self) -> str:
        """The text of the last user message."""
        for message in reversed(self.messages):
            if message.get("role") == "user":
                return _text(message.get("content"))
        return ""

    def tool_results(self) -> list[dict[str, Any]]:
        """The tool messages at the end of the conversation: the results of the client's tools."""
        found: list[dict[str, Any]] = []
        for message in reversed(self.messages):
            if message.get("role") != "tool":
                break
            found.insert(0, message)
        return found

    @cached_property
    def ag_ui(self) -> Any:
        """The input as an `ag_ui.core.RunAgentInput`."""
        from ag_ui.core import RunAgentInput

        return RunAgentInput.model_validate(complete_input(self.input))


def complete_input(value: Mapping[str, Any]) -> dict[str, Any]:
    """An input with the members that `ag_ui.core` requires."""
    empty: dict[str, Any] = {"state": {}, "messages": [], "tools": [], "context": [], "forwardedProps": {}}
    given = {key: member for key, member in value.items() if member is not None}
    return {**empty, **given}


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "".join(str(part.get("text", "")) for part in parts if isinstance(part, Mapping))


class Agent:
    """An agent with its settings. Made by `agent`, `langgraph`, `adk` or `upstream`."""

    def __init__(
        self,
        *,
        kind: str,
        settings: Mapping[str, Any],
        identity: Optional[IdentityFn] = None,
        hooks: Any = None,
        lock: Any = None,
    ) -> None:
        self.kind = kind
        self.settings = dict(settings)
        if isinstance(identity, Mapping):
            self.settings["identity"] = dict(identity)
            identity = None
        if isinstance(hooks, Mapping):
            # The HTTP hooks of the configuration.
            self.settings["hooks"] = dict(hooks)
            hooks = None
        self.identity: Optional[IdentityFn] = identity
        self.hooks = hooks
        self.lock = lock

    def config(self) -> dict[str, Any]:
        """The table `[agents.NAME]` of the configuration."""
        return {**self.settings, "upstream": {"kind": "python", "object": self.kind}}

    def about(self) -> dict[str, Any]:
        """The description for the gateway."""
        from .hooks import about, lock_timeout

        if self.identity is not None and not callable(self.identity):
            raise ConfigError(
                f"`identity` cannot be {type(self.identity).__name__}", key="identity", hint="a function or a table"
            )
        hooks, lock = about(self.hooks), lock_timeout(self.lock)
        return {"kind": self.kind, "identity": self.identity is not None, "hooks": hooks, "lock": lock}

    async def answer(self, call: Call) -> None:
        """Answers a call of the gateway."""
        raise NotImplementedError


class StreamAgent(Agent):
    """An async generator function."""

    def __init__(self, function: PythonAgent, *, format: str, options: Mapping[str, str], **settings: Any) -> None:
        identity, hooks, lock = (settings.pop(key, None) for key in ("identity", "hooks", "lock"))
        super().__init__(kind="stream", settings=settings, identity=identity, hooks=hooks, lock=lock)
        if not callable(function):
            raise ConfigError(f"an agent is an async generator function, not {type(function).__name__}", key="fn")
        if inspect.isgeneratorfunction(function):
            raise ConfigError(
                f"an agent is an async generator function, and {function.__name__!r} is not async",
                key="fn",
                hint="`async def`",
            )
        check_callable(function, "fn", "an agent")
        known = [known.name for known in formats() if "JSON lines" in known.reads]
        if format.split("@")[0] not in known:
            raise ConfigError(f"unknown format {format!r}", key="format", hint=f"formats: {', '.join(known)}")
        self.function = function
        self.format = format
        self.options = dict(options)
        self.__doc__ = function.__doc__

    def about(self) -> dict[str, Any]:
        options = [f"{key}={value}" for key, value in self.options.items()]
        return {**super().about(), "format": self.format, "options": options}

    def __call__(self, request: RunRequest) -> AsyncIterable[Any]:
        return self.function(request)

    async def answer(self, call: Call) -> None:
        events = self.function(call.run_request())
        if inspect.isawaitable(events):
            events = await events
        if not isinstance(events, AsyncIterable):
            raise TypeError(f"an agent gives an async iterator, not {type(events).__name__}")
        completed = Completed(call.payload["thread"], call.payload["run"]) if self.format.split("@")[0] == "ag-ui" else None
        await pour(call, events, completed)


def check_callable(function: Any, key: str, what: str) -> None:
    """Raises `ConfigError` for a function that cannot be called with one argument, as far as Python knows."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(None)
    except TypeError as error:
        name = getattr(function, "__name__", type(function).__name__)
        raise ConfigError(f"{what} gets one argument, which {name!r} does not take: {error}", key=key) from error


#: Values without an effect between two turns of the loop.
TURN = 256
#: Values that one call of a hook may give.
MAX_VALUES = 100_000


async def pour(call: Call, events: AsyncIterable[Any], completed: Optional[Completed] = None) -> None:
    """Puts the events of a stream into the answer of a call."""
    skipped = 0
    try:
        async for item in events:
            # Several items at once; a tuple is one event of LangGraph.
            for event in item if type(item) is list else (item,):
                if completed is not None:
                    try:
                        event = completed(event)
                    except Exception as error:
                        call.skip(event, error)
                        continue
                if call.put(event) and not await call.room():
                    return
            if call.skipped > skipped + TURN:
                # Objects that are no events fill no pipe: the loop gets a turn nevertheless.
                skipped = call.skipped
                await asyncio.sleep(0)
    finally:
        close = getattr(events, "aclose", None)
        if close is not None:
            await close()


class Completed:
    """Completes the short forms of AG-UI events: text as `str`, chunks without an id, and the events of a run without its ids."""

    def __init__(self, thread: str, run: str) -> None:
        self._ids = {"threadId": thread, "runId": run}
        self._run = run
        self._count = 0
        self._open: Optional[str] = None

    def __call__(self, event: Any) -> Any:
        if isinstance(event, str):
            return {"type": "TEXT_MESSAGE_CHUNK", **self._chunk("TEXT_MESSAGE_CHUNK"), "delta": event}
        if not isinstance(event, dict):
            kind = getattr(event, "type", None)
            kind = getattr(kind, "value", kind)
            if kind in CHUNKS and getattr(event, "message_id", None) is None:
                return self({**json.loads(event.model_dump_json(by_alias=True, exclude_none=True))})
            self._open = None
            return event
        # A subclass may have other methods.
        kind = dict.get(event, "type")
        kind = getattr(kind, "value", kind)
        if kind in CHUNKS and dict.get(event, "messageId", dict.get(event, "message_id")) is None:
            return {**event, **self._chunk(kind)}
        self._open = None
        if kind in OF_RUN and not ("threadId" in event or "thread_id" in event):
            return {**self._ids, **event}
        return event

    def _chunk(self, kind: str) -> dict[str, str]:
        if self._open != kind:
            self._open = kind
            self._count += 1
        role = {"role": "assistant"} if kind == "TEXT_MESSAGE_CHUNK" else {}
        return {"messageId": f"{self._run}-{self._count}", **role}


CHUNKS = ("TEXT_MESSAGE_CHUNK", "REASONING_MESSAGE_CHUNK")
OF_RUN = ("RUN_STARTED", "RUN_FINISHED")


class Upstream(Agent):
    """An agent elsewhere, as the configuration file describes it."""

    def __init__(self, kind: str, options: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
        identity, hooks, lock = (settings.get(key) for key in ("identity", "hooks", "lock"))
        own = {key: value for key, value in settings.items() if key not in ("identity", "hooks", "lock")}
        super().__init__(kind=kind, settings=own, identity=identity, hooks=hooks, lock=lock)
        self.options = dict(options)

    def config(self) -> dict[str, Any]:
        return {**self.settings, "upstream": {"kind": self.kind, **self.options}}


@overload
def agent(fn: PythonAgent, *, format: str = ..., options: Optional[Mapping[str, str]] = ..., **settings: Any) -> StreamAgent: ...
@overload
def agent(
    fn: None = None, *, format: str = ..., options: Optional[Mapping[str, str]] = ..., **settings: Any
) -> Callable[[PythonAgent], StreamAgent]: ...
def agent(
    fn: Optional[PythonAgent] = None,
    *,
    format: str = "ag-ui",
    options: Optional[Mapping[str, str]] = None,
    **settings: Any,
) -> Any:
    """Makes an agent of an async generator function.

    The function gets a `RunRequest` and yields events in `format`: AG-UI dicts, `str` or `ag_ui.core` objects,
    `astream_events` dicts with `langgraph`, ADK events with `adk`, chunks with `openai`. `settings` are the keys of
    `[agents.NAME]`, and `identity`, `hooks` and `lock` of this agent.
    """

    def make(function: PythonAgent) -> StreamAgent:
        return StreamAgent(function, format=format, options=options or {}, **settings)

    return make if fn is None else make(fn)


#: The keys of `[agents.NAME]`; all other arguments of `upstream` belong to the upstream itself.
AGENT_KEYS = frozenset(
    "ag_ui ai_sdk approve breaker busy capabilities default feedback_url hai history hooks identity limits lock "
    "on_disconnect path routes rules show_errors snapshots sse state_key threads timeouts".split()
)


def upstream(kind: str, **options: Any) -> Agent:
    """Everything that `[agents.x] upstream` can be: `upstream("exec", command=["my-agent"], busy="wait")`."""
    settings = {key: options.pop(key) for key in list(options) if key in AGENT_KEYS}
    return Upstream(kind, options, settings)


def with_settings(agent: Agent, settings: Mapping[str, Any]) -> Agent:
    """The same agent with further keys of `[agents.NAME]`."""
    made = copy.copy(agent)
    made.settings = {**agent.settings, **settings}
    return made


def agent_of(name: str, given: Any) -> Agent:
    """The agent that a program means by any of the forms that `Gateway` takes."""
    if isinstance(given, Agent):
        return given
    if isinstance(given, str):
        return upstream("ag-ui", url=given)
    if hasattr(given, "astream_events"):
        from .langgraph_local import langgraph_agent

        return langgraph_agent(given)
    if any(base.__module__.startswith("google.adk.") for base in type(given).__mro__):
        from .adk.local import adk_agent

        return adk_agent(given)
    if inspect.isasyncgenfunction(given) or inspect.iscoroutinefunction(given) or callable(given):
        try:
            return StreamAgent(cast(PythonAgent, given), format="ag-ui", options={})
        except ConfigError as error:
            error.key = f"agents.{name}"
            raise
    raise ConfigError(
        f"agent {name!r} cannot be {type(given).__name__}",
        key=f"agents.{name}",
        hint="call its method `compile`" if is_uncompiled(given) else "an async generator function, agentwire.langgraph(…), agentwire.adk(…), agentwire.upstream(…) or a URL",
    )


def is_uncompiled(given: Any) -> bool:
    """True for a graph of LangGraph before it is compiled."""
    return hasattr(given, "compile") and hasattr(given, "add_node")


def lines(items: Iterable[Any]) -> str:
    """Items as lines of JSON."""
    return "".join(json.dumps(item) + "\n" for item in items)


#: Types whose values are never awaited: asking Python about them costs more than most callbacks.
_PLAIN = frozenset((dict, list, str, bool, int, float, type(None)))


async def maybe_await(value: Any) -> Any:
    """The value of a callback, which may be sync or async."""
    if type(value) in _PLAIN:
        return value
    return await value if isinstance(value, Awaitable) or inspect.isawaitable(value) else value


async def _turned(values: Iterable[Any]) -> AsyncIterator[Any]:
    for value in values:
        yield value


async def each(value: Any) -> AsyncIterator[Any]:
    """The values of a hook: a generator, async or not, one that is awaited first, or a single value."""
    if inspect.isawaitable(value):
        value = await value
    if inspect.isgenerator(value):
        value = _turned(value)
    if not isinstance(value, AsyncIterable):
        yield value
        return
    count = 0
    try:
        async for item in value:
            yield item
            count += 1
            if count >= MAX_VALUES:
                raise RuntimeError(f"a hook gave more than {MAX_VALUES} values for one call")
            if count % TURN == 0:
                # A generator without an end and without `await` must not hold the loop.
                await asyncio.sleep(0)
    finally:
        close = getattr(value, "aclose", None)
        if close is not None:
            await close()
