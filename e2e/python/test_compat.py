"""`agentwire.adk.compat` with google-adk 2 and AG-UI 1. e2e/adk-middleware compares it with the original."""

import asyncio
import json
import signal
import threading

import agentwire.fastapi
import pytest
from ag_ui.core import CustomEvent, EventType
from agentwire.adk import (
    BaseADKEventHandler,
    BaseADKEventTimeoutHandler,
    BaseAGUIEventHandler,
    BaseAGUIStateSnapshotHandler,
    BaseInOutHandler,
    BaseSSEService,
    BaseTranslateHandler,
    ConfigContext,
    FrontendToolset,
    HandlerContext,
    HistoryConfig,
    HistoryService,
    InputInfo,
    PathConfig,
    RunnerConfig,
    SessionLockConfig,
    SessionLockHandler,
    ShutdownHandler,
    SSEService,
    StateConfig,
    StateService,
    TranslateEvent,
    register_agui_endpoint,
    register_agui_history_endpoint,
    register_state_endpoint,
)
from agentwire.adk.compat.utils.translate import ThinkingMessageEventUtil
from fastapi import APIRouter, FastAPI, HTTPException, Request
from fastapi.testclient import TestClient
from google.adk.agents import BaseAgent, LlmAgent
from google.adk.events import Event, EventActions
from google.adk.sessions import InMemorySessionService
from google.genai import types
from servers import events_of, run_input, text_of
from starlette.responses import StreamingResponse
from test_fastapi import say
from test_local import root_agent

from demo.agent import respond
from demo.scripted import ScriptedLlm

KINDS = [EventType.TEXT_MESSAGE_START, EventType.TEXT_MESSAGE_CONTENT, EventType.TEXT_MESSAGE_END]


def words(text, **more):
    return Event(author="demo", content=types.Content(role="model", parts=[types.Part(text=text)]), **more)


class Scripted(BaseAgent):
    script: list = []

    async def _run_async_impl(self, ctx):
        for item in self.script:
            if isinstance(item, Exception):
                raise item
            yield item.model_copy(update={"invocation_id": ctx.invocation_id})


def app_with(agent=root_agent, path="/", handlers=None, routes=(), **config):
    app = FastAPI()
    context = ConfigContext(**{"app_name": "shop", "user_id": "u", **config})
    service = SSEService(agent, context, handler_context=HandlerContext(**(handlers or {})))
    register_agui_endpoint(app, service, PathConfig(agui_main_path=path), routes=routes)
    app.state.service = service
    return app


def test_its_quick_start_with_only_the_import_changed():
    app = FastAPI(title="AGUI Middleware")

    async def extract_user_id(content, request: Request) -> str:
        return request.headers.get("x-user-id", "anonymous")

    sessions = InMemorySessionService()
    sse_service = SSEService(
        agent=root_agent,
        config_context=ConfigContext(
            app_name="my-app",
            user_id=extract_user_id,
            session_id=lambda content, req: content.thread_id,
        ),
        runner_config=RunnerConfig(session_service=sessions),
    )
    register_agui_endpoint(app, sse_service)
    with TestClient(app) as client:
        events = say(client, "hello", headers={"x-user-id": "ann"})
        assert "You said" in text_of(events)
        assert [events[0]["type"], events[-1]["type"]] == ["RUN_STARTED", "RUN_FINISHED"]
        assert "get_weather said" in text_of(say(client, "weather", run="r2", headers={"x-user-id": "ann"}))
        # No message is an error here, not a request for the conversation.
        empty = client.post("/", json={**run_input("x"), "messages": []})
        assert events_of(empty.text)[0]["code"] == "NO_INPUT_MESSAGE"

        async def found():
            listed = await sessions.list_sessions(app_name="my-app", user_id="ann")
            return [session.id for session in listed.sessions]

        assert client.portal.call(found) == ["t"]


