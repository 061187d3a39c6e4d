"""The gateway as an ASGI application."""

from __future__ import annotations

import asyncio
import atexit
import copy
import json
import logging
import os
import signal
import threading
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, MutableMapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal, Optional, Union, cast

from . import _native
from .agents import Agent, AgentLike, agent_of, check_callable
from .bridge import Bridge, Receive, Send, closed, refuse, target_of
from .errors import ConfigError, Failure
from .hooks import HooksFactory, SessionLock
from .identity import Caller, IdentityFn, Scope
from .translator import formats, input_text, new_ids

if TYPE_CHECKING:
    from .translator import Input

__all__ = ["Gateway", "RunHandle"]

#: Headers that a replaced body has anew.
_LENGTHS = (b"content-length", b"transfer-encoding")
ASGIApp = Callable[[Scope, Receive, Send], Any]
Part = Literal["all", "main", "history", "state"]
Headers = Union[Mapping[str, str], Iterable[tuple[str, str]]]

_log = logging.getLogger("agentwire")
#: The gateways of this process that have been started.
_started: weakref.WeakSet[Gateway] = weakref.WeakSet()


class Gateway:
    """A gateway in front of agents, as an ASGI 3 application.

    Args:
        agents: The agents by name, or one.
        config: An `agentwire.toml`, or the same as a mapping. Arguments win over it.
        store: The store: `sqlite:PATH` (by default `sqlite:agentwire.db`), `memory:` or a PostgreSQL URI.
        default: The agent whose routes are also at `/`.
        identity: A function that finds the sender of a request, or the table `identity` of the configuration.
        hooks: Hooks of agents that have none of their own.
        lock: A lock around every run of agents that have none of their own.
        cors: Origins whose pages may use the gateway.
        log: `logging` sends the log to Python's, `stderr` writes it as `agentwire serve` does.
        signals: SIGTERM and SIGINT begin to drain before the server handles them.
        worker_threads: The threads of the gateway, if it is the first of the process.
        identity_timeout: Seconds for the identity function.
        settings: Further keys of the configuration's top level, such as `retention`, `limits` or `drain`.
    """

    def __init__(
        self,
        agents: Union[Mapping[str, AgentLike], AgentLike, None] = None,
        *,
        config: Union[str, os.PathLike[str], Mapping[str, Any], None] = None,
        store: Optional[str] = None,
        default: Optional[str] = None,
        identity: Union[IdentityFn, Mapping[str, Any], None] = None,
        hooks: Optional[HooksFactory] = None,
        lock: Optional[SessionLock] = None,
        cors: Sequence[str] = (),
        log: Literal["logging", "stderr"] = "logging",
        signals: bool = True,
        worker_threads: int = 2,
        identity_timeout: float = 10.0,
        **settings: Any,
    ) -> None:
        if identity is not None and not callable(identity) and not isinstance(identity, Mapping):
            hint = "a function, or the table of the configuration"
            raise ConfigError(f"`identity` cannot be {type(identity).__name__}", key="identity", hint=hint)
        if callable(identity):
            check_callable(identity, "identity", "an identity function")
        if isinstance(hooks, Mapping):
            hint = "a subclass of agentwire.Hooks; a table of HTTP hooks belongs to an agent"
            raise ConfigError(f"`hooks` cannot be {type(hooks).__name__}", key="hooks", hint=hint)
        if isinstance(worker_threads, bool) or not isinstance(worker_threads, int) or worker_threads < 1:
            raise ConfigError(f"there cannot be {worker_threads!r} threads", key="worker_threads", hint="1 or more")
        if not identity_timeout > 0:
            hint = "a number of seconds above 0"
            raise ConfigError(f"`identity_timeout` cannot be {identity_timeout!r}", key="identity_timeout", hint=hint)
        if log not in ("logging", "stderr"):
            raise ConfigError(f"unknown log {log!r}", key="log", hint="logging or stderr")
        if config is not None and not isinstance(config, (str, os.PathLike, Mapping)):
            raise ConfigError(f"`config` cannot be {type(config).__name__}", key="config", hint="a path or a mapping")
        self._file = os.fspath(config) if isinstance(config, (str, os.PathLike)) else None
        base = dict(config) if isinstance(config, Mapping) else {}
        given = {key: value for key, value in settings.items() if value is not None}
        if store is not None:
            given["store"] = store
        if cors:
            given["cors"] = [cors] if isinstance(cors, str) else list(cors)
        if isinstance(identity, Mapping):
            given["identity"] = dict(identity)
            identity = None
        self._overrides = _merged(base, given)
        self._identity: Optional[IdentityFn] = identity
        self._identity_timeout = identity_timeout
        self._hooks = hooks
        self._lock = lock
        self._default = default
        self._log_to = log
        self._signals = signals
        self._worker_threads = worker_threads
        # Agents of the file have the hooks and the lock of the gateway.
        self._others = Agent(kind="", settings={}, hooks=hooks, lock=lock)
        self._agents = self._plan(agents)
        # Every mistake is told here, not at the first request.
        self._server = self._new_server()
        self._bridge: Optional[Bridge] = None
        self._starting: Optional[asyncio.Task[None]] = None
        self._draining: Optional[asyncio.Task[None]] = None
        self._is_closed = False
        #: True if the server cannot be started again.
        self._is_used = False
        self._has_warned = False
        self._old_handlers: dict[int, Any] = {}

    # Configuration

    def _plan(self, agents: Union[Mapping[str, AgentLike], AgentLike, None]) -> dict[str, Agent]:
        if agents is None:
            agents = {}
        elif not isinstance(agents, Mapping):
            agents = {"agent": agents}
        for name in agents:
            if not isinstance(name, str):
                raise ConfigError(f"{name!r} cannot be the name of an agent", key="agents", hint="a string")
        planned = {name: agent_of(name, given) for name, given in agents.items()}
        self._given: dict[str, Agent] = dict(planned)
        overrides = self._config(planned)
        for name, location in _native.Server.python_agents(self._file, overrides):
            if name not in planned:
                planned[name] = agent_of(name, load_object(location))
        if self._hooks is None and self._lock is None:
            return planned
        # Copies: an agent may also belong to another gateway.
        completed = {name: copy.copy(agent) for name, agent in planned.items()}
        for agent in completed.values():
            agent.hooks = self._hooks if agent.hooks is None else agent.hooks
            agent.lock = self._lock if agent.lock is None else agent.lock
        return completed

    def _config(self, agents: Mapping[str, Agent]) -> str:
        tables = {name: agent.config() for name, agent in agents.items()}
        return _native.to_json(_merged(self._overrides, {"agents": tables}) if tables else self._overrides)

    def _arguments(self, agents: Mapping[str, Agent], default: Optional[str]) -> tuple[Any, ...]:
        about = json.dumps({name: agent.about() for name, agent in {**agents, "": self._others}.items()})
        has_identity = self._identity is not None
        return self._file, self._config(agents), default, about, has_identity, self._identity_timeout

    def _new_server(self) -> _native.Server:
        return _native.Server(*self._arguments(self._agents, self._default))

    @property
    def agents(self) -> list[str]:
        """The names of the agents."""
        return self._server.agents()

    def replace_agents(self, agents: Union[Mapping[str, AgentLike], AgentLike]) -> None:
        """Replaces the agents that were given by the program; live runs keep theirs."""
        planned = self._plan(agents)
        # The default agent may be one of those that are gone.
        default = self._default if self._default in planned else None
        self._server.replace(*self._arguments(planned, default))
        # Runs that live keep the agents that they were started with: those of old names stay.
        self._agents.update(planned)
        if self._bridge is not None:
            self._bridge.keep_bodies = self._keeps_bodies()

    def _keeps_bodies(self) -> bool:
        """True if code of the program may look at the body of a request."""
        agents = [self._others, *self._agents.values()]
        wanted = (given for agent in agents for given in (agent.identity, agent.hooks, agent.lock))
        return self._identity is not None or any(given is not None for given in wanted)

    # Life

    async def start(self) -> None:
        """Opens the store and ends what a predecessor left open. Once; also by `lifespan` or the first request."""
        if self._bridge is not None:
            if self._bridge.loop is not asyncio.get_running_loop():
                raise RuntimeError("the gateway was started in another event loop; each loop needs its own Gateway")
            return
        if self._starting is None:
            # A task of its own: whoever comes first may be a request that is cancelled.
            self._starting = asyncio.get_running_loop().create_task(self._start())
        await asyncio.shield(self._starting)

    async def _start(self) -> None:
        try:
            if self._is_used:
                self._server = self._new_server()
                self._is_closed = False
                self._draining = None
            # After a failure the next call tries again: a database may be there later.
            self._is_used = True
            bridge = Bridge(self._server, self._agents, self._others, self._identity, self._keeps_bodies())
            await bridge.start(self._worker_threads, self._log_to)
            self._bridge = bridge
            _started.add(self)
            self._install_signals()
        finally:
            self._starting = None

    @asynccontextmanager
    async def _lifespan(self) -> AsyncIterator[None]:
        await self.start()
        try:
            yield
        finally:
            await self.drain()

    def lifespan(self, app: Any = None) -> AbstractAsyncContextManager[None]:
        """The life of the gateway, for `FastAPI(lifespan=gateway.lifespan)`. Can be nested in one's own."""
        return self._lifespan()

    async def drain(self, grace: Optional[float] = None) -> None:
        """Accepts no new runs, waits for the live ones, ends those that last longer than the grace time, and closes."""
        bridge = self._bridge
        if bridge is None:
            return
        await asyncio.shield(self._begin_drain(bridge, grace))
        if self._bridge is bridge:
            self._bridge = None
            self._is_closed = True
            self._restore_signals()
            _started.discard(self)
            await bridge.finish()

    def _begin_drain(self, bridge: Bridge, grace: Optional[float] = None) -> asyncio.Task[None]:
        if self._draining is None:
            self._draining = bridge.loop.create_task(bridge.drain(grace))
        return self._draining

    async def serve(self, listen: str = "127.0.0.1:7117", *, on_ready: Optional[Callable[[str], None]] = None) -> None:
        """Serves by the gateway's own HTTP server, without an ASGI server, until SIGTERM or SIGINT, and drains.

        Agents, hooks and identity functions run in this loop. A second signal ends the process at once.
        `on_ready` gets the address with its port. An address beyond this machine is refused as by `agentwire serve`:
        without authentication, host names and encryption, unless `insecure=True`.
        """
        loop = asyncio.get_running_loop()
        stop = asyncio.Event()

        def on_signal(number: int, frame: Optional[FrameType]) -> None:
            if stop.is_set():
                os._exit(128 + number)
            # The event is set at once, so that a second signal is one.
            stop.set()
            loop.call_soon_threadsafe(lambda: None)

        numbers = (signal.SIGTERM, signal.SIGINT)
        is_main = threading.current_thread() is threading.main_thread()
        before = {number: signal.signal(number, on_signal) for number in numbers} if is_main else {}
        try:
            await self.start()
            bridge = await self._running()
            address, ended = bridge.listen(listen)
            if on_ready is not None:
                on_ready(address)
            stopped = loop.create_task(stop.wait())
            ends: list[asyncio.Future[Any]] = [stopped, ended]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            stopped.cancel()
            if not stop.is_set() and ended.done() and ended.result() is not None:
                raise OSError(f"cannot go on listening on {address}: {ended.result()}")
        finally:
            await self.drain()
            for number, handler in before.items():
                signal.signal(number, handler)

    def check_listener(self, listen: str) -> None:
        """Raises `ConfigError` for an address that others can reach, unless the configuration protects it.

        As by `agentwire serve`: it needs authentication, host names and encryption, or `insecure=True`. For a program that
        starts an ASGI server for the gateway.
        """
        self._server.check_listener(listen)

    def _install_signals(self) -> None:
        if not self._signals or threading.current_thread() is not threading.main_thread():
            return
        for number in (signal.SIGTERM, signal.SIGINT):
            before = signal.getsignal(number)
            # Without a handler of a server, the process is not ours to keep alive.
            if callable(before) and before is not signal.default_int_handler:
                self._old_handlers[number] = before
                signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: Optional[FrameType]) -> None:
        bridge = self._bridge
        if bridge is not None:
            bridge.loop.call_soon_threadsafe(self._begin_drain, bridge)
        before = self._old_handlers.get(number)
        if callable(before):
            before(number, frame)

    def _restore_signals(self) -> None:
        if threading.current_thread() is threading.main_thread():
            for number, before in self._old_handlers.items():
                if signal.getsignal(number) == self._on_signal:
                    signal.signal(number, before)
        self._old_handlers.clear()

    async def _running(self) -> Bridge:
        """The bridge of a started gateway."""
        if self._is_closed:
            raise closed()
        if self._bridge is None:
            if not self._has_warned:
                self._has_warned = True
                _log.warning(
                    "the gateway is started by its first request: a mounted app gets no lifespan events; "
                    "use FastAPI(lifespan=gateway.lifespan), so that it starts before and drains after"
                )
            await self.start()
        elif self._bridge.loop is not asyncio.get_running_loop():
            raise RuntimeError("the gateway was started in another event loop; each loop needs its own Gateway")
        if self._bridge is None:
            raise closed()
        return self._bridge

    # ASGI

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._serve(scope, receive, send, "all", "")

    async def _serve(self, scope: Scope, receive: Receive, send: Send, part: str, prefix: str) -> None:
        kind = scope["type"]
        if kind == "http":
            found = target_of(scope)
            if found is None:
                await refuse(send, 400, "BAD_REQUEST", "the path does not begin with `root_path`")
                return
            target, path = found
            bridge = await self._running()
            await bridge.exchange(scope, receive, send, prefix.encode() + target, path, part)
        elif kind == "lifespan":
            await self._serve_lifespan(receive, send)
        elif kind == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1000})
        else:
            raise RuntimeError(f"unknown kind of scope: {kind!r}")

    async def _serve_lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self.start()
        except Exception as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.drain()
        await send({"type": "lifespan.shutdown.complete"})

    def routes(self, part: Part = "all", agent: Optional[str] = None) -> ASGIApp:
        """A part of the routes as an app: all, those of runs (`main`), the history or the state; or those of one agent."""
        if part not in ("all", "main", "history", "state"):
            raise ConfigError(f"unknown part {part!r}", key="part", hint="all, main, history or state")
        if agent is not None and agent not in self.agents:
            hint = f"agents: {', '.join(self.agents)}"
            raise ConfigError(f"there is no agent {agent!r}", key="agent", hint=hint)
        prefix = "" if agent is None else f"/agents/{agent}"

        async def routes(scope: Scope, receive: Receive, send: Send) -> None:
            await self._serve(scope, receive, send, part, prefix)

        return routes

    async def hand_over(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        path: str,
        *,
        body: Optional[bytes] = None,
        caller: Optional[Caller] = None,
        more: Optional[Mapping[str, Any]] = None,
    ) -> None:
        """Answers a request of another ASGI app by the route `path`; `body` and `caller` replace those of the request.

        `more` are further members of the scope.
        """
        bridge = await self._running()
        headers = list(scope.get("headers", ()))
        source = receive
        if body is not None:
            headers = [(name, value) for name, value in headers if name.lower() not in _LENGTHS]
            headers.append((b"content-length", str(len(body)).encode()))
            messages = iter([{"type": "http.request", "body": body, "more_body": False}])

            async def replayed() -> MutableMapping[str, Any]:
                message = next(messages, None)
                return await receive() if message is None else message

            source = replayed
        inner = {**scope, **(more or {}), "path": path, "raw_path": None, "root_path": "", "headers": headers}
        found = target_of(inner)
        if found is None:
            raise ValueError(f"the path {path!r} is not valid")
        await bridge.exchange(inner, source, send, *found, "all", caller)

    def add_agent(self, name: str, agent: AgentLike) -> None:
        """Adds an agent, or replaces the one of that name."""
        self.replace_agents({**{key: value for key, value in self._given.items()}, name: agent})

    # Without HTTP

    async def request(
        self, method: str, path: str, *, headers: Headers = (), body: bytes = b"", caller: Optional[Caller] = None
    ) -> tuple[int, dict[str, str], bytes]:
        """Any route, without HTTP: status, headers and body."""
        answer = _Answer()
        await self._exchange(method, path, headers, body, caller, answer.send)
        return answer.status, answer.headers, bytes(answer.body)

    async def _exchange(
        self,
        method: str,
        path: str,
        headers: Headers,
        body: bytes,
        caller: Optional[Caller],
        send: Send,
        more: Optional[Mapping[str, Any]] = None,
    ) -> None:
        bridge = await self._running()
        given = headers.items() if isinstance(headers, Mapping) else headers
        pairs = cast(Iterable[tuple[str, str]], given)
        lines = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in pairs]
        if body:
            lines.append((b"content-length", str(len(body)).encode()))
            if not any(name == b"content-type" for name, _ in lines):
                lines.append((b"content-type", b"application/json"))
        plain, _, query = path.partition("?")
        scope: MutableMapping[str, Any] = {
            "type": "http",
            "method": method.upper(),
            "path": plain,
            "raw_path": plain.encode(),
            "query_string": query.encode(),
            "headers": lines,
            **(more or {}),
        }
        never: asyncio.Future[MutableMapping[str, Any]] = bridge.loop.create_future()
        messages = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def receive() -> MutableMapping[str, Any]:
            message = next(messages, None)
            return await never if message is None else message

        found = target_of(scope)
        if found is None:
            raise ValueError(f"the path {path!r} is not valid")
        await bridge.exchange(scope, receive, send, *found, "all", caller)

    def run(
        self,
        input: Input,
        *,
        agent: Optional[str] = None,
        caller: Optional[Caller] = None,
        format: str = "ag-ui",
    ) -> RunHandle:
        """Starts a run without HTTP. The run begins when the handle is read.

        The events are dicts in `format`, which is one that is written as SSE; those of `langgraph` have the members
        `event` and `data`.
        """
        _check_format(format)
        try:
            value = json.loads(input_text(input, new_ids()))
        except ConfigError:
            raise
        except ValueError as error:
            raise ConfigError(f"the input of a run is not JSON: {error}", key="input") from error
        if not isinstance(value, dict):
            raise ConfigError("the input of a run is an object", key="input")
        names = self.agents
        if agent is not None and agent not in names:
            hint = f"agents: {', '.join(names)}"
            raise ConfigError(f"there is no agent {agent!r}", key="agent", hint=hint)
        return self.start_run(value, agent, caller, format)

    def start_run(
        self,
        value: dict[str, Any],
        agent: Optional[str],
        caller: Optional[Caller],
        format: str = "ag-ui",
        *,
        scope: Optional[Mapping[str, Any]] = None,
    ) -> RunHandle:
        """As `run`, for an agent that there is; `scope` are further members of the scope of its request."""
        known = self._agents.get(agent) if agent is not None else None
        base = "" if agent is None else f"/agents/{agent}"
        path = str(known.settings.get("path", "/")) if known is not None else "/"
        return RunHandle(self, value, base, path, caller, format, scope)


