"""`agentwire.adk(agent)` in process, with google-adk 1.x."""

import asyncio
import json

import agentwire
import google.adk.version
from demo.agent import root_agent
from servers import run_input, text_of


def test_an_agent_of_google_adk_1():
    assert google.adk.version.__version__.startswith("1.")

    async def main():
        gateway = agentwire.Gateway({"a": agentwire.adk(root_agent)}, store="memory:", signals=False)

        async def say(words, run, **more):
            given = run_input(words, "t", run, **more)
            return [event async for event in gateway.run(given)]

        async with gateway.lifespan():
            assert "You said" in text_of(await say("hello", "r1"))
            assert "get_weather said" in text_of(await say("weather", "r2"))
            events = await say("confirm", "r3")
            (item,) = events[-1]["outcome"]["interrupts"]
            answer = [{"interruptId": item["id"], "status": "resolved", "payload": {"confirmed": True}}]
            events = await say("x", "r4", messages=[], resume=answer)
            assert "'deleted': 'tmp'" in text_of(events), events
            events = await say("say nothing", "r5")
            assert events[-1]["type"] == "RUN_FINISHED", events
            offered = [{"name": "pick_colour", "description": "d", "parameters": {"type": "object"}}]
            events = await say("pick", "r6", tools=offered)
            assert "pick_colour" in json.dumps(events)
            status, _, body = await gateway.request("GET", "/message_snapshot/t")
            assert status == 200 and "get_weather said" in body.decode()

    asyncio.run(main())
