"""Objects, agents, hooks and identity functions that do what nobody should: an exception or RUN_ERROR each, and no hang."""

import asyncio
import dataclasses
import gc
import json
import logging
import subprocess
import sys
import threading

import agentwire
import pytest
from agentwire import Translator, to_line
from langchain_core.runnables import RunnableLambda
from langgraph.graph import START, MessagesState, StateGraph
from servers import Served, run_input, text_of
from starlette.testclient import TestClient

LIMIT = 120


def running(main):
    """Runs a coroutine; one that hangs fails."""

    async def limited():
        return await asyncio.wait_for(main(), LIMIT)

    return asyncio.run(limited())


def run(agent, text="x", **settings):
    async def main():
        async with Served(agent, **settings) as served:
            return await served.say(text)

    return running(main)


# Objects


class Raises:
    """Nothing of it can be read."""

    def __str__(self):
        raise ValueError("no text")

    __repr__ = __hash__ = __str__

    def __getattribute__(self, name):
        raise ValueError(f"no {name}")


class BadDump:
    def model_dump(self):
        raise ValueError("no dump")

    def __str__(self):
        raise ValueError("no text")


class OwnDump:
    """Its description is itself."""

    def model_dump(self):
        return self


class Twice:
    """Every description has two more."""

    def model_dump(self):
        return [Twice(), Twice()]


@dataclasses.dataclass
class BadProperty:
    value: int = 1

    def __getattribute__(self, name):
        if name == "value":
            raise RuntimeError("no value")
        return object.__getattribute__(self, name)


class Lies(dict):
    """A dict whose methods and class are not those of a dict."""

    def get(self, *arguments):
        raise ValueError("no get")

    __getitem__ = items = keys = __iter__ = get

    @property
    def __class__(self):
        return int


class Grows:
    """Its text makes the list longer that it is in."""

    def __init__(self, place):
        self.place = place

    def __str__(self):
        self.place.append(Grows(self.place))
        return "x" * 100


def cycle():
    found = []
    found += [found, found]
    return found


def laughs():
    found = ["ha"]
    for _ in range(60):
        found = [found, found]
    return found


def deep():
    found = {}
    for _ in range(100_000):
        found = {"a": [found]}
    return found


def growing():
    found = []
    found.append(Grows(found))
    return found


OBJECTS = {
    "raises": lambda: Raises(),
    "bad dump": lambda: BadDump(),
    "own dump": lambda: OwnDump(),
    "twice": lambda: Twice(),
    "bad property": lambda: BadProperty(),
    "lies": lambda: Lies(a=1),
    "cycle": cycle,
    "laughs": laughs,
    "deep": deep,
    "growing": growing,
    "huge integer": lambda: 10**10_000,
    "numbers": lambda: [float("nan"), float("inf"), -float("inf"), 10**400, -0.0, True],
    "keys": lambda: {1: 1, None: 2, (1, 2): 3, Raises: 4, b"x": 5},
    "surrogates": lambda: "\ud800 \udfff",
    "class": lambda: Raises,
    "memory": lambda: memoryview(b"abc"),
    "generator": lambda: (x for x in [1]),
    "lock": threading.Lock,
}


@pytest.mark.parametrize("name", OBJECTS)
def test_an_object_is_written_or_left_out(name):
    stream = Translator("ag-ui", "ag-ui", max_frame=1 << 20)
    out = b""
    for event in (
        {"type": "RUN_STARTED", "threadId": "t", "runId": "r"},
        {"type": "CUSTOM", "name": "n", "value": OBJECTS[name]()},
        OBJECTS[name](),
        {"type": "CUSTOM", "name": "last", "value": 1},
        {"type": "RUN_FINISHED", "threadId": "t", "runId": "r"},
    ):
        # A str, or a buffer, is a piece of a stream.
        if type(event) in (str, memoryview):
            continue
        out += stream.push(event)
    out += stream.finish()
    events = [json.loads(line[6:]) for line in out.decode().splitlines() if line.startswith("data: ")]
    assert [event["type"] for event in (events[0], events[-1])] == ["RUN_STARTED", "RUN_FINISHED"]
    assert events[-2]["name"] == "last"
    try:
        line = to_line(OBJECTS[name]())
    except Exception as error:
        # The exception of the object's own code.
        assert isinstance(error, (ValueError, RuntimeError)), error
    else:
        json.loads(line)


@pytest.mark.parametrize("name", OBJECTS)
def test_an_agent_that_yields_an_object(name):
    @agentwire.agent(limits={"max_frame": "1MiB"})
    async def odd(request):
        yield "before"
        yield [OBJECTS[name]()]
        yield " after"

    events = run(odd)
    if events[-1]["type"] == "RUN_ERROR":
        # It was read, and is no event, or a larger one than is allowed.
        assert events[-1]["code"] in ("LIMIT_EXCEEDED", "UPSTREAM_MALFORMED"), events[-1]
    else:
        text = text_of(events)
        assert text.startswith("before") and text.endswith(" after")


