"""Bad agents, hooks and objects in the gateway, and its log."""

import asyncio
import logging
import subprocess
import sys
import time

import agentwire
import pytest
from servers import Served, kinds, run_input, text_of


def run(agent, text="x", **settings):
    async def main():
        async with Served(agent, **settings) as served:
            return await served.say(text)

    return asyncio.run(main())


def test_an_event_larger_than_the_limit_ends_the_run():
    @agentwire.agent(limits={"max_frame": "4KiB"})
    async def large(request):
        yield "before"
        yield {"type": "CUSTOM", "name": "n", "value": "x" * 10_000}
        yield "after"

    events = run(large)
    assert events[-1]["code"] == "LIMIT_EXCEEDED" and text_of(events) == "before"


def test_a_flood_ends_by_the_limit():
    @agentwire.agent(limits={"max_events": 1000})
    async def flood(request):
        while True:
            yield {"type": "CUSTOM", "name": "n", "value": 1}

    events = run(flood)
    assert events[-1]["code"] == "LIMIT_EXCEEDED" and len(events) <= 1100


def test_a_fast_stream_is_whole():
    """It is read with pauses, which its end and a stop do not wait for."""
    words = [f"{number}," for number in range(2000)]

    @agentwire.agent
    async def fast(request):
        for word in words:
            yield word
            await asyncio.sleep(0)
        if request.user_text() == "fail":
            raise RuntimeError("secret")
        while request.user_text() == "go on":
            yield {"type": "CUSTOM", "name": "n", "value": 1}
            await asyncio.sleep(0)

    async def main():
        async with Served(fast) as served:
            assert text_of(await served.say("x")) == "".join(words)
            failed = await served.say("fail")
            assert text_of(failed) == "".join(words) and failed[-1]["code"] == "UPSTREAM_FAILED"
            handle = served.gateway.run(run_input("go on", "s", "s"))
            async for event in handle:
                if event["type"] == "CUSTOM":
                    await handle.stop()
            return await served.get("/runs/s")

    assert asyncio.run(main())[1]["status"] == "stopped"


def test_an_agent_that_goes_on_after_its_end_is_not_heard():
    said = []

    @agentwire.agent
    async def stubborn(request):
        yield "begun"
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            said.append("cancelled")
            yield " and on"
            said.append("on")

    async def main():
        async with Served(stubborn) as served:
            handle = served.gateway.run(run_input("x"), agent="a")
            events = []
            async for event in handle:
                events.append(event)
                if event["type"] == "TEXT_MESSAGE_CONTENT":
                    await handle.stop()
            # The next run is not disturbed.
            quick = await asyncio.wait_for(served.get("/runs/r"), 60)
            return events, quick

    events, (status, found) = asyncio.run(main())
    assert text_of(events) == "begun" and said[0] == "cancelled"
    assert status == 200 and found["status"] == "stopped"


def test_a_hook_that_blocks_the_loop_fails_the_run(caplog):
    @agentwire.agent
    async def plain(request):
        yield "hello"

    class Blocks(agentwire.Hooks):
        timeout = 0.2

        def event(self, event):
            if event["type"] == "TEXT_MESSAGE_CONTENT":
                time.sleep(1.5)
            return event

    events = run(plain, hooks=Blocks)
    assert events[-1]["code"] == "HOOK_FAILED"
    assert kinds(events)[0] == "RUN_STARTED"
    assert "the event loop was blocked for" in caplog.text


def test_an_identity_function_that_blocks_the_loop_fails_the_request():
    @agentwire.agent
    async def plain(request):
        yield "hello"

    def slow(info):
        time.sleep(1)
        return "ann"

    async def main():
        async with Served(plain, identity=slow, identity_timeout=0.1) as served:
            return await served.get("/thread/list")

    status, found = asyncio.run(main())
    assert status == 500 and found["error"]["code"] == "HOOK_FAILED"


def test_the_log_says_which_hook_gave_what(caplog):
    @agentwire.agent
    async def plain(request):
        yield "hello"

    class Wrong(agentwire.Hooks):
        async def output(self, event):
            return 42

    with caplog.at_level(logging.INFO):
        events = run(plain, hooks=Wrong)
    assert events[-1]["code"] == "HOOK_FAILED"
    assert "the hook 'output' gives an event, not int" in caplog.text


# The log


def test_records_of_the_gateway_are_in_logging(caplog):
    @agentwire.agent
    async def fails(request):
        raise RuntimeError("secret text")
        yield ""

    with caplog.at_level(logging.DEBUG):
        events = run(fails)
    assert events[-1]["code"] == "UPSTREAM_FAILED" and "secret" not in str(events)
    records = [record for record in caplog.records if hasattr(record, "agentwire")]
    assert records and all(record.name.startswith("agentwire.") for record in records)
    (failed,) = [record for record in records if record.agentwire.get("code") == "UPSTREAM_FAILED"]
    assert failed.levelno == logging.WARNING and failed.agentwire["run"]
    assert "secret text" in caplog.text
    # In the loop of the program, never from a thread of the gateway.
    assert {record.threadName for record in records} == {"MainThread"}


def test_a_level_that_nobody_wants_is_not_delivered(caplog):
    @agentwire.agent
    async def plain(request):
        yield "hello"

    with caplog.at_level(logging.CRITICAL):
        run(plain)
    assert not [record for record in caplog.records if record.name.startswith("agentwire")]


CODE = """
import asyncio, agentwire
@agentwire.agent
async def fails(request):
    raise RuntimeError("secret text")
    yield ""
async def main():
    gateway = agentwire.Gateway(fails, store="memory:", signals=False, log="stderr")
    async with gateway.lifespan():
        async for _ in gateway.run({"messages": [{"id": "1", "role": "user", "content": "x"}]}):
            pass
asyncio.run(main())
"""


def test_the_log_on_stderr():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "run failed" in done.stderr and "UPSTREAM_FAILED" in done.stderr


def test_what_was_tolerated_is_told_once_per_kind_and_run(caplog):
    @agentwire.agent
    async def odd(request):
        for _ in range(50):
            yield {"type": "NO_SUCH_TYPE", "value": "x" * 5000}
        yield "hello"

    with caplog.at_level(logging.WARNING):
        events = run(odd)
    assert text_of(events) == "hello"
    told = [record for record in caplog.records if "NO_SUCH_TYPE" in record.getMessage()]
    assert len(told) == 1 and len(told[0].getMessage()) < 2000


def test_a_wrong_log_is_refused():
    with pytest.raises(agentwire.ConfigError, match="unknown log"):
        agentwire.Gateway({}, log="file")
