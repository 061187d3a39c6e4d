"""The bridge between Python's loop and the gateway: calls of the gateway become tasks, requests become exchanges.

No thread of the gateway takes the GIL. It leaves notes and wakes the loop by one byte on a socket; Python takes all notes
at once. Python objects stay here, under a number.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
import logging
import signal
import socket
import sys
import threading
import traceback
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any, Optional
from urllib.parse import quote, unquote

from . import _native
from .agents import Agent, RunRequest, maybe_await
from .errors import Failure, GatewayClosed, ReaderCut, StoreError, described
from .hooks import HooksOfRun, context_of, is_overridden, locked
from .identity import Caller, IdentityFn, RequestInfo, Scope, caller_of, info_of, refusal

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

RunKey = tuple[str, str, str, str]
#: Time for the `finally` of an agent whose run was stopped.
STOP_GRACE = 5.0
#: Time for open responses after a drain.
LAST_WRITES = 5.0
#: The time without a turn of the loop from which on it is told, in seconds.
BLOCKED = 1.0
#: The numbers of `put`.
FULL, CLOSED, NO_EVENT = 1, 2, 3
#: The ends of a response.
WHOLE, CUT = 1, 2

_log = logging.getLogger("agentwire")


class Record:
    """A request whose data is needed as long as its run."""

    __slots__ = ("context", "scope", "path", "body", "_info", "left")

    def __init__(self, scope: Scope, path: str) -> None:
        self.context = contextvars.copy_context()
        self.scope = scope
        self.path = path
        self.body: Optional[bytearray] = None
        self._info: Optional[RequestInfo] = None
        self.left = False

    def info(self) -> RequestInfo:
        if self._info is None:
            self._info = info_of(self.scope, self.path)
        if self.body is not None:
            self._info.body = bytes(self.body)
        return self._info


class Call:
    """A call of the gateway, which is answered by a stream of objects or bytes."""

    __slots__ = ("bridge", "id", "target", "kind", "payload", "record", "natives", "is_cancelled", "skipped", "_told")

    def __init__(
        self, bridge: Bridge, id: int, target: str, kind: str, payload: dict[str, Any], record: Optional[Record]
    ) -> None:
        self.bridge = bridge
        self.id = id
        self.target = target
        self.kind = kind
        self.payload = payload
        self.record = record
        #: The objects of native events, for hooks.
        self.natives: Optional[deque[Any]] = None
        self.is_cancelled = False
        #: Objects that were no events.
        self.skipped = 0
        self._told: set[str] = set()

    def put(self, event: Any) -> bool:
        """Appends an event. True if the caller has to wait for room."""
        try:
            put = self.bridge.server.put(self.id, event)
        except Exception as error:
            self.skip(event, error)
            return False
        if put == NO_EVENT:
            self.skip(event, None)
        elif self.natives is not None:
            self.natives.append(event)
        return put in (FULL, CLOSED)

    def skip(self, event: Any, error: Optional[Exception]) -> None:
        """Leaves out an object, and tells it once per type."""
        self.skipped += 1
        kind = type(event).__name__
        if kind not in self._told:
            self._told.add(kind)
            reason = "is no event" if error is None else f"cannot be read ({described(error)})"
            _log.getChild("agent").warning("an object of type %s from agent %r %s", kind, self.target, reason)

    def put_bytes(self, data: bytes) -> bool:
        """Appends bytes. True if the caller has to wait for room."""
        return self.bridge.server.put_bytes(self.id, data) in (FULL, CLOSED)

    async def room(self) -> bool:
        """Waits for room. False if nobody listens any more."""
        return await self.bridge.room(self.id)

    async def send(self, data: bytes) -> None:
        """Appends bytes, in pieces that fit."""
        if self.put_bytes(data):
            await self.room()

    def respond(self, status: int, body: Any = None, headers: Optional[dict[str, str]] = None) -> None:
        """The whole response to a request of kind `http`; `body` as JSON."""
        self.head(status, {"content-type": "application/json", **(headers or {})})
        if body is not None:
            self.bridge.server.put_bytes(self.id, _native.to_json(body).encode())

    def head(self, status: int, headers: dict[str, str]) -> None:
        """The head of a response to a request of kind `http`."""
        head = json.dumps({"status": status, "headers": headers}) + "\n"
        self.bridge.server.put_bytes(self.id, head.encode())

    def run_request(self) -> RunRequest:
        """The run that the call is about."""
        info = self.record.info() if self.record is not None else None
        headers = dict(self.payload["headers"])
        if info is not None:
            headers = {**info.headers, **headers}
        return RunRequest(
            input=json.loads(self.payload["input"]),
            caller=Caller(self.payload["user"], self.payload["tenant"]),
            headers=headers,
            info=info,
        )


class Bridge:
    """A started gateway in one loop."""

    def __init__(
        self,
        server: _native.Server,
        agents: dict[str, Agent],
        others: Agent,
        identity: Optional[IdentityFn],
        keep_bodies: bool,
    ) -> None:
        self.server = server
        self.agents = agents
        #: The hooks and the lock of agents of the configuration file.
        self.others = others
        self.identity = identity
        self.keep_bodies = keep_bodies
        self.loop = asyncio.get_running_loop()
        self._body_limit = server.body_limit()
        self._socket: Optional[socket.socket] = None
        self._waiters: dict[int, asyncio.Future[None]] = {}
        self._rooms: dict[int, asyncio.Future[None]] = {}
        #: Exchanges whose body is read, and those whose body nobody wants any more.
        self._with_body: set[int] = set()
        self._closed_bodies: set[int] = set()
        self._tasks: dict[int, tuple[asyncio.Task[None], Call]] = {}
        self._records: dict[int, Record] = {}
        self._done: dict[int, asyncio.Future[Optional[str]]] = {}
        # Hooks of runs by their number, and the objects of native events by run.
        self._hooks: dict[int, tuple[HooksOfRun, RunKey]] = {}
        self._natives: dict[RunKey, deque[Any]] = {}
        self.open = 0

    # Notes

    async def start(self, worker_threads: int, log: str) -> None:
        """Opens the store. Raises `StoreError` if that fails."""
        started = self._done[0] = self.loop.create_future()
        self._socket = socket.socket(fileno=self.server.start(worker_threads, log))
        self._socket.setblocking(False)
        try:
            self.loop.add_reader(self._socket, self._wake)
        except NotImplementedError:
            # The loop of Windows cannot watch a socket: the only thread that ever waits for the GIL.
            self._socket.setblocking(True)
            threading.Thread(target=self._watch, args=(self._socket,), name="agentwire", daemon=True).start()
        error = await started
        if error is not None:
            self.stop()
            raise StoreError(error, code="STORE_UNAVAILABLE")

    def _watch(self, woken: socket.socket) -> None:
        while True:
            try:
                if not woken.recv(4096):
                    return
                self.loop.call_soon_threadsafe(self.take_notes)
            except (OSError, RuntimeError):
                return

    def _wake(self) -> None:
        try:
            if self._socket is not None:
                self._socket.recv(4096)
        except (BlockingIOError, InterruptedError):
            pass
        self.take_notes()

    def take_notes(self) -> int:
        """Handles everything that the gateway has left here."""
        notes, lost, late = self.server.notes()
        if late > BLOCKED:
            _log.warning("the event loop was blocked for %.1f s: agents, hooks and identity functions were late", late)
        for note in notes:
            kind = note[0]
            if kind == "ready":
                _resolve(self._waiters.pop(note[1], None))
            elif kind == "room":
                _resolve(self._rooms.pop(note[1], None))
            elif kind == "call":
                self._begin(*note[1:])
            elif kind == "request":
                self._note_request(*note[1:])
            elif kind == "cancel":
                self._cancel(note[1])
            elif kind == "release":
                self._records.pop(note[1], None)
                released = self._hooks.pop(note[1], None)
                if released is not None:
                    self._natives.pop(released[1], None)
            elif kind == "done":
                future = self._done.pop(note[1], None)
                if future is not None and not future.done():
                    future.set_result(note[2])
            elif kind == "log":
                try:
                    _write_log(*note[1:])
                except Exception:
                    # A filter of the program failed; the notes after this one must be heard.
                    traceback.print_exc(file=sys.stderr)
        if lost:
            _log.warning("%d records of the log were lost", lost)
        return len(notes)

    def _note_request(
        self, id: int, method: str, target: str, headers: list[tuple[bytes, bytes]], client: Optional[str]
    ) -> None:
        """A request of the gateway's own server."""
        path, _, query = target.partition("?")
        scope: Scope = {
            "type": "http",
            "method": method,
            "path": unquote(path),
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": headers,
            "client": None if client is None else (client, 0),
        }
        self._records[id] = Record(scope, unquote(path))

    def _begin(self, id: int, target: str, kind: str, payload: str, context: Optional[int]) -> None:
        record = self._records.get(context) if context is not None else None
        call = Call(self, id, target, kind, json.loads(payload), record)
        run_in = record.context.copy().run if record is not None else contextvars.copy_context().run
        task = run_in(self.loop.create_task, self._answer(call))
        self._tasks[id] = (task, call)

    async def _answer(self, call: Call) -> None:
        try:
            if call.kind == "identity":
                await self._identify(call)
            elif call.kind == "hook":
                await self._hook(call)
            elif call.kind in ("lock", "unlock"):
                await self._lock(call)
            else:
                agent = self.agents[call.target]
                if agent.hooks is not None and keeps_natives(agent.hooks):
                    call.natives = self._natives.setdefault(run_key(call.target, call.payload), deque())
                await agent.answer(call)
        except asyncio.CancelledError as error:
            if call.is_cancelled:
                raise
            if not _is_cancelled():
                # Something that it has awaited was cancelled, not the task itself.
                self._fail(call, error)
                return
            # By somebody else: the loop of the program ends.
            self.server.end(call.id, "GATEWAY_SHUTDOWN", "the gateway is shutting down")
            raise
        except BaseException as error:
            # Also SystemExit: raised in a task, it would end the loop, and the server with it.
            self._fail(call, error)
            if isinstance(error, KeyboardInterrupt) and _is_from_terminal():
                _retrieve()
                raise
        else:
            self.server.end(call.id)
        finally:
            self._tasks.pop(call.id, None)
            self._rooms.pop(call.id, None)

    def _fail(self, call: Call, error: BaseException) -> None:
        """Ends a call by its exception, whatever that is: a call that does not end holds its run."""
        try:
            told = error if isinstance(error, Failure) else (refusal(error) if call.kind == "identity" else None)
            if told is not None:
                retry = None if told.retry_after is None else max(0, round(told.retry_after))
                detail = "" if told.detail is None else str(told.detail)
                status = getattr(told, "status", None)
                self.server.end(call.id, told.code, told.message, detail, status, retry)
                return
        except Exception as wrong:
            _log.getChild("agent").error("the failure of agent %r cannot be told", call.target, exc_info=wrong)
        self.server.end(call.id, None, "failed", described(error))
        _log.getChild("agent").error("%s of agent %r failed", call.kind, call.target, exc_info=error)

    async def _identify(self, call: Call) -> None:
        agent = self.agents.get(call.target)
        function = self.identity if agent is None or agent.identity is None else agent.identity
        if function is None or call.record is None:
            raise RuntimeError("there is no identity function")
        info = call.record.info()
        info.agent, info.part, info.path_params = (call.payload[key] for key in ("agent", "part", "params"))
        if "body" in call.payload:
            info.body = call.payload["body"].encode("latin-1")
        caller = caller_of(await maybe_await(function(info)))
        found = {"user": caller.user, "tenant": caller.tenant, "thread": caller.thread}
        self.server.put_bytes(call.id, json.dumps(found).encode())

    async def _hook(self, call: Call) -> None:
        number = call.payload["id"]
        found = self._hooks.get(number)
        if found is None:
            # The run is in the calls up to the first answer.
            run = call.payload["run"]
            factory = self.agents.get(call.target, self.others).hooks
            key = run_key(call.target, run)
            made = await maybe_await(factory(context_of(run, call)))
            natives = self._natives.setdefault(key, deque()) if keeps_natives(factory) else None
            of_run = HooksOfRun(made, natives, is_overridden(factory, "native"))
            found = self._hooks[number] = (of_run, key)
        answer = await found[0].answer(call.payload["hook"], call.payload["data"])
        await call.send(answer.encode())

    async def _lock(self, call: Call) -> None:
        lock = self.agents.get(call.target, self.others).lock
        run = context_of(call.payload, call)
        if call.kind == "lock":
            call.put_bytes((await locked(lock, run)).encode())
        else:
            await maybe_await(lock.unlock(run))

    def _cancel(self, id: int) -> None:
        _resolve(self._rooms.pop(id, None))
        found = self._tasks.get(id)
        if found is None:
            if id in self._with_body:
                self._closed_bodies.add(id)
            return
        task, call = found
        call.is_cancelled = True
        task.cancel()
        timer = self.loop.call_later(STOP_GRACE, self._look_after, task, call)
        # A timer that is kept holds the task and the request of the run.
        task.add_done_callback(lambda _: timer.cancel())

    def _look_after(self, task: asyncio.Task[None], call: Call) -> None:
        if not task.done():
            _log.getChild("agent").error(
                "agent %r goes on %.0f s after its run was stopped; nobody hears it", call.target, STOP_GRACE
            )
            self._tasks.pop(call.id, None)

    async def room(self, id: int) -> bool:
        """Waits until a pipe has room. False if nobody listens."""
        while True:
            waiter = self._rooms[id] = self.loop.create_future()
            put = self.server.put_bytes(id, b"")
            if put != FULL:
                self._rooms.pop(id, None)
                return put != CLOSED
            await waiter

    # Exchanges

    async def exchange(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        target: bytes,
        path: str,
        part: str = "all",
        caller: Optional[Caller] = None,
    ) -> None:
        """Passes a request to the gateway's router, and its response on."""
        prefix = quoted(scope.get("root_path", "").rstrip("/"))
        headers = list(scope.get("headers", ()))
        method = scope["method"]
        has_body = _has_body(method, headers)
        client = (scope.get("client") or (None,))[0]
        named = None if caller is None else (caller.tenant, caller.user, caller.thread)
        is_https = scope.get("scheme") == "https"
        record = Record(scope, path)
        if self.keep_bodies:
            record.body = bytearray()
        try:
            id = self.server.request(method, target, headers, client, is_https, has_body, part, named, prefix)
        except ValueError as error:
            await refuse(send, 400, "BAD_REQUEST", str(error))
            return
        self._records[id] = record
        if has_body:
            self._with_body.add(id)
        self.open += 1
        incoming = self.loop.create_task(self._incoming(id, record, receive, has_body))
        try:
            await self._outgoing(id, record, send)
        finally:
            self.open -= 1
            self.server.close(id)
            self._waiters.pop(id, None)
            incoming.cancel()
            self._with_body.discard(id)
            self._closed_bodies.discard(id)

    async def _outgoing(self, id: int, record: Record, send: Send) -> None:
        take = self.server.take
        is_begun = False
        while not record.left:
            status, headers, data, end = take(id)
            if status is not None:
                is_begun = True
                await send({"type": "http.response.start", "status": status, "headers": headers})
            if data or end == WHOLE:
                await send({"type": "http.response.body", "body": data, "more_body": end != WHOLE})
            if end == WHOLE:
                return
            if end == CUT:
                raise ReaderCut("the reader was cut") from None
            if status is None and not data:
                waiter = self._waiters[id] = self.loop.create_future()
                await waiter
        if not is_begun:
            # Nobody reads it, but some middleware fails without a response.
            with suppress(Exception):
                await refuse(send, 400, "BAD_REQUEST", "the client left")

    async def _incoming(self, id: int, record: Record, receive: Receive, has_body: bool) -> None:
        """Feeds the body, then waits for the client to leave."""
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                break
            if not has_body:
                continue
            data = message.get("body", b"")
            if record.body is not None and len(record.body) <= self._body_limit:
                record.body += data
            full = bool(data) and self.server.put_bytes(id, data) == FULL
            if not message.get("more_body", False):
                self.server.end(id)
                has_body = False
            elif full and not await self.room(id):
                has_body = False
            if id in self._closed_bodies:
                has_body = False
        record.left = True
        # A body that was cut off.
        if has_body:
            self.server.end(id, None, "the client left", "")
        self.server.close(id)
        _resolve(self._waiters.pop(id, None))

    def listen(self, address: str) -> tuple[str, asyncio.Future[Optional[str]]]:
        """Serves HTTP by the gateway's own server: its address, and the reason of its end if that was no drain."""
        found, id = self.server.listen(address)
        ended = self._done[id] = self.loop.create_future()
        return found, ended

    # End

    async def drain(self, grace: Optional[float]) -> None:
        """No new runs, and endings for the live ones after the grace time."""
        id = self.server.drain(grace)
        done = self._done[id] = self.loop.create_future()
        await done
        self.take_notes()

    async def finish(self) -> None:
        """Waits for open responses and for tasks that end, then stops."""
        deadline = self.loop.time() + LAST_WRITES
        while self.open and self.loop.time() < deadline:
            await asyncio.sleep(0.02)
        tasks = [task for task, _ in self._tasks.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=STOP_GRACE)
        while self.take_notes():
            await asyncio.sleep(0)
        self.stop()

    def stop(self) -> None:
        """Ends the gateway here."""
        if self._socket is not None:
            try:
                self.loop.remove_reader(self._socket)
            except (NotImplementedError, RuntimeError):
                pass
            self.server.stop()
            self._socket.close()
            self._socket = None


