"""One-liners for FastAPI: `add_agent`, and the names of ag-ui-langgraph and ag_ui_adk."""

import logging
import warnings

import agentwire
import pytest
from ag_ui.core import RunAgentInput
from agentwire.adk import (
    ADKAgent,
    AGUIToolset,
    add_adk_fastapi_endpoint,
    create_adk_app,
    make_extract_headers,
    resolve_agent_from_message_history,
)
from agentwire.fastapi import add_agent
from agentwire.langgraph import LangGraphAgent, add_langgraph_fastapi_endpoint
from fastapi import APIRouter, Depends, FastAPI, HTTPException, Request
from fastapi.testclient import TestClient
from google.adk.agents import LlmAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.apps import App
from google.adk.sessions import InMemorySessionService
from langgraph.checkpoint.memory import InMemorySaver
from servers import events_of, run_input, text_of
from test_local import asking, root_agent, talking

from demo.agent import respond  # the path of the apps is that of test_local
from demo.scripted import ScriptedLlm


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
        tools = client.get("/openapi.json").json()["paths"]["/agent"]["post"]
        assert "tags" not in tools


def test_langgraph_agents_with_options_at_several_paths(caplog):
    app = FastAPI()
    graph = talking().compile(checkpointer=InMemorySaver())
    agent = LangGraphAgent(name="my shop", graph=graph, emit_raw_events=True, emit_subagent_events=True)
    add_langgraph_fastapi_endpoint(app, agent, "/one", tags=["agents"], dependencies=[Depends(lambda: None)])
    add_langgraph_fastapi_endpoint(app, agent, "/two")
    add_langgraph_fastapi_endpoint(app, talking("From a graph").compile(), "/three")

    class Foreign:
        """As those of ag-ui-langgraph and CopilotKit."""

        name, description, config = "foreign", "d", {"tags": ["x"]}
        graph = talking("From elsewhere").compile()

    add_langgraph_fastapi_endpoint(app, Foreign(), "/four")
    with TestClient(app) as client:
        events = say(client, "hello", "/one")
        assert any("rawEvent" in event for event in events)
        assert text_of(say(client, "hello", "/two", thread="other", run="r2")).strip() == "Hello there 1"
        assert text_of(say(client, "hello", "/three", run="r3")).startswith("From a graph")
        assert text_of(say(client, "hello", "/four", run="r4")).startswith("From elsewhere")
        assert client.get("/openapi.json").json()["paths"]["/one"]["post"]["tags"] == ["agents"]
        assert client.get("/three/health").json() == {"status": "ok", "agent": {"name": "agent"}}
    assert agent.clone() is agent
    assert agent.get_capabilities()["identity"]["name"] == "my shop"
    with caplog.at_level(logging.WARNING, "agentwire.langgraph"):
        LangGraphAgent(name="a", graph=graph, enable_legacy_on_interrupt_event=False, subagent_visibility="hidden")
    assert [record.args for record in caplog.records if "subagent" in record.message]


def test_a_langgraph_agent_without_http():
    import asyncio

    async def main():
        agent = LangGraphAgent(name="a", graph=talking().compile())
        return [event async for event in agent.run(RunAgentInput.model_validate(run_input("hello")))]

    events = asyncio.run(main())
    assert [events[0].type.value, events[-1].type.value] == ["RUN_STARTED", "RUN_FINISHED"]


def test_interrupts_of_the_one_liner():
    app = FastAPI()
    add_langgraph_fastapi_endpoint(app, asking().compile(checkpointer=InMemorySaver()), "/")
    with TestClient(app) as client:
        events = say(client, "paint", run="r1")
        (item,) = events[-1]["outcome"]["interrupts"]
        answer = [{"interruptId": item["id"], "status": "resolved", "payload": "red"}]
        events = say(client, "paint", run="r2", messages=[], resume=answer)
        assert "painted red" in text_of(events) + str(events)


# ag_ui_adk


def test_the_one_liner_of_ag_ui_adk(caplog):
    sessions, asked = InMemorySessionService(), []

    def run_config(input):
        asked.append(input.thread_id)
        return RunConfig(streaming_mode=StreamingMode.NONE)

    agent = ADKAgent(
        root_agent,
        app_name="shop",
        user_id="ann",
        session_service=sessions,
        capabilities={"identity": {"name": "Shop"}},
        execution_timeout_seconds=60,
        run_config_factory=run_config,
        max_sessions_per_user=3,
        predict_state=[object()],
    )
    ignored = [record.args[0] for record in caplog.records if "has no effect" in record.message]
    assert ignored == ["max_sessions_per_user", "predict_state"]
    app = FastAPI()
    add_adk_fastapi_endpoint(app, agent, "/adk", tags=["adk"])
    with TestClient(app) as client:
        events = say(client, "hello", "/adk", state={"theme": "dark", "user:name": "mallory"})
        assert "You said" in text_of(events) and asked == ["t"]
        assert client.get("/adk/capabilities").json() == {"identity": {"name": "Shop"}}
        found = client.post("/agents/state", json={"threadId": "t"}).json()
        assert found["threadExists"] and found["state"]["theme"] == "dark" and "user:name" not in found["state"]
        assert [message["role"] for message in found["messages"]] == ["user", "assistant"]
        assert client.post("/agents/state", json={"threadId": "none"}).json()["threadExists"] is False

        async def session():
            return await sessions.get_session(app_name="shop", user_id="ann", session_id="t")

        assert client.portal.call(session).state["theme"] == "dark"