# Agents


def returning(value):
    def agent(request):
        return value() if callable(value) else value

    return agent


async def coroutine():
    return None


@pytest.mark.parametrize(
    "value", [None, 42, "text", [1, 2], {"type": "CUSTOM"}, lambda: iter("abc"), lambda: (x for x in "abc"), coroutine]
)
def test_an_agent_that_returns_no_async_iterator(value, caplog):
    with caplog.at_level(logging.ERROR):
        events = run(returning(value))
    assert events[-1]["code"] == "UPSTREAM_FAILED"
    assert "an agent gives an async iterator, not" in caplog.text


class BadText(Exception):
    def __str__(self):
        raise RuntimeError("no text")

    __repr__ = __str__


FAILURES = {
    "bad text": BadText,
    "bad failure": lambda: agentwire.Failure(42, None),  # type: ignore[arg-type]
    "bad retry": lambda: agentwire.Failure("CODE", "message", retry_after="soon"),  # type: ignore[arg-type]
    "bad detail": lambda: agentwire.Failure("CODE", "message", detail=BadText()),
    "cancelled": asyncio.CancelledError,
    "group": lambda: ExceptionGroup("several", [ValueError("a"), TypeError("b")]),
    "stop": StopAsyncIteration,
    "exit of a generator": GeneratorExit,
    "surrogates": lambda: RuntimeError("\ud800"),
    "exit": lambda: SystemExit(3),
    "interrupt": KeyboardInterrupt,
    "own base": lambda: type("Own", (BaseException,), {})("x"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_an_agent_that_raises(name):
    @agentwire.agent
    async def raises(request):
        yield "before"
        raise FAILURES[name]()

    async def main():
        told = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context))
        async with Served(raises) as served:
            events = await served.say("x")
            # The server lives, and asyncio has nothing to complain about.
            gc.collect()
            assert (await served.get("/livez"))[0] == 200
        return events, told

    events, told = running(main)
    assert events[-1]["type"] == "RUN_ERROR" and text_of(events) == "before"
    assert sum(event["type"] == "RUN_ERROR" for event in events) == 1
    assert told == []


def test_an_interrupt_in_another_thread_is_no_signal():
    """The loop of a test client is one of its own thread."""

    @agentwire.agent
    async def interrupted(request):
        yield "before"
        raise KeyboardInterrupt

    gateway = agentwire.Gateway(interrupted, store="memory:")
    with TestClient(gateway) as client:
        assert '"code":"UPSTREAM_FAILED"' in client.post("/", json=run_input("x")).text
        assert client.get("/livez").status_code == 200


