"""One-liners for FastAPI, and the names of adk-agui-middleware."""

import json

import agentwire
import pytest
from agentwire.adk import (
    BaseADKEventHandler,
    BaseAGUIEventHandler,
    BaseAGUIStateSnapshotHandler,
    BaseADKEventTimeoutHandler,
    BaseInOutHandler,
    BaseTranslateHandler,
    ConfigContext,
    HandlerContext,
    PathConfig,
    RunnerConfig,
    SessionLockHandler,
    SSEService,
    TranslateEvent,
    register_agui_endpoint,
)
from agentwire.fastapi import add_agent
from agentwire.langgraph import LangGraphAgent, add_langgraph_fastapi_endpoint
from ag_ui.core import CustomEvent, EventType
from fastapi import APIRouter, Depends, FastAPI, HTTPException, Request
from fastapi.testclient import TestClient
from google.adk.sessions import InMemorySessionService
from langgraph.checkpoint.memory import InMemorySaver
from servers import events_of, run_input, text_of
from test_local import root_agent, talking


def say(client, text, path="/", **more):
    headers = more.pop("headers", {})
    response = client.post(path, json=run_input(text, **more), headers={"accept": "text/event-stream", **headers})
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    return events_of(response.text)


def test_add_agent_with_dependencies_prefix_and_docs():
    def guarded(request: Request):
        if request.headers.get("x-key") != "right":
            raise HTTPException(403, "no entry")

    @agentwire.agent
    async def echo(request):
        yield f"You said {request.user_text()}"

    app, router = FastAPI(), APIRouter()
    add_agent(router, echo, "/echo", name="echo", dependencies=[Depends(guarded)], routes=("ag_ui", "history"))
    app.include_router(router, prefix="/v1")
    gateway = add_agent(app, talking().compile(), "/graph", name="graph")
    assert gateway is app.state.agentwire
    with TestClient(app) as client:
        assert client.post("/v1/echo", json=run_input("x")).status_code == 403
        right = {"x-key": "right"}
        assert text_of(say(client, "hi", "/v1/echo", headers=right)) == "You said hi"
        assert client.get("/v1/echo/thread/list", headers=right).json() == [{"threadId": "t"}]
        assert text_of(say(client, "hi", "/graph", run="g")).strip() == "Hello there 1"
        assert "/v1/echo" in client.get("/openapi.json").text
    with pytest.raises(agentwire.ConfigError, match="unknown routes"):
        add_agent(app, echo, "/x", name="x", routes=("nonsense",))


def test_the_one_liner_of_ag_ui_langgraph():
    app = FastAPI()
    agent = LangGraphAgent(name="weather", graph=talking().compile(checkpointer=InMemorySaver()), description="d")
    add_langgraph_fastapi_endpoint(app, agent, "/agent")
    with TestClient(app) as client:
        events = say(client, "hello", "/agent")
        assert events[0]["type"] == "RUN_STARTED" and text_of(events).strip() == "Hello there 1"
        assert client.get("/agent/health").json()["agent"]["name"] == "weather"


# adk-agui-middleware


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
            if event.type == EventType.RUN_FINISHED:
                yield CustomEvent(type=EventType.CUSTOM, name="last", value=2)
            yield event

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
    assert service.infos == {}


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

    from agentwire.adk import SessionLockConfig

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


def test_history_and_state_share_the_sessions_of_the_service():
    from agentwire.adk import (
        HistoryConfig,
        HistoryService,
        StateConfig,
        StateService,
        register_agui_history_endpoint,
        register_state_endpoint,
    )

    async def thread(request):
        return request.path_params["thread_id"]

    app = FastAPI()
    register_agui_endpoint(app, SSEService(root_agent, ConfigContext(app_name="shop", user_id="u")))
    register_agui_history_endpoint(
        app, HistoryService(HistoryConfig(app_name="shop", user_id="u", session_id=thread))
    )
    register_state_endpoint(app, StateService(StateConfig(app_name="shop", user_id="u", session_id=thread)))
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


def test_the_paths_of_the_middleware():
    from importlib import import_module

    paths = {
        "endpoint": ["register_agui_endpoint", "register_agui_history_endpoint", "register_state_endpoint"],
        "service.sse_service": ["SSEService"],
        "service.history_service": ["HistoryService"],
        "service.state_service": ["StateService"],
        "base_abc.handler": ["BaseADKEventHandler", "BaseInOutHandler", "SessionLockHandler"],
        "data_model.context": ["ConfigContext", "HandlerContext"],
        "data_model.config": ["PathConfig", "RunnerConfig", "HistoryConfig", "StateConfig"],
        "data_model.common": ["InputInfo", "SessionLockConfig"],
        "data_model.event": ["TranslateEvent"],
        "handler.session_lock_handler": ["DefaultSessionLockHandler"],
        "event.error_event": ["AGUIErrorEvent"],
        "tools.default_config_context": ["default_session_id"],
    }
    for path, names in paths.items():
        module = import_module(f"agentwire.adk.compat.{path}")
        for name in names:
            assert hasattr(module, name), (path, name)