def test_all_handlers_in_both_styles_and_their_order():
    trace = []

    def note(word):
        if word not in trace:
            trace.append(word)

    class Adk(BaseADKEventHandler):
        def __init__(self, input_info):
            assert input_info.user_id == "u" and input_info.agui_content.thread_id == "t"

        async def process(self, event):
            note("adk")
            yield event

    class Translate(BaseTranslateHandler):
        def __init__(self, input_info):
            pass

        async def translate(self, adk_event):
            note("translate")

            async def steps():
                if adk_event.partial:
                    event = CustomEvent(type=EventType.CUSTOM, name="seen", value=1)
                    yield TranslateEvent(agui_event=event)

            return steps()

    class Agui(BaseAGUIEventHandler):
        def __init__(self, input_info):
            self.queue = input_info.event_queue

        async def process(self, event):
            note("agui")
            assert event.type not in (EventType.RUN_STARTED, EventType.RUN_FINISHED, EventType.STATE_SNAPSHOT)
            yield event
            if event.type == EventType.TEXT_MESSAGE_END:
                yield CustomEvent(type=EventType.CUSTOM, name="last", value=2)

    class State(BaseAGUIStateSnapshotHandler):
        def __init__(self, input_info):
            pass

        async def process(self, state_snapshot):
            note("state")
            return {**state_snapshot, "added": True}

    class InOut(BaseInOutHandler):
        async def input_record(self, input_info):
            note("input_record")

        async def output_record(self, agui_event):
            note("output_record")

        async def output_catch_and_change(self, agui_event):
            note("output_change")
            return agui_event

    class Lock(SessionLockHandler):
        async def lock(self, input_info):
            note("lock")
            return True

        async def unlock(self, input_info):
            note("unlock")

    app = FastAPI()
    handlers = HandlerContext(
        session_lock_handler=Lock,
        adk_event_handler=Adk,
        translate_handler=Translate,
        agui_event_handler=Agui,
        agui_state_snapshot_handler=State,
        in_out_record_handler=InOut,
    )
    service = SSEService(root_agent, ConfigContext(user_id="u"), handler_context=handlers)
    register_agui_endpoint(app, service, PathConfig(agui_main_path="/chat"))
    with TestClient(app) as client:
        events = say(client, "hello", "/chat")
        names = [event["name"] for event in events if event["type"] == "CUSTOM"]
        assert "seen" in names and names[-1] == "last", events
        assert events[-1]["type"] == "RUN_FINISHED"
        snapshots = [event["snapshot"] for event in events if event["type"] == "STATE_SNAPSHOT"]
        assert snapshots[-1]["added"] is True
    assert trace[0] == "lock" and trace[-1] == "unlock"
    assert trace.index("input_record") < trace.index("adk") < trace.index("translate") < trace.index("agui") < trace.index("state")


def test_a_taken_lock_and_a_time_limit():
    class Taken(SessionLockHandler):
        async def lock(self, input_info):
            return False

        async def unlock(self, input_info):
            pass

    class Timeout(BaseADKEventTimeoutHandler):
        def __init__(self, input_info):
            pass

        async def get_timeout(self):
            return 1

        async def process_timeout_fallback(self):
            from google.adk.events import Event
            from google.genai import types

            content = types.Content(role="model", parts=[types.Part(text="too late")])
            yield Event(author="demo", invocation_id="i", content=content)

    app = FastAPI()
    patience = SessionLockConfig(lock_retry_times=1, lock_retry_interval=0.01)
    locked = SSEService(
        root_agent,
        ConfigContext(user_id="u", session_lock_config=patience),
        handler_context=HandlerContext(session_lock_handler=Taken),
    )
    register_agui_endpoint(app, locked, PathConfig(agui_main_path="/locked"))
    late = SSEService(
        root_agent, ConfigContext(user_id="u"), handler_context=HandlerContext(adk_event_timeout_handler=Timeout)
    )
    register_agui_endpoint(app, late, PathConfig(agui_main_path="/late"))
    with TestClient(app) as client:
        events = say(client, "hello", "/locked")
        assert events[-1]["code"] == "THREAD_IS_LOCKED" and len(events) == 2
        events = say(client, "slowly endlessly", "/late", thread="l", run="l")
        assert text_of(events).endswith("too late"), json.dumps(events[-3:])


