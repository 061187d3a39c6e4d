"""Ten thousand runs leave no Python objects and no file descriptors behind."""

import asyncio
import gc
import os
import sys
import tracemalloc

import agentwire
from servers import run_input

RUNS = 10_000
#: Runs before, which fill caches, and after, whose memory is traced.
WARM, TRACED = 500, 800
#: Runs at once.
PARALLEL = 50


class Each(agentwire.Hooks):
    def event(self, event):
        return event

    def native(self, event):
        return event


@agentwire.agent(hooks=Each)
async def hooked(request):
    yield "hello"


@agentwire.agent
async def echo(request):
    words = request.user_text()
    yield f"You said {words}"
    if words == "fail":
        raise RuntimeError("secret")
    if words == "wait":
        await asyncio.sleep(3600)


async def who(info):
    return info.input["threadId"] if info.input else "nobody"


async def one(gateway, number):
    """One run of a kind that its number chooses."""
    kind = number % 8
    given = run_input({2: "fail", 3: "wait"}.get(kind, "hello"), f"t{number}", f"r{number}")
    caller = agentwire.Caller(f"u{number % 100}")
    if kind == 0:
        # Nobody reads the body of this one.
        status, _, _ = await gateway.request("POST", "/nowhere", body=b"{" + b" " * 100_000 + b"}")
        assert status == 404
    elif kind == 1:
        # By the identity function.
        status, _, body = await gateway.request("GET", f"/runs/r{number}/stream", body=b"")
        assert status == 404, body
    elif kind == 3:
        handle = gateway.run(given, agent="echo", caller=caller)
        events = aiter(handle)
        while (await anext(events))["type"] != "TEXT_MESSAGE_CONTENT":
            pass
        await handle.stop()
        await events.aclose()
    else:
        agent = "hooked" if kind in (4, 5) else "echo"
        events = [event async for event in gateway.run(given, agent=agent, caller=caller)]
        assert events[-1]["type"] == ("RUN_ERROR" if kind == 2 else "RUN_FINISHED"), events[-1]


async def runs(gateway, numbers):
    numbers = iter(numbers)

    async def worker():
        for number in numbers:
            await one(gateway, number)

    await asyncio.gather(*(worker() for _ in range(PARALLEL)))
    # What the last runs leave is told by notes.
    for _ in range(50):
        await asyncio.sleep(0.02)
    gc.collect()


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def test_ten_thousand_runs_leave_nothing_behind(caplog):
    caplog.set_level("CRITICAL")

    async def main():
        agents = {"echo": echo, "hooked": hooked}
        gateway = agentwire.Gateway(agents, default="echo", store="memory:", identity=who, signals=False)
        async with gateway.lifespan():
            await runs(gateway, range(WARM))
            objects, blocks, files = len(gc.get_objects()), sys.getallocatedblocks(), descriptors()
            await runs(gateway, range(WARM, WARM + RUNS))
            assert len(gc.get_objects()) - objects < RUNS / 20
            assert sys.getallocatedblocks() - blocks < RUNS / 10
            assert descriptors() <= files
            # The same by the sizes, for a part of them: tracing is slow.
            tracemalloc.start()
            await runs(gateway, range(WARM + RUNS, WARM + RUNS + TRACED // 2))
            before = tracemalloc.get_traced_memory()[0]
            await runs(gateway, range(WARM + RUNS + TRACED // 2, WARM + RUNS + TRACED))
            after = tracemalloc.get_traced_memory()[0]
            tracemalloc.stop()
            assert after - before < 100 * TRACED

    asyncio.run(main())
