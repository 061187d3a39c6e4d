"""Hooks: code of the program around a run, and locks around runs. Order and failure are those of docs/hooks.md."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Optional, Union

from . import _native
from .agents import each, maybe_await
from .errors import ConfigError, Refused
from .events import Event
from .identity import Caller, RequestInfo

if TYPE_CHECKING:
    from .bridge import Call

__all__ = ["Hooks", "HooksFactory", "RunContext", "RunInput", "SessionLock", "Translation"]

RunInput = dict[str, Any]
#: The hooks that can be overridden, in the order in which they are called.
POINTS = (
    "input_record",
    "input",
    "native",
    "native_fallback",
    "translate",
    "event",
    "state",
    "output_record",
    "output",
)


@dataclass
class RunContext:
    """The run that hooks and locks are for."""

    agent: str
    caller: Caller
    thread_id: str
    run_id: str
    #: The input of the client.
    input: RunInput
    headers: Mapping[str, str] = field(default_factory=dict)
    #: The request that started the run, if there was one.
    request_info: Optional[RequestInfo] = None


class Translation:
    """A decision on the decoding of a native event."""

    def __init__(self, kind: str, event: Any = None) -> None:
        self.kind = kind
        self.event = event

    @staticmethod
    def replace(event: Any) -> Translation:
        """The reader decodes this event instead."""
        return Translation("replace", event)

    #: The reader decodes the event.
    default: Translation
    #: The reader does not see the event.
    skip: Translation


Translation.default = Translation("default")
Translation.skip = Translation("skip")


class Hooks:
    """The hooks of one run. Only methods that a class overrides are called; each may be sync or async.

    An exception ends the run: `Refused` with its code and message, any other with `HOOK_FAILED`.
    """

    #: Seconds for one call.
    timeout: float = 10.0
    #: Seconds for the next native event; `native_fallback` replaces the rest of the stream after it.
    native_timeout: Optional[float] = None

    def __init__(self, run: RunContext) -> None:
        self.run = run

    # Each method may be overridden by a plain function, a coroutine or a generator, which no one type of result allows.
    if TYPE_CHECKING:

        def input_record(self, input: RunInput) -> Any: ...
        def input(self, input: RunInput) -> Any: ...
        def native(self, event: Any) -> Any: ...
        def native_fallback(self) -> Any: ...
        def translate(self, event: Any) -> Any: ...
        def event(self, event: Event) -> Any: ...
        def state(self, state: Any) -> Any: ...
        def output_record(self, event: Event) -> Any: ...
        def output(self, event: Event) -> Any: ...

    else:

        async def input_record(self, input: RunInput) -> None:
            """Looks at the input that the agent would get."""

        async def input(self, input: RunInput) -> RunInput:
            """Changes or refuses the input."""
            return input

        async def native(self, event: Any) -> Any:
            """Keeps, changes, drops (`None`) or multiplies (an async generator) an event of the agent's own stream."""
            return event

        async def native_fallback(self) -> Any:
            """The events in place of the rest of the stream, in the agent's own format."""
            return None

        async def translate(self, event: Any) -> Any:
            """A `Translation`, or an async generator of AG-UI events that go before the decoded ones, and of one."""
            return Translation.default

        async def event(self, event: Event) -> Any:
            """Keeps, changes, drops (`None`) or multiplies (an async generator) an event."""
            return event

        async def state(self, state: Any) -> Any:
            """Changes the state at the end of a run."""
            return state

        async def output_record(self, event: Event) -> None:
            """Looks at an event before it is logged."""

        async def output(self, event: Event) -> Event:
            """Changes an event before it is logged."""
            return event


class SessionLock:
    """A lock around every run of an agent, beside the gateway's own lease."""

    #: Seconds for one call.
    timeout: float = 30.0

    if TYPE_CHECKING:

        def lock(self, run: RunContext) -> Any: ...
        def unlock(self, run: RunContext) -> Any: ...

    else:

        async def lock(self, run: RunContext) -> Optional[bool]:
            """Acquires the lock. False, or raising `Refused`: the run ends with THREAD_IS_LOCKED."""
            return True

        async def unlock(self, run: RunContext) -> None:
            """Releases the lock."""