@pytest.mark.parametrize("is_first", [True, False])
def test_history_and_state_share_the_sessions_of_the_service(is_first):
    async def thread(request):
        return request.path_params["thread_id"]

    app = FastAPI()
    service = SSEService(root_agent, ConfigContext(app_name="shop", user_id="u"))
    if is_first:
        register_agui_endpoint(app, service)
    register_agui_history_endpoint(
        app, HistoryService(HistoryConfig(app_name="shop", user_id="u", session_id=thread))
    )
    register_state_endpoint(app, StateService(StateConfig(app_name="shop", user_id="u", session_id=thread)))
    if not is_first:
        register_agui_endpoint(app, service)
    with TestClient(app) as client:
        say(client, "weather")
        say(client, "state", run="r2")
        assert client.get("/thread/list").json() == [{"threadId": "t"}]
        messages = client.get("/message_snapshot/t").json()["messages"]
        assert [message["role"] for message in messages][:4] == ["user", "assistant", "tool", "assistant"]
        assert "get_weather said" in json.dumps(messages)
        assert client.get("/state_snapshot/t").json()["snapshot"]["theme"] == "dark"
        change = [{"op": "replace", "path": "/theme", "value": "light"}]
        assert client.patch("/state/t", json=change).json() == {"status": "updated"}
        assert client.get("/state_snapshot/t").json()["snapshot"]["theme"] == "light"
        refused = client.patch("/state/t", json=[{"op": "remove", "path": "/theme"}])
        assert refused.status_code == 409 and refused.json()["detail"]["error"] == "PATCH_FAILED"
        assert client.patch("/state/t", json=[{"op": "test", "path": "/theme", "value": 1}]).status_code == 409
        assert client.get("/message_snapshot/none").status_code == 404
        assert client.delete("/thread/t").json() == {"status": "deleted"}
        assert client.get("/thread/list").json() == []


def test_a_form_per_service():
    """Profile and frames are those of each service, also in one app."""
    app = FastAPI()
    for path, more in (
        ("/new", {"ag_ui_profile": "1"}),
        ("/old", {"ag_ui_profile": "0", "event_source_response_mode": True}),
    ):
        service = SSEService(root_agent, ConfigContext(user_id="u", **more))
        register_agui_endpoint(app, service, PathConfig(agui_main_path=path))
    with TestClient(app) as client:
        new = client.post("/new", json=run_input("think")).text
        old = client.post("/old", json=run_input("think", "t2", "r2")).text
    assert "REASONING_MESSAGE_CONTENT" in new and "THINKING_" not in new and "event:" not in new
    assert "THINKING_TEXT_MESSAGE_CONTENT" in old and "REASONING_MESSAGE" not in old
    names = [line[7:] for line in old.splitlines() if line.startswith("event: ")]
    assert names == [event["type"] for event in events_of(old)]
    with pytest.raises(ValueError, match="ag_ui_profile"):
        ConfigContext(user_id="u", ag_ui_profile="7")


@pytest.mark.parametrize(("profile", "kind"), [("0", "THINKING_TEXT_MESSAGE"), ("1", "REASONING_MESSAGE")])
def test_thoughts_of_a_translate_handler(profile, kind):
    class Thinks(BaseTranslateHandler):
        async def translate(self, adk_event):
            async for step in ThinkingMessageEventUtil().generate_thinking_message_event("hmm"):
                yield step

    agent = Scripted(name="demo", script=[words("Hi")])
    with TestClient(app_with(agent, handlers={"translate_handler": Thinks}, ag_ui_profile=profile)) as client:
        events = say(client, "x")
        assert [event["delta"] for event in events if event["type"] == f"{kind}_CONTENT"] == ["hmm"]
        assert text_of(events) == "Hi"


def test_tools_of_the_user_interface():
    agent = LlmAgent(
        name="demo", model=ScriptedLlm(script=respond), tools=[FrontendToolset(tool_filter=["pick_colour", "b"])]
    )
    offered = [{"name": name, "description": "d", "parameters": {"type": "object"}} for name in ("pick_colour", "c")]
    with TestClient(app_with(agent)) as client:
        assert "Tools: pick_colour |" in text_of(say(client, "tools?", tools=offered))
        assert "Tools:  |" in text_of(say(client, "tools?", thread="t2", run="r2"))
        events = say(client, "pick", thread="t3", run="r3", tools=offered)
        (id,) = [event["toolCallId"] for event in events if event["type"] == "TOOL_CALL_START"]
        message = {"id": "m", "role": "tool", "toolCallId": id, "content": '{"colour": "red"}'}
        events = say(client, "x", thread="t3", run="r4", messages=[message], tools=offered)
        assert "pick_colour said {'colour': 'red'}" in text_of(events)