def _is_cancelled() -> bool:
    """True if the task itself was cancelled, as far as this version of Python knows."""
    cancelling = getattr(asyncio.current_task(), "cancelling", None)
    return cancelling is None or cancelling() > 0


def _is_from_terminal() -> bool:
    """True if a KeyboardInterrupt may come from the terminal.

    Servers and `asyncio.run` have a handler of their own, and only the main thread gets signals.
    """
    is_main = threading.current_thread() is threading.main_thread()
    return is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler


def _retrieve() -> None:
    """Marks the exception of the current task as seen: it is in the log already."""
    task = asyncio.current_task()
    if task is not None:
        task.add_done_callback(lambda done: done.cancelled() or done.exception())


def run_key(agent: str, payload: dict[str, Any]) -> RunKey:
    """The run that a call is about."""
    return agent, payload["tenant"], payload["user"], payload["run"]


def keeps_natives(factory: Any) -> bool:
    """True if hooks want the objects of native events."""
    return is_overridden(factory, "native") or is_overridden(factory, "translate")


def _resolve(future: Optional[asyncio.Future[None]]) -> None:
    if future is not None and not future.done():
        future.set_result(None)


def _has_body(method: str, headers: list[tuple[bytes, bytes]]) -> bool:
    for name, value in headers:
        lower = name.lower()
        if lower == b"content-length":
            return value.strip() != b"0"
        if lower == b"transfer-encoding":
            return True
    return method not in ("GET", "HEAD", "OPTIONS", "DELETE", "TRACE")