HooksFactory = Union[type[Hooks], Callable[[RunContext], Hooks]]


def about(factory: Any) -> Optional[dict[str, Any]]:
    """The description of hooks for the gateway."""
    if factory is None:
        return None
    if not callable(factory):
        hint = "a subclass of agentwire.Hooks, or a function that makes one for a run"
        raise ConfigError(f"`hooks` cannot be {type(factory).__name__}", key="hooks", hint=hint)
    timeout = _seconds(getattr(factory, "timeout", Hooks.timeout), "hooks.timeout")
    native_timeout = getattr(factory, "native_timeout", None)
    if native_timeout is not None:
        native_timeout = _seconds(native_timeout, "hooks.native_timeout")
    points = [name for name in POINTS if is_overridden(factory, name)]
    if "native_fallback" in points and "input_record" not in points:
        # With it the object tells its own time limits.
        points.insert(0, "input_record")
    return {"points": points, "timeout": timeout, "native_timeout": native_timeout}


def lock_timeout(lock: Any) -> Optional[float]:
    """The time limit of a lock, if there is one."""
    if lock is None:
        return None
    if isinstance(lock, type) or not all(callable(getattr(lock, name, None)) for name in ("lock", "unlock")):
        name = lock.__name__ if isinstance(lock, type) else type(lock).__name__
        hint = "an object with the methods `lock` and `unlock`, such as an agentwire.SessionLock"
        raise ConfigError(f"`lock` cannot be {name}", key="lock", hint=hint)
    return _seconds(getattr(lock, "timeout", SessionLock.timeout), "lock.timeout")


