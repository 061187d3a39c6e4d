"""Hooks and locks as Python classes."""

import asyncio
import json

import agentwire
import pytest
from agentwire import Hooks, Refused, SessionLock, Translation
from langchain_core.messages import AIMessageChunk
from servers import Served, kinds, run_input, text_of
from test_local import ScriptedChatModel, root_agent, talking


@agentwire.agent
async def speaker(request):
    yield f"{request.user_text()} secret"
    yield {"type": "STATE_SNAPSHOT", "snapshot": {"a": 1}}
    yield {"type": "CUSTOM", "name": "x", "value": 1}


def test_the_order_of_all_hooks_and_only_overridden_ones_are_called():
    trace = []

    def note(word):
        if not trace or trace[-1] != word:
            trace.append(word)

    class Lock(SessionLock):
        async def lock(self, run):
            note("lock")

        def unlock(self, run):
            note("unlock")

    class All(Hooks):
        def __init__(self, run):
            super().__init__(run)
            note("made")
            assert (run.agent, run.thread_id, run.caller.user) == ("a", "t", "default-user")

        async def input_record(self, input):
            note("input_record")

        def input(self, input):
            note("input")
            return {**input, "messages": [{**input["messages"][0], "content": "changed"}]}

        async def native(self, event):
            note("native")
            yield event

        async def translate(self, event):
            note("translate")
            return Translation.default

        async def event(self, event):
            note("event")
            return event

        async def state(self, state):
            note("state")
            return {**state, "b": 2}

        async def output_record(self, event):
            note("output_record")

        async def output(self, event):
            note("output")
            return event

    async def main():
        async with Served(speaker, hooks=All, lock=Lock()) as served:
            events = await served.say("hello")
            assert text_of(events) == "changed secret"
            assert (await served.get("/state_snapshot/t"))[1]["snapshot"] == {"a": 1, "b": 2}

    asyncio.run(main())
    first = list(dict.fromkeys(trace))
    # RUN_STARTED passes the output hooks before the agent is asked.
    assert first == ["lock", "made", "input_record", "input", "output_record", "output", "native", "translate", "event", "state", "unlock"]
    assert trace[-1] == "unlock"


def test_events_are_dropped_changed_and_added():
    class Filter(Hooks):
        async def event(self, event):
            if event["type"] == "CUSTOM":
                return
            yield event
            if event["type"] == "STATE_SNAPSHOT":
                yield {"type": "CUSTOM", "name": "added", "value": 2}

        def output(self, event):
            if event["type"] == "TEXT_MESSAGE_CONTENT":
                return {**event, "delta": event["delta"].replace("secret", "***")}
            return event

    async def main():
        async with Served(agentwire.agent(speaker.function, hooks=Filter)) as served:
            events = await served.say("hello")
            assert text_of(events) == "hello ***"
            assert [event["name"] for event in events if event["type"] == "CUSTOM"] == ["added"]

    asyncio.run(main())


def test_native_hooks_get_the_objects_of_the_agent():
    seen = []

    class Native(Hooks):
        async def native(self, event):
            seen.append(type(event["data"].get("chunk")) if isinstance(event, dict) and "data" in event else type(event))
            return event

        async def translate(self, event):
            if isinstance(event, dict) and event.get("event") == "on_chat_model_stream":
                yield {"type": "CUSTOM", "name": "chunk", "value": event["data"]["chunk"].content}

    class OfAdk(Hooks):
        async def translate(self, event):
            seen.append(type(event).__name__)
            if event.content and event.content.parts[0].text and event.partial:
                event = event.model_copy(deep=True)
                event.content.parts[0].text = event.content.parts[0].text.upper()
                return Translation.replace(event)
            return Translation.skip if not event.partial and event.content else Translation.default

    async def main():
        async with Served(agentwire.langgraph(talking().compile(), hooks=Native)) as served:
            events = await served.say("hello")
            assert text_of(events).strip() == "Hello there 1"
            assert "Hello " in [event["value"] for event in events if event["type"] == "CUSTOM"]
        async with Served(agentwire.adk(root_agent, hooks=OfAdk)) as served:
            assert "YOU SAID" in text_of(await served.say("hello"))

    asyncio.run(main())
    assert AIMessageChunk in seen and "Event" in seen


def louder(event):
    """Changes an event in place."""
    if event.get("type") == "TEXT_MESSAGE_CHUNK":
        event["delta"] = event["delta"].upper()
    elif event.get("event") == "on_chat_model_stream":
        event["data"]["chunk"].content = event["data"]["chunk"].content.upper()


class ChangesNative(Hooks):
    def native(self, event):
        louder(event)
        return event


class ChangesTranslated(Hooks):
    async def translate(self, event):
        louder(event)
        return Translation.default


@pytest.mark.parametrize("hooks", [ChangesNative, ChangesTranslated])
def test_a_hook_may_change_the_object_itself(hooks):
    @agentwire.agent
    async def words(request):
        yield "hello "
        yield {"type": "TEXT_MESSAGE_CHUNK", "messageId": "m", "delta": "there"}

    async def main(agent):
        async with Served(agent, hooks=hooks) as served:
            return text_of(await served.say("x")).strip()

    assert asyncio.run(main(words)) == "HELLO THERE"
    assert asyncio.run(main(agentwire.langgraph(talking("Hello there").compile()))).startswith("HELLO THERE")