def test_an_interrupt_from_the_terminal_ends_the_program():
    """Without a handler of its own for Ctrl-C, as with `run_until_complete`, the program gets the exception."""
    code = """
import asyncio, agentwire

@agentwire.agent
async def interrupted(request):
    yield "before"
    raise KeyboardInterrupt

async def main():
    gateway = agentwire.Gateway(interrupted, store="memory:")
    await gateway.start()
    async for event in gateway.run({"messages": [{"id": "1", "role": "user", "content": "x"}]}):
        pass

loop = asyncio.new_event_loop()
try:
    loop.run_until_complete(main())
except KeyboardInterrupt:
    print("interrupted")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=LIMIT)
    assert done.stdout.splitlines() == ["interrupted"], done.stderr


def test_an_agent_whose_helper_was_cancelled():
    @agentwire.agent
    async def helped(request):
        yield "before"
        helper = asyncio.ensure_future(asyncio.sleep(3600))
        helper.cancel()
        await helper

    assert run(helped)[-1]["code"] == "UPSTREAM_FAILED"


def test_an_agent_that_yields_only_nothing_can_be_stopped():
    """It never awaits: the loop gets turns nevertheless."""

    @agentwire.agent
    async def nothing(request):
        yield "begun"
        while True:
            yield None

    async def main():
        async with Served(nothing) as served:
            handle = served.gateway.run(run_input("x"), agent="a")
            async for event in handle:
                if event["type"] == "TEXT_MESSAGE_CONTENT":
                    await handle.stop()
            return await served.get("/runs/r")

    assert running(main)[1]["status"] == "stopped"


def test_an_agent_that_calls_its_gateway():
    """Runs inside of runs, and requests inside of hooks."""
    gateways = []

    @agentwire.agent
    async def inner(request):
        yield f"inner {request.user_text()}"

    @agentwire.agent
    async def outer(request):
        given = run_input("from outer", "inner-thread", f"{request.run_id}-inner")
        async for event in gateways[0].run(given, agent="inner"):
            if event["type"] == "TEXT_MESSAGE_CONTENT":
                yield event["delta"]

    class Asks(agentwire.Hooks):
        async def event(self, event):
            status, _, _ = await gateways[0].request("GET", "/livez")
            assert status == 200
            return event

    async def main():
        gateway = agentwire.Gateway({"outer": outer, "inner": inner}, store="memory:", signals=False, hooks=Asks)
        gateways.append(gateway)
        async with gateway.lifespan():
            return [event async for event in gateway.run(run_input("x"), agent="outer")]

    assert text_of(running(main)) == "inner from outer"


def test_an_agent_that_drains_its_gateway():
    gateways = []

    @agentwire.agent
    async def ends(request):
        yield "before"
        await gateways[0].drain(0.1)
        yield "never"

    async def main():
        gateway = agentwire.Gateway(ends, store="memory:", signals=False)
        gateways.append(gateway)
        await gateway.start()
        events = []
        try:
            async for event in gateway.run(run_input("x")):
                events.append(event)
        finally:
            await gateway.drain()
        return events

    events = running(main)
    assert text_of(events) == "before" and events[-1]["code"] == "GATEWAY_SHUTDOWN"


def test_a_gateway_that_is_used_by_another_thread():
    @agentwire.agent
    async def plain(request):
        yield "hello"

    async def main():
        async with Served(plain) as served:

            async def use():
                return [event async for event in served.gateway.run(run_input("x"))]

            def thread():
                with pytest.raises(RuntimeError, match="another event loop"):
                    asyncio.run(use())
                return True

            assert await asyncio.to_thread(thread)
            return await served.say("x")

    assert text_of(running(main)) == "hello"


def test_threads_that_emit_events():
    def node(state, config):
        emitter = agentwire.EventEmitter(config)
        threads = [
            threading.Thread(target=lambda n=n: [emitter.emit(f"e{n}", {"i": i}) for i in range(10)]) for n in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return {}

    graph = StateGraph(MessagesState).add_node("node", node).add_edge(START, "node").compile()
    events = run(agentwire.langgraph(graph))
    custom = [(event["name"], event["value"]["i"]) for event in events if event["type"] == "CUSTOM"]
    assert sorted(custom) == sorted((f"e{n}", i) for n in range(8) for i in range(10))


# Hooks, locks, identity


@agentwire.agent
async def plain(request):
    yield "hello"


def hooks_with(point, method):
    return type("Wrong", (agentwire.Hooks,), {point: method})


async def endless(self, *arguments):
    while True:
        yield {"type": "CUSTOM", "name": "n", "value": 1}


async def cancelled(self, *arguments):
    raise asyncio.CancelledError


async def bad_text(self, *arguments):
    raise BadText


def exits(self, *arguments):
    sys.exit(3)


POINTS = ["input_record", "input", "native", "translate", "event", "state", "output_record", "output"]
#: The points whose result is used, with results that are none of theirs.
WRONG = {
    "input": [None, 42, "text", [], {"threadId": 42}],
    "event": [42, "text", [], {"no": "type"}, {"type": "NO_SUCH_TYPE"}, Raises],
    "output": [None, 42, "text", [], {"no": "type"}],
    "translate": [42, "text", {"no": "type"}],
    "native": [],
    "state": [],
}


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("method", [cancelled, bad_text, exits])
def test_a_hook_that_raises(point, method):
    async def script(request):
        yield {"type": "STATE_SNAPSHOT", "snapshot": {"a": 1}}
        yield "hello"

    events = run(agentwire.agent(script), hooks=hooks_with(point, method))
    assert events[-1]["code"] == "HOOK_FAILED", events


@pytest.mark.parametrize(("point", "value"), [(point, value) for point, values in WRONG.items() for value in values])
def test_a_hook_that_gives_something_else(point, value, caplog):
    with caplog.at_level(logging.INFO):
        events = run(plain, hooks=hooks_with(point, lambda self, *arguments: value))
    assert events[-1]["code"] == "HOOK_FAILED", events
    assert point in caplog.text


@pytest.mark.parametrize("point", ["native", "translate", "event"])
def test_a_hook_that_never_ends(point):
    Limited = type("Limited", (agentwire.Hooks,), {"timeout": 2.0, point: endless})

    async def main():
        async with Served(plain, hooks=Limited) as served:
            events = await served.say("x")
            # The loop is free.
            assert (await served.get("/livez"))[0] == 200
            return events

    assert running(main)[-1]["code"] == "HOOK_FAILED"


def test_a_run_that_is_stopped_in_a_hook():
    """The stop waits for the hook, at most its time limit; the hook is then cancelled."""
    seen = []
    begun = asyncio.Event()

    class Waits(agentwire.Hooks):
        timeout = 1.0

        async def event(self, event):
            if event["type"] == "TEXT_MESSAGE_CONTENT":
                begun.set()
                try:
                    await asyncio.sleep(3600)
                except asyncio.CancelledError:
                    seen.append("cancelled")
                    raise
            return event

    async def main():
        async with Served(plain, hooks=Waits) as served:
            handle = served.gateway.run(run_input("x"), agent="a")

            async def stop():
                await begun.wait()
                await handle.stop()

            stopping = asyncio.ensure_future(stop())
            events = [event async for event in handle]
            await asyncio.wait([stopping])
            while not seen:
                await asyncio.sleep(0.05)
            return events, await served.get("/runs/r")

    events, (_, found) = running(main)
    assert found["status"] in ("stopped", "failed") and seen == ["cancelled"]
    assert events[-1]["type"] in ("RUN_FINISHED", "RUN_ERROR")


@pytest.mark.parametrize("made", [None, 42, "text", object])
def test_a_factory_that_makes_no_hooks(made):
    events = run(plain, hooks=lambda context: made)
    assert events[-1]["code"] == "HOOK_FAILED"


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"hooks": 42}, "hooks"),
        ({"hooks": type("T", (agentwire.Hooks,), {"timeout": "soon"})}, "hooks.timeout"),
        ({"hooks": type("T", (agentwire.Hooks,), {"timeout": float("nan")})}, "hooks.timeout"),
        ({"hooks": type("T", (agentwire.Hooks,), {"native_timeout": -1})}, "hooks.native_timeout"),
        ({"lock": 42}, "lock"),
        ({"lock": agentwire.SessionLock}, "lock"),
        ({"lock": type("L", (agentwire.SessionLock,), {"timeout": None})()}, "lock.timeout"),
        ({"identity": 42}, "identity"),
        ({"identity": "user"}, "identity"),
    ],
)
def test_wrong_arguments_are_refused_at_once(settings, key):
    with pytest.raises(agentwire.ConfigError) as error:
        agentwire.Gateway({"a": plain}, store="memory:", **settings)
    assert error.value.key == key


def test_an_agent_of_two_gateways_has_the_hooks_of_each():
    class Quiet(agentwire.Hooks):
        def event(self, event):
            return None if event["type"].startswith("TEXT") else event

    assert text_of(run(plain, hooks=Quiet)) == ""
    assert text_of(run(plain)) == "hello"


class HttpLike(Exception):
    @property
    def status_code(self):
        raise RuntimeError("no status")


def giving(value):
    def identity(info):
        if isinstance(value, type) and issubclass(value, BaseException):
            raise value
        return value

    return identity


@pytest.mark.parametrize(
    "value", [42, [], {"user": "x"}, BadText, HttpLike, asyncio.CancelledError, agentwire.Caller(42), agentwire.Caller("u", None)]
)
def test_an_identity_function_that_gives_something_else(value):
    async def main():
        async with Served(plain, identity=giving(value)) as served:
            return await served.get("/thread/list")

    status, found = running(main)
    assert status == 500 and found["error"]["code"] == "HOOK_FAILED"


@pytest.mark.parametrize("value", [42, "yes", [], BadText(), asyncio.CancelledError()])
def test_a_lock_that_gives_something_else(value):
    class Wrong(agentwire.SessionLock):
        def lock(self, run):
            if isinstance(value, BaseException):
                raise value
            return value

    events = run(plain, lock=Wrong())
    assert events[-1]["code"] in ("THREAD_IS_LOCKED", "HOOK_FAILED")


def test_a_filter_of_the_log_that_raises():
    """The gateway's notes after a record are heard nevertheless."""

    class Wrong(logging.Filter):
        def filter(self, record):
            raise RuntimeError("no filter")

    logger, wrong = logging.getLogger("agentwire.run"), Wrong()
    loggers = [logger, *(logging.getLogger(f"agentwire.{name}") for name in ("gateway", "ops", "ops.lifecycle"))]
    for found in loggers:
        found.addFilter(wrong)
    try:

        @agentwire.agent
        async def fails(request):
            raise agentwire.Failure("CODE", "message")
            yield ""

        assert run(fails)[-1]["code"] == "CODE"
    finally:
        for found in loggers:
            found.removeFilter(wrong)


# The adapter


@pytest.mark.parametrize("agent", [RunnableLambda(lambda given: 1 / 0), RunnableLambda(lambda given: BadText())])
def test_an_adapter_over_a_runnable_that_fails(agent):
    async def main():
        return [event async for event in agentwire.AGUIAdapter(agent, events="dict").run(run_input("x"))]

    events = running(main)
    assert events[0]["type"] == "RUN_STARTED" and events[-1]["type"] in ("RUN_ERROR", "RUN_FINISHED")