def test_requests_of_adk_are_calls_too():
    """A confirmation is answered by the result of `adk_request_confirmation`, as in the middleware."""
    with TestClient(app_with()) as client:
        events = say(client, "confirm")
        calls = {event["toolCallName"]: event["toolCallId"] for event in events if event["type"] == "TOOL_CALL_START"}
        assert set(calls) == {"delete_all", "adk_request_confirmation"} and "outcome" in events[-1]
        message = {"id": "m", "role": "tool", "toolCallId": calls["adk_request_confirmation"], "content": '{"confirmed": true}'}
        events = say(client, "x", run="r2", messages=[message])
        assert "'deleted': 'tmp'" in text_of(events), events


def test_the_input_is_converted_with_the_calls_that_wait():
    seen = []

    async def convert(content, pending):
        seen.append(pending)
        content.messages[-1].content = content.messages[-1].content.upper()
        return content

    with TestClient(app_with(convert_run_agent_input=convert)) as client:
        assert "HELLO" in text_of(say(client, "hello"))
        say(client, "x", run="r2", messages=[{"id": "m", "role": "user", "content": "x"}])
    assert seen == [{}, {}]
    with TestClient(app_with(convert_run_agent_input=lambda content, pending: seen.append(pending) or content)) as client:
        say(client, "silent")
        say(client, "hello", run="r2")
    assert list(seen[-1].values()) == ["ask_silently"]


def test_events_of_the_queues():
    class Says(BaseADKEventHandler):
        async def process(self, event):
            await self.input_info.event_queue.get_agui_queue().put(
                CustomEvent(type=EventType.CUSTOM, name="queued", value=1)
            )
            yield event

    agent = Scripted(name="demo", script=[words("Hi")])
    with TestClient(app_with(agent, handlers={"adk_event_handler": Says})) as client:
        kinds = [event.get("name") or event["type"] for event in say(client, "x")]
        assert kinds[0] == "RUN_STARTED" and "queued" in kinds and kinds[-1] == "RUN_FINISHED"


def test_a_stream_is_closed_before_its_error(caplog):
    agent = Scripted(name="demo", script=[words("Half", partial=True), RuntimeError("secret text")])
    with TestClient(app_with(agent)) as client:
        events = say(client, "x")
        assert [event["type"] for event in events[-2:]] == ["STEP_FINISHED", "RUN_ERROR"] and text_of(events) == "Half"
        assert events[-1]["code"] == "EXECUTION_ERROR" and "secret" not in str(events)
    assert "secret text" in caplog.text
    with TestClient(app_with(agent, show_errors=True)) as client:
        assert say(client, "x")[-1]["message"] == "RuntimeError('secret text')"


def test_an_event_that_cannot_be_written():
    class Breaks(BaseInOutHandler):
        async def input_record(self, input_info):
            pass

        async def output_record(self, agui_event):
            pass

        async def output_catch_and_change(self, agui_event):
            if agui_event.type == EventType.TEXT_MESSAGE_CONTENT:
                return CustomEvent(type=EventType.CUSTOM, name="x", value=object())
            return agui_event

    agent = Scripted(name="demo", script=[words("Hi")])
    with TestClient(app_with(agent, handlers={"in_out_record_handler": Breaks})) as client:
        events = say(client, "x")
        assert [event["code"] for event in events if event["type"] == "RUN_ERROR"] == ["ENCODING_ERROR"]


def test_errors_of_extractors_are_not_told():
    def fails(content, request):
        raise RuntimeError("secret text")

    def refuses(content, request):
        raise HTTPException(403, "no entry")

    with TestClient(app_with(user_id=fails)) as client:
        response = client.post("/", json=run_input("x"))
        assert response.status_code == 500 and "secret" not in response.text
        assert response.json()["detail"]["error"] == "Internal Server Error."
    with TestClient(app_with(user_id=refuses)) as client:
        assert client.post("/", json=run_input("x")).status_code == 403