def test_an_agent_may_use_one_object_for_all_events():
    """A hook that changes nothing keeps each event as it was when the agent gave it."""

    @agentwire.agent
    async def reuses(request):
        event = {"type": "TEXT_MESSAGE_CHUNK", "messageId": "m", "delta": ""}
        for word in ("a", "b", "c"):
            event["delta"] = word
            yield event

    class Same(Hooks):
        def native(self, event):
            return event

    async def main():
        async with Served(reuses, hooks=Same) as served:
            return text_of(await served.say("x"))

    assert asyncio.run(main()) == "abc"


def test_agents_elsewhere_give_json_to_native_hooks(tmp_path):
    class Native(Hooks):
        def native(self, event):
            return {**event, "delta": "changed"} if event.get("type") == "TEXT_MESSAGE_CONTENT" else event

    recording = tmp_path / "a.jsonl"
    events = [
        {"type": "RUN_STARTED", "threadId": "t", "runId": "r"},
        {"type": "TEXT_MESSAGE_START", "messageId": "m", "role": "assistant"},
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "hello"},
        {"type": "TEXT_MESSAGE_END", "messageId": "m"},
        {"type": "RUN_FINISHED", "threadId": "t", "runId": "r"},
    ]
    recording.write_text("".join(json.dumps(event) + "\n" for event in events))

    async def main():
        async with Served(agentwire.upstream("replay", file=str(recording)), hooks=Native) as served:
            assert text_of(await served.say("x")) == "changed"
        config = {"agents": {"b": {"upstream": {"kind": "replay", "file": str(recording)}}}}
        gateway = agentwire.Gateway(config=config, store="memory:", hooks=Native, signals=False)
        async with gateway.lifespan():
            assert text_of([event async for event in gateway.run(run_input("x"), agent="b")]) == "changed"

    asyncio.run(main())


@pytest.mark.parametrize(
    ("broken", "code"),
    [
        (lambda: Refused("not today"), "HOOK_REFUSED"),
        (lambda: Refused("paid only", code="NO_CREDIT"), "NO_CREDIT"),
        (lambda: ValueError("secret text"), "HOOK_FAILED"),
    ],
)
def test_failing_hooks_end_the_run(broken, code):
    class Input(Hooks):
        async def input(self, input):
            raise broken()

    async def main():
        async with Served(agentwire.agent(speaker.function, hooks=Input)) as served:
            events = await served.say("hello")
            assert events[-1]["type"] == "RUN_ERROR" and events[-1]["code"] == code
            assert "secret" not in json.dumps(events)

    asyncio.run(main())


def test_wrong_types_and_late_hooks_are_failures():
    class Wrong(Hooks):
        def output(self, event):
            return 42 if event["type"] == "CUSTOM" else event

    class Late(Hooks):
        timeout = 0.2

        async def event(self, event):
            await asyncio.sleep(60)

    async def main():
        for hooks in (Wrong, Late):
            async with Served(agentwire.agent(speaker.function, hooks=hooks)) as served:
                events = await served.say("hello")
                assert events[-1]["type"] == "RUN_ERROR" and events[-1]["code"] == "HOOK_FAILED", events

    asyncio.run(main())


def test_a_native_event_that_is_late_is_replaced():
    @agentwire.agent
    async def silent(request):
        yield "begin "
        await asyncio.sleep(3600)

    class Fallback(Hooks):
        native_timeout = 0.3

        async def native_fallback(self):
            yield {"type": "TEXT_MESSAGE_CHUNK", "messageId": "f", "role": "assistant", "delta": "sorry"}

    async def main():
        async with Served(agentwire.agent(silent.function, hooks=Fallback)) as served:
            events = await served.say("x")
            assert text_of(events) == "begin sorry" and kinds(events)[-1] == "RUN_FINISHED"

    asyncio.run(main())


def test_a_lock_refuses_and_is_released():
    held = []

    class Lock(SessionLock):
        async def lock(self, run):
            if run.thread_id == "raised":
                raise Refused("taken")
            if run.thread_id == "taken":
                return False
            held.append(run.run_id)
            return True

        async def unlock(self, run):
            held.remove(run.run_id)

    async def main():
        async with Served(agentwire.agent(speaker.function, lock=Lock())) as served:
            assert kinds(await served.say("x"))[-1] == "RUN_FINISHED"
            for thread in ("taken", "raised"):
                assert (await served.say("x", thread=thread))[-1]["code"] == "THREAD_IS_LOCKED"
            assert held == []

    asyncio.run(main())


def test_hooks_of_many_runs_are_freed():
    class Counting(Hooks):
        alive = 0

        def __init__(self, run):
            super().__init__(run)
            type(self).alive += 1

        def __del__(self):
            type(self).alive -= 1

        async def event(self, event):
            return event

    async def main():
        async with Served(agentwire.agent(speaker.function, hooks=Counting)) as served:
            for number in range(30):
                await served.say("x", thread=f"t{number}")

    asyncio.run(main())
    assert Counting.alive <= 1