def _seconds(value: Any, key: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
        raise ConfigError(f"`{key}` is a number of seconds above 0, not {value!r:.100}", key=key)
    return min(float(value), 1e9)


def is_overridden(factory: Any, name: str) -> bool:
    """True if hooks have a method of their own. A function that makes hooks may return any."""
    if not isinstance(factory, type):
        wanted = getattr(factory, "points", None)
        return name in wanted if wanted is not None else True
    own = getattr(factory, name, None)
    return own is not None and own is not getattr(Hooks, name)


def context_of(payload: Mapping[str, Any], call: Call) -> RunContext:
    """The run of a call."""
    info = call.record.info() if call.record is not None else None
    headers = dict(payload["headers"])
    if info is not None:
        headers = {**info.headers, **headers}
    return RunContext(
        agent=payload["agent"],
        caller=Caller(payload["user"], payload["tenant"]),
        thread_id=payload["thread"],
        run_id=payload["run"],
        input=json.loads(payload["input"]),
        headers=headers,
        request_info=info,
    )


class HooksOfRun:
    """The hooks of one run, and the objects of its native events."""

    def __init__(self, hooks: Any, natives: Optional[deque[Any]], passes_natives: bool) -> None:
        self._hooks = hooks
        self._natives = natives
        # What the hook `native` has let through, for the hook `translate`.
        self._passed: Optional[deque[Any]] = deque() if passes_natives and natives is not None else None

    async def answer(self, hook: str, data: Any) -> Any:
        """The answer to a call, as JSON text."""
        return await getattr(self, f"_{hook}")(data)

    async def _input_record(self, data: str) -> str:
        record = getattr(self._hooks, "input_record", None)
        if record is not None:
            await maybe_await(record(json.loads(data)))
        timeout = _seconds(getattr(self._hooks, "timeout", Hooks.timeout), "hooks.timeout")
        native_timeout = getattr(self._hooks, "native_timeout", None)
        if native_timeout is not None:
            native_timeout = _seconds(native_timeout, "hooks.native_timeout")
        return json.dumps({"timeout": timeout, "native_timeout": native_timeout})

    async def _input(self, data: str) -> str:
        changed = await maybe_await(self._hooks.input(json.loads(data)))
        return wire(_expected(changed, "input", "an input"))

    async def _native(self, data: list[dict[str, Any]]) -> str:
        kept = []
        for index, frame in enumerate(data):
            event = _object(frame, self._natives)
            before = _text(event)
            async for made in each(self._hooks.native(event)):
                if made is None:
                    continue
                if made is event and _text(event) == before:
                    kept.append(f'{{"keep":{index}}}')
                else:
                    kept.append(_frame(frame.get("event"), _native_event(made, "native", event)))
                if self._passed is not None and frame.get("event") is None:
                    self._passed.append(made)
        return f"[{','.join(kept)}]"

    async def _native_fallback(self, data: None) -> str:
        given = each(self._hooks.native_fallback())
        natives = [_frame(None, _native_event(made, "native_fallback")) async for made in given if made is not None]
        return f'{{"events":[],"natives":[{",".join(natives)}]}}'

    async def _translate(self, data: list[dict[str, Any]]) -> str:
        decisions = []
        for frame in data:
            event = _object(frame, self._passed if self._passed is not None else self._natives)
            text = _text(event)
            before, chosen = [], Translation.default
            async for made in each(self._hooks.translate(event)):
                if isinstance(made, Translation):
                    chosen = made
                elif made is not None:
                    before.append(wire(made))
            if chosen.kind == "default" and _text(event) != text:
                # The hook has changed the event itself.
                chosen = Translation.replace(event)
            decision = f'{{"before":[{",".join(before)}],"translation":"{chosen.kind}"'
            if chosen.kind == "replace":
                replaced = _native_event(chosen.event, "translate", event)
                decision += f',"native":{_frame(frame.get("event"), replaced)}'
            decisions.append(decision + "}")
        return f"[{','.join(decisions)}]"

    async def _event(self, data: list[Event]) -> str:
        kept = []
        for event in data:
            given = self._hooks.event(event)
            if type(given) is CoroutineType:
                given = await given
            if type(given) is dict:
                # The most frequent form, without the cost of the others.
                kept.append(_native.to_json(given))
                continue
            async for made in each(given):
                if made is not None:
                    kept.append(wire(made))
        return f"[{','.join(kept)}]"

    async def _state(self, data: Any) -> str:
        return wire(await maybe_await(self._hooks.state(data)))

    async def _output_record(self, data: list[Event]) -> str:
        for event in data:
            await maybe_await(self._hooks.output_record(event))
        return "null"

    async def _output(self, data: list[Event]) -> str:
        changed = [
            wire(_expected(await maybe_await(self._hooks.output(event)), "output", "an event")) for event in data
        ]
        return f"[{','.join(changed)}]"


def _expected(value: Any, hook: str, kind: str) -> Any:
    if isinstance(value, Mapping) or hasattr(value, "model_dump_json"):
        return value
    raise TypeError(f"the hook {hook!r} gives {kind}, not {type(value).__name__}")


#: Types whose values are no events of an agent.
_PLAIN = (str, bytes, bytearray, int, float, type(None))


def _native_event(value: Any, hook: str, given: Any = None) -> Any:
    """An event of the agent's own format; text only where the agent sends text."""
    if isinstance(value, _PLAIN) and not (isinstance(value, str) and isinstance(given, str)):
        raise TypeError(f"the hook {hook!r} gives an event of the agent, not {type(value).__name__}")
    return value


def _object(frame: Mapping[str, Any], natives: Optional[deque[Any]]) -> Any:
    """The object of a native event; parsed JSON for those of agents elsewhere."""
    if frame.get("event") is None and natives:
        return natives.popleft()
    return frame["data"]


def _text(event: Any) -> Optional[str]:
    """An event as JSON, to see whether a hook has changed it; `None` if its own code fails."""
    try:
        return _native.to_json(event)
    except Exception:
        return None


def _frame(event: Optional[str], data: Any) -> str:
    return f'{{"event":{json.dumps(event)},"data":{_native.to_json(data)}}}'


def wire(value: Any) -> str:
    """A dict, or an object of `ag_ui.core`, with the names on the wire."""
    if type(value) is dict:
        return _native.to_json(value)
    dump = getattr(value, "model_dump_json", None)
    if callable(dump):
        return str(dump(by_alias=True, exclude_none=True))
    return _native.to_json(value)


async def locked(lock: SessionLock, run: RunContext) -> str:
    """Acquires a lock: `true` or `false`."""
    found = await maybe_await(lock.lock(run))
    if found is None or found is True or found is False:
        return "false" if found is False else "true"
    raise Refused("the lock gave no answer", code="THREAD_IS_LOCKED")

