"""The streams of `agentwire.adk.compat` are those of adk-agui-middleware, but for the documented improvements."""

import asyncio
import json

import pytest
from ag_ui.core import CustomEvent, EventType
from both import ORIGINAL, OURS, Served, Scripted, call, canonical, improved, result, state, text
from demo.agent import root_agent
from google.adk.events import Event
from google.genai import types
from servers import run_input


def user_words():
    return Event(author="user", content=types.Content(role="user", parts=[types.Part(text="from the user")]))


SCRIPTS = {
    "streamed": [text("Hel", partial=True), text("lo", partial=True), text("Hello")],
    "whole": [text("Hello")],
    "two messages": [text("One"), text("Two")],
    "two authors": [text("A", author="a"), text("B", author="b")],
    "a call": [call("weather", "c1", city="Rome"), result("weather", "c1", sky="blue"), text("It is blue")],
    "text, then a call": [
        text("Let me", partial=True),
        call("weather", "c1", city="Rome"),
        result("weather", "c1", sky="blue"),
        text("Blue"),
    ],
    "parallel calls": [
        call("a", "c1", x=1),
        call("b", "c2"),
        result("a", "c1", ok=1),
        result("b", "c2", ok=2),
        text("Done"),
    ],
    "state": [state(theme="dark", **{"a/b~c": [1]}), text("Done")],
    "metadata": [text("Hi", custom_metadata={"source": "cache"})],
    "a user's event": [user_words(), text("Hi")],
    "nothing": [],
    "it raises": [RuntimeError("secret text")],
    "a call that waits": [call("ask", "c1", waits=True, what="?"), result("ask", "c1", status="pending"), text("I asked")],
}


def both(agent, do, **settings):
    found = []
    for package in (ORIGINAL, OURS):
        with Served(package, agent, **settings) as served:
            found.append(do(served))
    return found


def same(agent, do, **settings):
    original, ours = both(agent, do, **settings)
    assert canonical(ours) == canonical(improved(original)), json.dumps([original, ours], indent=1)
    return ours


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script(name):
    ours = same(Scripted(name="demo", script=SCRIPTS[name]), lambda served: served.say("hello"))
    assert ours[0]["type"] == "RUN_STARTED" and ours[-1]["type"] in ("RUN_FINISHED", "RUN_ERROR")


def test_two_turns_of_a_model():
    def talk(served):
        return [*served.say("hello"), *served.say("again", run="r2")]

    same(root_agent, talk)


def test_states_of_the_client_reach_the_session():
    agent = Scripted(name="demo", script=[text("Hi")])

    def talk(served):
        events = served.say("hello", state={"theme": "dark"})
        assert served.session().state["theme"] == "dark"
        return events

    same(agent, talk)


def test_the_whole_text_again():
    agent = Scripted(name="demo", script=SCRIPTS["streamed"])
    ours = same(agent, lambda served: served.say("hello"), retune_on_stream_complete=True)
    assert [event["delta"] for event in ours if event["type"] == "TEXT_MESSAGE_CONTENT"] == ["Hel", "lo", "Hello"]


def test_a_person_answers():
    """A call that waits, its entry in the state, and its result with the next run."""

    def talk(served):
        first = served.say("silent")
        (id,) = [event["toolCallId"] for event in first if event["type"] == "TOOL_CALL_START"]
        assert served.session().state["pending_tool_calls"] == {id: "ask_silently"}
        second = served.answer(id, '{"colour": "red"}')
        assert served.session().state["pending_tool_calls"] == {}
        snapshots = [event for event in second if event["type"] == "STATE_SNAPSHOT"]
        for event in snapshots:
            event["snapshot"].pop("pending_tool_calls", None)
        return [*first, *second]

    same(root_agent, talk)


def test_an_answer_without_content():
    def talk(served):
        (id,) = [event["toolCallId"] for event in served.say("silent") if event["type"] == "TOOL_CALL_START"]
        said = [event.get("delta") for event in served.answer(id, "") if event["type"] == "TEXT_MESSAGE_CONTENT"]
        return "".join(said)

    original, ours = both(root_agent, talk)
    assert ours == original and "success" in ours


@pytest.mark.parametrize(
    ("messages", "code"),
    [
        ([], "NO_INPUT_MESSAGE"),
        ([{"id": "1", "role": "user", "content": ""}], "NO_INPUT_MESSAGE"),
        ([{"id": "1", "role": "tool", "toolCallId": "none", "content": "{}"}], "NO_TOOL_RESULTS"),
    ],
)
def test_errors_before_a_run(messages, code):
    def talk(served):
        response = served.post({**run_input("x"), "messages": messages})
        return [json.loads(line[5:]) for line in response.text.splitlines() if line.startswith("data:")]

    original, ours = both(root_agent, talk)
    assert ours == original and [event["code"] for event in ours] == [code]