def test_extractors_and_resolvers():
    def shouting(request):
        return respond(request)

    other = ADKAgent(LlmAgent(name="other", model=ScriptedLlm(script=shouting)), user_id="ann", app_name="demo")
    first = ADKAgent(root_agent, user_id_extractor=lambda input: input.state["headers"]["user_id"])

    async def resolve(request, input):
        return other if request.headers.get("x-agent") == "other" else None

    app = FastAPI()
    extract = make_extract_headers(["x-user-id"])
    add_adk_fastapi_endpoint(app, first, "/", extract_state_from_request=extract, agent_resolver=resolve)
    with TestClient(app) as client:
        ann = {"x-user-id": "ann"}
        events = say(client, "hello", headers=ann)
        assert events[-1]["type"] == "RUN_FINISHED", events
        snapshot = [event["snapshot"] for event in events if event["type"] == "STATE_SNAPSHOT"][-1]
        assert snapshot["headers"] == {"user_id": "ann"}
        events = say(client, "hello", run="r2", headers={**ann, "x-agent": "other"})
        assert {event.get("name") for event in events if event["type"] == "TEXT_MESSAGE_START"} == {"other"}
    with pytest.raises(ValueError, match="Cannot use both"):
        create_adk_app(first, extract_headers=["x"], extract_state_from_request=extract)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        create_adk_app(first, extract_headers=["x-user-id"])
    assert any(issubclass(warning.category, DeprecationWarning) for warning in told)
    with pytest.raises(ValueError, match="user_id"):
        ADKAgent(root_agent, user_id="a", user_id_extractor=lambda input: "b")


def test_users_of_ag_ui_adk_are_apart():
    """Without a user, every thread is a user of its own; the extracted ones cannot read each other's threads."""
    agent = ADKAgent(root_agent, user_id_extractor=lambda input: input.forwarded_props["user"])
    with TestClient(create_adk_app(agent)) as client:
        say(client, "my secret is green", forwardedProps={"user": "ann"})
        events = say(client, "hello", run="r2", forwardedProps={"user": "bob"})
        assert "green" not in str(events)
    plain = ADKAgent(root_agent)
    assert plain.caller(RunAgentInput.model_validate(run_input("x", "t9"))).user == "thread_user_t9"


def test_sessions_that_ag_ui_adk_stored_are_found():
    sessions = InMemorySessionService()
    agent = ADKAgent(root_agent, user_id="ann", session_service=sessions)
    with TestClient(create_adk_app(agent)) as client:

        async def stored():
            return await sessions.create_session(
                app_name="demo", user_id="ann", state={"_ag_ui_thread_id": "t", "theme": "old"}
            )

        old = client.portal.call(stored)
        say(client, "hello")

        async def events():
            found = await sessions.get_session(app_name="demo", user_id="ann", session_id=old.id)
            return len(found.events), len((await sessions.list_sessions(app_name="demo", user_id="ann")).sessions)

        count, threads = client.portal.call(events)
        assert count > 1 and threads == 1
        assert client.post("/agents/state", json={"threadId": "t"}).json()["state"]["theme"] == "old"


def test_an_app_and_a_run_without_http():
    import asyncio

    with pytest.raises(TypeError):
        ADKAgent.from_app(root_agent)

    async def main():
        agent = ADKAgent.from_app(App(name="demo_app", root_agent=root_agent), user_id="ann")
        events = [event async for event in agent.run(RunAgentInput.model_validate(run_input("hello")))]
        await agent.close()
        return events

    events = asyncio.run(main())
    assert [events[0].type.value, events[-1].type.value] == ["RUN_STARTED", "RUN_FINISHED"]


def test_the_agent_of_a_message():
    agents = {"shop": ADKAgent(root_agent)}
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [
        {"id": "1", "role": "assistant", "name": "shop", "toolCalls": [call]},
        {"id": "2", "role": "tool", "toolCallId": "c1", "content": "{}"},
    ]
    given = RunAgentInput.model_validate({**run_input("x"), "messages": messages})
    assert resolve_agent_from_message_history(given.messages, agents) is agents["shop"]
    assert resolve_agent_from_message_history(given.messages[:1], agents) is None


def test_tools_of_the_user_interface_with_a_filter_and_a_prefix():
    tools = [AGUIToolset(tool_filter=lambda tool: tool.name != "hidden", tool_name_prefix="ui")]
    agent = LlmAgent(name="demo", model=ScriptedLlm(script=respond), tools=tools)
    offered = [{"name": name, "description": "d", "parameters": {"type": "object"}} for name in ("pick", "hidden")]
    with TestClient(create_adk_app(ADKAgent(agent, user_id="u"))) as client:
        assert "Tools: ui_pick |" in text_of(say(client, "tools?", tools=offered))
        # Each session has its own tools.
        assert "Tools:  |" in text_of(say(client, "tools?", thread="t2", run="r2"))