async def refuse(send: Send, status: int, code: str, message: str) -> None:
    """An error response of the bridge itself."""
    body = json.dumps({"error": {"code": code, "message": message}}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"agentwire-error-code", code.encode()),
        (b"cache-control", b"no-store"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})


def quoted(path: str) -> str:
    """A path as in the head of a request."""
    return quote(path, safe="/:@!$&'()*+,;=~")


def target_of(scope: Scope) -> Optional[tuple[bytes, str]]:
    """The path of a request below the place where the gateway is mounted, with its query; `None` if it is not below."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "").rstrip("/")
    raw: Optional[bytes] = scope.get("raw_path")
    outer: str = scope.get("app_root_path", "").rstrip("/")
    if outer and root.startswith(f"{outer}/") and not path.startswith(f"{outer}/"):
        # A proxy has removed the prefix of the whole app; `root_path` has it, and the place of the mount behind it.
        root = root[len(outer) :]
    if root and path != root and not path.startswith(f"{root}/") and "app_root_path" in scope:
        # A mount of Starlette before 0.33 takes its place off the path.
        root, raw = "", None
    if root:
        if path != root and not path.startswith(f"{root}/"):
            return None
        path = path[len(root) :]
        prefix = quoted(root).encode()
        raw = raw[len(prefix) :] if raw is not None and raw.startswith(prefix) else None
    path = path or "/"
    if raw is None:
        raw = quoted(path).encode()
    target = raw.split(b"?")[0] or b"/"
    query = scope.get("query_string", b"")
    return (target + b"?" + query if query else target), path


def _write_log(level: int, target: str, message: str, fields: str) -> None:
    name = target.replace("agentwire_gateway::", "").replace("agentwire_", "").replace("::", ".")
    logger = _log.getChild(name)
    if logger.isEnabledFor(level):
        values = json.loads(fields)
        text = ", ".join(f"{key}={value}" for key, value in values.items())
        logger.log(level, "%s%s", message, f" ({text})" if text else "", extra={"agentwire": values})


def closed() -> GatewayClosed:
    """The error of a gateway that cannot be used here."""
    return GatewayClosed("the gateway is closed: it was drained, or belongs to the parent of this process")