def test_a_result_that_is_not_json():
    def talk(served):
        (id,) = [event["toolCallId"] for event in served.say("silent") if event["type"] == "TOOL_CALL_START"]
        return served.answer(id, "no JSON")

    original, ours = both(root_agent, talk)
    assert ours == original and ours[0]["code"] == "TOOL_RESULT_PROCESSING_ERROR"


# Handlers


def handlers(names, trace):
    """Every handler, in the form that the original accepts: coroutines that return generators."""

    class Adk(names.BaseADKEventHandler):
        def __init__(self, input_info):
            self.info = input_info

        async def process(self, event):
            async def kept():
                trace.append(("adk", event.author))
                if event.author != "dropped":
                    yield event

            return kept()

    class Translate(names.BaseTranslateHandler):
        def __init__(self, input_info):
            pass

        async def translate(self, adk_event):
            async def steps():
                trace.append(("translate", adk_event.author))
                if adk_event.author == "retuned":
                    yield names.TranslateEvent(
                        agui_event=CustomEvent(type=EventType.CUSTOM, name="mine", value=1), is_retune=True
                    )
                elif adk_event.author == "replaced":
                    yield names.TranslateEvent(adk_event=text("in its place"), is_replace=True)
                else:
                    yield names.TranslateEvent()

            return steps()

    class Agui(names.BaseAGUIEventHandler):
        def __init__(self, input_info):
            self.queue = input_info.event_queue

        async def process(self, event):
            async def kept():
                if not event.type.value.startswith("STEP_"):
                    trace.append(("agui", event.type.value))
                yield event
                if event.type == EventType.TEXT_MESSAGE_END:
                    yield CustomEvent(type=EventType.CUSTOM, name="after", value=2)

            return kept()

    class Snapshot(names.BaseAGUIStateSnapshotHandler):
        def __init__(self, input_info):
            pass

        async def process(self, state_snapshot):
            trace.append(("state", ""))
            return {"only": "this"}

    class InOut(names.BaseInOutHandler):
        async def input_record(self, input_info):
            trace.append(("input", input_info.user_id))

        async def output_record(self, agui_event):
            if not agui_event.type.value.startswith("STEP_"):
                trace.append(("output", agui_event.type.value))

        async def output_catch_and_change(self, agui_event):
            if agui_event.type == EventType.TEXT_MESSAGE_CONTENT:
                agui_event.delta = agui_event.delta.upper()
            return agui_event

    return {
        "adk_event_handler": Adk,
        "translate_handler": Translate,
        "agui_event_handler": Agui,
        "agui_state_snapshot_handler": Snapshot,
        "in_out_record_handler": InOut,
    }


def test_all_handlers():
    script = [text("gone", author="dropped"), text("gone", author="retuned"), text("gone", author="replaced"), text("Hi")]
    traces = []

    def made(names):
        traces.append([])
        return handlers(names, traces[-1])

    ours = same(Scripted(name="demo", script=script), lambda served: served.say("hello"), handlers=made)
    words = [event["delta"] for event in ours if event["type"] == "TEXT_MESSAGE_CONTENT"]
    assert words == ["IN ITS PLACE", "HI"]
    for stage in ("adk", "translate", "agui", "state", "input", "output"):
        original, seen = ([entry for entry in trace if entry[0] == stage] for trace in traces)
        assert seen == original, stage


def test_a_snapshot_that_is_suppressed():
    def made(names):
        class Nothing(names.BaseAGUIStateSnapshotHandler):
            def __init__(self, input_info):
                pass

            async def process(self, state_snapshot):
                return None

        return {"agui_state_snapshot_handler": Nothing}

    ours = same(Scripted(name="demo", script=[state(a=1), text("Hi")]), lambda served: served.say("x"), handlers=made)
    assert "STATE_SNAPSHOT" not in [event["type"] for event in ours]


def test_the_time_limit_of_the_whole_stream():
    class Slow(Scripted):
        async def _run_async_impl(self, ctx):
            for number in range(200):
                yield text(f"{number} ", partial=True)
                await asyncio.sleep(0.05)

    def made(names):
        class Limit(names.BaseADKEventTimeoutHandler):
            def __init__(self, input_info):
                pass

            async def get_timeout(self):
                return 1

            async def process_timeout_fallback(self):
                async def events():
                    yield text("too late", author="fallback")
                    yield None

                return events()

        return {"adk_event_timeout_handler": Limit}

    def talk(served):
        said = [event["delta"] for event in served.say("x") if event["type"] == "TEXT_MESSAGE_CONTENT"]
        return said[0], said[-1], len(said) < 200

    original, ours = both(Slow(name="demo"), talk, handlers=made)
    assert ours == original == ("0 ", "too late", True)