def test_a_lock_per_user():
    """Two users with one session id do not wait for each other; one user does."""
    started, go = threading.Event(), threading.Event()

    class Waits(BaseAgent):
        async def _run_async_impl(self, ctx):
            yield words("begun ", partial=True, invocation_id=ctx.invocation_id)
            started.set()
            while ctx.user_id == "ann" and not go.is_set():
                await asyncio.sleep(0.02)
            yield words("begun ", invocation_id=ctx.invocation_id)

    async def user(content, request):
        return request.headers["x-user"]

    patience = SessionLockConfig(lock_retry_times=1, lock_retry_interval=0.05)
    with TestClient(app_with(Waits(name="demo"), user_id=user, session_lock_config=patience)) as client:
        first = threading.Thread(target=say, args=(client, "x"), kwargs={"headers": {"x-user": "ann"}})
        first.start()
        try:
            assert started.wait(60)
            events = say(client, "x", run="r2", headers={"x-user": "bob"})
            assert events[-1]["type"] == "RUN_FINISHED"
            events = say(client, "x", run="r3", headers={"x-user": "ann"})
            assert [event.get("code") for event in events][-1] == "THREAD_IS_LOCKED"
        finally:
            go.set()
            first.join(60)


def test_services_are_overridable():
    class Wraps(SSEService):
        async def get_runner(self, agui_content, request):
            runner, info, inout = await super().get_runner(agui_content, request)
            assert isinstance(info, InputInfo) and inout is None

            async def wrapped():
                async for event in runner():
                    if event.type in KINDS:
                        yield event

            return wrapped, info, inout

        async def extract_user_id(self, agui_content, request):
            return "from the class"

    class Own(BaseSSEService):
        async def get_runner(self, agui_content, request):
            return None, None, None

        async def event_generator(self, runner, input_info, inout_handler=None):
            async def frames():
                yield 'data: {"type": "CUSTOM", "name": "own", "value": 1}\n\n'

            return StreamingResponse(frames(), media_type="text/event-stream")

    app = FastAPI()
    sessions = InMemorySessionService()
    service = Wraps(Scripted(name="demo", script=[words("Hi")]), ConfigContext(user_id="u"), RunnerConfig(session_service=sessions))
    register_agui_endpoint(app, service, PathConfig(agui_main_path="/wraps"))
    register_agui_endpoint(app, Own(), PathConfig(agui_main_path="/own"))
    with TestClient(app) as client:
        events = say(client, "x", "/wraps")
        assert [event["type"] for event in events] == [kind.value for kind in KINDS]
        assert say(client, "x", "/own") == [{"type": "CUSTOM", "name": "own", "value": 1}]

        async def listed():
            return (await sessions.list_sessions(app_name="default", user_id="from the class")).sessions

        assert len(client.portal.call(listed)) == 1


def test_other_protocols_of_a_service():
    app = app_with(path="/agui", routes=("hai", "ai_sdk", "runs"))
    with TestClient(app) as client:
        say(client, "hello", "/agui")
        assert client.get("/agui/runs/r").json()["status"] == "finished"
        hai = client.post("/agui/awp", json={"messages": [{"role": "user", "content": "hello"}], "threadId": "h"})
        assert "RUN_FINISHED" in hai.text and "You" in hai.text
        message = {"id": "m1", "role": "user", "parts": [{"type": "text", "text": "hello"}]}
        chat = client.post("/agui/api/chat", json={"id": "c1", "messages": [message], "trigger": "submit-message"})
        assert chat.status_code == 200 and "text-delta" in chat.text
    with pytest.raises(agentwire.ConfigError, match="unknown routes"):
        app_with(routes=("nonsense",))


def test_routers_and_the_root():
    app, router = FastAPI(), APIRouter()
    service = SSEService(root_agent, ConfigContext(user_id="u"))
    agentwire.fastapi.register_agui_endpoint(router, service)
    app.include_router(router, prefix="/v1")
    with TestClient(app) as client:
        assert "You said" in text_of(say(client, "hello", "/v1"))