class RunHandle:
    """A run that was started without HTTP: an async iterator of its events, as dicts."""

    def __init__(
        self,
        gateway: Gateway,
        input: dict[str, Any],
        base: str,
        path: str,
        caller: Optional[Caller],
        format: str,
        scope: Optional[Mapping[str, Any]] = None,
    ) -> None:
        self._gateway = gateway
        self._input = input
        self._base = base
        self._path = f"{base}{path}" if path != "/" else (base or "/")
        self._caller = caller
        self._format = format
        self._scope = scope
        self._events: Optional[AsyncIterator[dict[str, Any]]] = None
        self._last: Optional[dict[str, Any]] = None
        self._is_complete = False

    @property
    def thread_id(self) -> str:
        return str(self._input["threadId"])

    @property
    def run_id(self) -> str:
        return str(self._input["runId"])

    def __aiter__(self) -> AsyncIterator[dict[str, Any]]:
        if self._events is None:
            self._events = self._read()
        return self._events

    async def _read(self) -> AsyncIterator[dict[str, Any]]:
        headers = {"accept": "text/event-stream"}
        body = json.dumps(self._input).encode()
        if self._format == "ag-ui":
            stream = self._frames("POST", self._path, headers, body)
        else:
            started = self._frames("POST", self._path, headers, body)
            try:
                await started.__anext__()
            finally:
                await started.aclose()
            stream = self._follow()
        try:
            async for event in stream:
                self._last = event
                yield event
            self._is_complete = True
        finally:
            await stream.aclose()

    def _follow(self) -> AsyncGenerator[Any, None]:
        """The events of the run from its start, which another reader has begun."""
        path = f"{self._base}/runs/{self.run_id}/stream?format={self._format}"
        return self._frames("GET", path, {"accept": "text/event-stream"}, b"")

    async def _frames(self, method: str, path: str, headers: Headers, body: bytes) -> AsyncGenerator[Any, None]:
        queue: asyncio.Queue[Any] = asyncio.Queue(16)
        answer = _Answer()

        async def send(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                await answer.send(message)
            else:
                await queue.put(message)

        async def exchange() -> None:
            try:
                await self._gateway._exchange(method, path, headers, body, self._caller, send, self._scope)
            except BaseException as error:
                await queue.put(error)
                raise

        task = asyncio.get_running_loop().create_task(exchange())
        # The name of an event is beside its data.
        has_names = self._format.partition("@")[0] == "langgraph"
        rest = b""
        try:
            while True:
                message = await queue.get()
                if isinstance(message, BaseException):
                    raise message
                rest += message.get("body", b"")
                if answer.status >= 400:
                    if not message.get("more_body", False):
                        raise _failure(answer.status, rest)
                    continue
                *frames, rest = rest.split(b"\n\n")
                for frame in frames:
                    lines = [line[5:].strip() for line in frame.split(b"\n") if line.startswith(b"data:")]
                    if lines and lines != [b"[DONE]"]:
                        data = json.loads(b"\n".join(lines))
                        yield {"event": _name_of(frame), "data": data} if has_names else data
                if not message.get("more_body", False):
                    return
        finally:
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled():
                task.exception()

    async def stop(self) -> None:
        """Stops the run."""
        path = f"{self._base}/runs/{self.run_id}/stop"
        status, _, body = await self._gateway.request("POST", path, caller=self._caller)
        if status >= 400:
            raise _failure(status, body)

    async def result(self) -> dict[str, Any]:
        """The terminal event, after the run. Raises `Failure` if the run failed."""
        async for _ in self:
            pass
        if not self._is_complete:
            # A loop over the events was cancelled. The run goes on, and this reader of it has ended.
            async for event in self._follow():
                self._last = event
            self._is_complete = True
        last = self._last or {}
        if last.get("type") == "RUN_ERROR":
            raise Failure(str(last.get("code") or "RUN_ERROR"), str(last.get("message", "")))
        return last


class _Answer:
    """A response that is collected."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = bytearray()

    async def send(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in message["headers"]}
        else:
            self.body += message.get("body", b"")


def _check_format(name: str) -> None:
    """Raises `ConfigError` for a format whose events are not JSON in SSE."""
    if name == "ag-ui":
        return
    known: list[str] = []
    for format in formats():
        written = [profile for profile in format.profiles if profile.framing == "SSE"]
        # The name alone means the first profile.
        known += [format.name] if format.profiles[:1] == written[:1] != [] else []
        known += [f"{format.name}@{profile.name}" for profile in written]
    if name not in known:
        raise ConfigError(f"a run cannot be given as {name!r}", key="format", hint=f"formats: {', '.join(known)}")


def _name_of(frame: bytes) -> str:
    """The name of an event of SSE."""
    names = [line[6:].strip() for line in frame.split(b"\n") if line.startswith(b"event:")]
    return names[-1].decode() if names else "message"


def _failure(status: int, body: bytes) -> Failure:
    try:
        error = json.loads(body)["error"]
        return Failure(error["code"], error["message"])
    except (ValueError, KeyError, TypeError):
        return Failure("HTTP_ERROR", f"the gateway answered {status}")


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        both = isinstance(old, Mapping) and isinstance(value, Mapping)
        merged[key] = _merged(old, value) if both else value  # type: ignore[arg-type]
    return merged


def load_object(location: str) -> Any:
    """The object at `MODULE:ATTRIBUTE`."""
    from importlib import import_module

    module, _, attribute = location.partition(":")
    if not module or not attribute:
        raise ConfigError(f"{location!r} does not name an object", key="object", hint="MODULE:ATTRIBUTE")
    try:
        found: Any = import_module(module)
        for name in attribute.split("."):
            found = getattr(found, name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{location!r} cannot be loaded: {error}", key="object") from error
    return found


def _after_fork() -> None:
    """In a child: the threads of the parent's gateways are not here."""
    for gateway in list(_started):
        gateway._server.abandon()
        gateway._bridge = None
        gateway._is_closed = True
    _started.clear()


def _at_exit() -> None:
    """Gives open runs their ending, if nobody did."""
    for gateway in list(_started):
        gateway._server.drain_now()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)