def test_a_lock_that_is_taken():
    def made(names):
        class Taken(names.SessionLockHandler):
            def __init__(self, lock_config):
                self.lock_config = lock_config

            async def lock(self, input_info):
                return False

            async def unlock(self, input_info):
                pass

            async def get_locked_message(self, input_info):
                return names.AGUIErrorEvent.create_is_locked_error(input_info.session_id)

        return {"session_lock_handler": Taken}

    original, ours = both(root_agent, lambda served: served.say("x"), handlers=made)
    # agentwire begins every run with RUN_STARTED.
    assert ours[0]["type"] == "RUN_STARTED"
    assert [(event["code"], event["message"]) for event in ours[1:]] == [(event["code"], event["message"]) for event in original]


@pytest.mark.parametrize(
    ("place", "code"),
    [("adk", "EXECUTION_ERROR"), ("agui", "EXECUTION_ERROR"), ("output", "AGENT_ERROR")],
)
def test_handlers_that_raise(place, code):
    def made(names):
        class Adk(names.BaseADKEventHandler):
            def __init__(self, input_info):
                pass

            async def process(self, event):
                raise ValueError("secret text")

        class Agui(names.BaseAGUIEventHandler):
            def __init__(self, input_info):
                pass

            async def process(self, event):
                raise ValueError("secret text")

        class InOut(names.BaseInOutHandler):
            async def input_record(self, input_info):
                pass

            async def output_record(self, agui_event):
                if agui_event.type == EventType.TEXT_MESSAGE_CONTENT:
                    raise ValueError("secret text")

            async def output_catch_and_change(self, agui_event):
                return agui_event

        chosen = {"adk": ("adk_event_handler", Adk), "agui": ("agui_event_handler", Agui)}
        key, handler = chosen.get(place, ("in_out_record_handler", InOut))
        return {key: handler}

    def talk(served):
        return [event["code"] for event in served.say("x") if event["type"] == "RUN_ERROR"]

    original, ours = both(Scripted(name="demo", script=[text("Hi")]), talk, handlers=made)
    assert ours == original == [code]


# Streams, history and state


def test_the_standard_form_of_a_stream():
    def talk(served):
        lines = served.post(run_input("hello")).text.splitlines()
        data = [json.loads(line[5:]) for line in lines if line.startswith("data:")]
        names = [line[6:].strip() for line in lines if line.startswith("event:")]
        return data, names

    (data, names), (ours, our_names) = both(
        Scripted(name="demo", script=SCRIPTS["streamed"]), talk, event_source_response_mode=True
    )
    # The original leaves the type out of the data.
    original = [{"type": name, **event} for name, event in zip(names, data)]
    assert canonical(ours) == canonical(improved(original))
    assert [event["type"] for event in ours] == our_names


def test_native_events_are_attached():
    for settings, expected in (({}, False), ({"auto_remove_agui_raw_event": True}, None)):
        agent = Scripted(name="demo", script=SCRIPTS["whole"])
        _, ours = both(agent, lambda served: served.say("x"), is_add_adk_event_in_agui_event=True, **settings)
        raw = [event["rawEvent"] for event in ours if "rawEvent" in event]
        assert (raw == []) if expected is None else (raw[0]["author"] == "demo")


def test_history_and_state():
    def talk(served):
        served.say("weather")
        served.say("state", run="r2")
        client = served.client
        threads = client.get("/thread/list").json()
        messages = client.get("/message_snapshot/t").json()
        found = client.get("/state_snapshot/t").json()
        change = [{"op": "replace", "path": "/theme", "value": "light"}, {"op": "add", "path": "/n", "value": 1}]
        changed = client.patch("/state/t", json=change).json()
        after = client.get("/state_snapshot/t").json()
        deleted = client.delete("/thread/t").json()
        return threads, messages, found, changed, after, deleted, client.get("/thread/list").json()

    original, ours = both(root_agent, talk)
    for state_of in (2, 4):
        for side in (original, ours):
            side[state_of]["snapshot"].pop("pending_tool_calls", None)
    assert ours[0] == original[0] and ours[2:] == original[2:]
    assert _conversation(ours[1]) == _conversation(original[1])


def _conversation(snapshot):
    """The messages without ids; a call with the text before it is one message or two."""
    found = []
    for message in snapshot["messages"]:
        if message.get("content"):
            content = message["content"]
            found.append((message["role"], json.loads(content) if message["role"] == "tool" else content))
        for made in message.get("toolCalls") or []:
            found.append(("call", made["function"]["name"], json.loads(made["function"]["arguments"])))
    return found


def test_a_session_of_the_original_goes_on_with_ours():
    """Sessions and calls that wait are found by the successor."""
    with Served(ORIGINAL, root_agent) as old:
        (id,) = [event["toolCallId"] for event in old.say("silent") if event["type"] == "TOOL_CALL_START"]
        sessions = old.sessions
    with Served(OURS, root_agent) as new:
        new.service.runner_config.session_service = new.sessions = sessions
        new.service._agent.services["session_service"] = sessions
        said = [event.get("delta") for event in new.answer(id, '{"colour": "red"}')]
        assert "red" in "".join(word for word in said if isinstance(word, str))