def test_shutdown_functions():
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    called = []

    async def first():
        called.append(1)
        raise RuntimeError("does not stop the others")

    async def second():
        called.append(2)

    app = app_with()
    assert ShutdownHandler() is ShutdownHandler()
    ShutdownHandler().register_shutdown_function(first)
    ShutdownHandler().register_shutdown_function(second)
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before
    with TestClient(app) as client:
        say(client, "hello")
        assert called == []
    assert called == [1, 2]


def test_handlers_of_the_history():
    class Adk(BaseADKEventHandler):
        async def process(self, event):
            yield None if event.content and event.content.parts and event.content.parts[0].text == "hidden" else event

    class Translate(BaseTranslateHandler):
        async def translate(self, adk_event):
            if adk_event.content.parts[0].text == "replaced":
                yield TranslateEvent(adk_event=words("in its place"), is_replace=True)

    class Agui(BaseAGUIEventHandler):
        async def process(self, event):
            if event.type == EventType.TEXT_MESSAGE_CONTENT:
                event.delta = event.delta.upper()
            yield event

    async def threads(sessions):
        return [{"id": session.id, "title": "mine"} for session in sessions]

    app = app_with(Scripted(name="demo", script=[words("hidden"), words("replaced"), words("kept")]))
    history = HistoryConfig(
        app_name="shop",
        user_id="u",
        session_id=lambda request: request.path_params["thread_id"],
        adk_event_handler=Adk,
        translate_handler=Translate,
        agui_event_handler=Agui,
        get_thread_list=threads,
    )
    register_agui_history_endpoint(app, HistoryService(history))
    with TestClient(app) as client:
        say(client, "hello")
        assert client.get("/thread/list").json() == [{"id": "t", "title": "mine"}]
        messages = client.get("/message_snapshot/t").json()["messages"]
        assert [message["content"] for message in messages] == ["hello", "IN ITS PLACE", "KEPT"]


def test_the_result_of_a_person_is_in_the_history():
    app = app_with()
    session = {"app_name": "shop", "user_id": "u", "session_id": lambda request: request.path_params["thread_id"]}
    register_agui_history_endpoint(app, HistoryService(HistoryConfig(**session)))
    register_state_endpoint(app, StateService(StateConfig(**session, get_state=lambda state: {"keys": sorted(state)})))
    with TestClient(app) as client:
        (id,) = [event["toolCallId"] for event in say(client, "silent") if event["type"] == "TOOL_CALL_START"]
        message = {"id": "m", "role": "tool", "toolCallId": id, "content": '{"colour": "red"}'}
        say(client, "x", run="r2", messages=[message])
        messages = client.get("/message_snapshot/t").json()["messages"]
        assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant"]
        assert json.loads(messages[2]["content"]) == {"colour": "red"} and messages[2]["toolCallId"] == id
        assert "pending_tool_calls" in client.get("/state_snapshot/t").json()["snapshot"]["keys"]


def test_missing_services_are_refused():
    with pytest.raises(agentwire.ConfigError, match="artifact_service"):
        SSEService(root_agent, ConfigContext(user_id="u"), RunnerConfig(use_in_memory_services=False))


@pytest.mark.parametrize("point", ["adk_event_handler", "translate_handler"])
def test_the_last_snapshot_is_the_state_of_the_session(point):
    class Dropping(BaseADKEventHandler):
        async def process(self, event):
            yield None

    class Retuning(BaseTranslateHandler):
        async def translate(self, adk_event):
            yield TranslateEvent(is_retune=True)

    changing = words("hidden", actions=EventActions(state_delta={"theme": "dark", "temp:x": 1}))
    handler = Dropping if point == "adk_event_handler" else Retuning
    app = app_with(Scripted(name="demo", script=[changing]), handlers={point: handler})
    with TestClient(app) as client:
        events = say(client, "hello")
    (snapshot,) = [event["snapshot"] for event in events if event["type"] == "STATE_SNAPSHOT"]
    assert snapshot == {"theme": "dark"} and text_of(events) == ""
