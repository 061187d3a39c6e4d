"""Forms of inputs, hooks, settings and mounts that a program may choose."""

import asyncio
import functools
import json
import subprocess
import sys

import agentwire
import httpx
import pytest
from ag_ui.core import ResumeEntry
from agentwire import (
    AGUIAdapter,
    Caller,
    ConfigError,
    EventTranslationError,
    Failure,
    Gateway,
    Hooks,
    SessionLock,
    Translation,
    Translator,
    UnknownEventTypeError,
    to_command,
    to_langchain,
)
from agentwire.agents import AGENT_KEYS
from agentwire.fastapi import add_agent
from fastapi import APIRouter, FastAPI
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from pydantic import BaseModel
from servers import Served, kinds, run_input, text_of
from starlette.applications import Starlette
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.routing import Mount

USER = {"id": "u", "role": "user", "content": "hi"}


def graph_of(node, checkpointer=None):
    builder = StateGraph(MessagesState)
    builder.add_node("node", node)
    builder.add_edge(START, "node")
    return builder.compile(checkpointer=checkpointer)


async def events_of(adapter, *given, **options):
    return [event async for event in adapter.run(*given, **options)]


@agentwire.agent
async def words(request):
    yield "one "
    yield "two"


# Inputs


@pytest.mark.parametrize("form", [lambda value: value, json.dumps, lambda value: json.dumps(value).encode()])
@pytest.mark.parametrize("names", [("threadId", "runId"), ("thread_id", "run_id")])
def test_an_input_may_be_short_and_in_both_spellings(form, names):
    given = form({names[0]: "t", names[1]: "r", "messages": [USER]})
    assert [message.id for message in to_langchain(given)] == ["u"]
    started, *_ = asyncio.run(events_of(AGUIAdapter(graph_of(lambda state: {})), given))
    assert (started.thread_id, started.run_id) == ("t", "r")


def test_parts_and_calls_may_be_in_snake_case():
    image = {"type": "image", "source": {"type": "data", "value": "aGk=", "mime_type": "image/png"}}
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"mime_type": 1}'}}
    calling = {"id": "a", "role": "assistant", "tool_calls": [call]}
    result = {"id": "r", "role": "tool", "tool_call_id": "c", "content": "ok"}
    given = {"messages": [{"id": "u", "role": "user", "content": [image]}, calling, result]}
    user, assistant, tool = to_langchain(given)
    assert user.content == [{"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}]
    assert assistant.tool_calls[0]["args"] == {"mime_type": 1} and tool.tool_call_id == "c"


def test_inputs_without_ids_share_no_thread():
    seen = []

    def node(state):
        seen.append(len(state["messages"]))
        return {"messages": [AIMessage("x")]}

    async def main():
        adapter = AGUIAdapter(graph_of(node, InMemorySaver()))
        first, second = [(await events_of(adapter, {"messages": [USER]}))[0] for _ in range(2)]
        assert first.thread_id != second.thread_id and seen == [1, 1]
        async with Served(words) as served:
            handles = [served.gateway.run({"messages": [USER]}) for _ in range(2)]
            assert len({handle.run_id for handle in handles}) == 2
            assert [(await handle.result())["runId"] for handle in handles] == [handle.run_id for handle in handles]

    asyncio.run(main())


class Answer(BaseModel):
    ok: bool


ANSWER = Answer(ok=True)


@pytest.mark.parametrize(
    ("given", "resume"),
    [
        (ResumeEntry(interrupt_id="i", status="resolved", payload={"a": 1}), {"a": 1}),
        ({"interruptId": "i", "payload": {"a": 1}}, {"a": 1}),
        ({"interrupt_id": "i", "status": "resolved", "payload": 5}, 5),
        (ANSWER, ANSWER),
        ("yes", "yes"),
    ],
)
def test_the_forms_of_an_answer(given, resume):
    assert to_command(given).resume == resume


# Adapter and translator


def test_configs_of_the_adapter_and_of_a_run_are_merged():
    seen = {}

    def node(state, config):
        seen.update(config["configurable"], tags=config["tags"])
        return {}

    base = {"configurable": {"model": "m", "user": "a"}, "tags": ["base"]}
    adapter = AGUIAdapter(graph_of(node), config=base)
    asyncio.run(events_of(adapter, {"messages": [USER]}, config={"configurable": {"user": "b"}, "tags": ["run"]}))
    assert (seen["model"], seen["user"], seen["tags"]) == ("m", "b", ["base", "run"])


def test_the_report_is_that_of_the_adapter():
    async def main():
        first, second = AGUIAdapter(graph_of(lambda state: {})), AGUIAdapter(graph_of(lambda state: {}))
        await events_of(first, {"messages": [USER]})
        assert first.report() is not None and second.report() is None
        before = first.report().frames
        await events_of(second, {"messages": [USER, {**USER, "id": "v"}]})
        assert first.report().frames == before and second.report() is not None

    asyncio.run(main())


@pytest.mark.parametrize(
    ("accept", "is_binary"),
    [
        (None, False),
        ("*/*", False),
        ("application/vnd.ag-ui.event+proto", True),
        ("application/vnd.ag-ui.event+proto, text/event-stream", False),
        ("application/vnd.ag-ui.event+proto, text/event-stream;q=0.5", True),
        ("application/vnd.ag-ui.event+proto;q=0.4, */*;q=0.5", False),
    ],
)
def test_the_accept_header_has_weights(accept, is_binary):
    async def main():
        stream = AGUIAdapter(graph_of(lambda state: {})).create_official_stream({"messages": [USER]}, accept)
        return b"".join([out async for out in stream])

    assert asyncio.run(main()).startswith(b"data: ") != is_binary


class Wordless(Exception):
    def __str__(self):
        raise RuntimeError("no words")


@pytest.mark.parametrize("error", [ValueError("\ud800"), Wordless(), Failure("CODE\ud800", "\udfff")])
def test_any_exception_ends_a_run(error):
    def node(state):
        raise error

    events = asyncio.run(events_of(AGUIAdapter(graph_of(node), events="dict"), {"messages": [USER]}))
    assert [events[0]["type"], events[-1]["type"]] == ["RUN_STARTED", "RUN_ERROR"]


def test_strict_errors_have_the_number_of_the_event():
    class Unreadable:
        def __str__(self):
            raise RuntimeError("no words")

    custom = {"type": "CUSTOM", "name": "x", "value": 1}
    for bad, kind in [({"type": "NOPE"}, UnknownEventTypeError), (42, EventTranslationError)]:
        translator = Translator("ag-ui", strict=True)
        translator.push(custom)
        with pytest.raises(kind) as caught:
            translator.push(bad)
        assert caught.value.index == 1 and not str(caught.value.event).endswith("\n")
        assert b'"code":"BAD_INPUT"' in translator.finish()
    translator = Translator("ag-ui", strict=True)
    translator.push(custom)
    with pytest.raises(EventTranslationError) as caught:
        translator.push({**custom, "value": Unreadable()})
    assert caught.value.index == 1 and b'"code":"BAD_INPUT"' in translator.finish()
    with pytest.raises(ConfigError) as wrong:
        Translator("ag-ui", max_frame=0)
    assert wrong.value.key == "max_frame"


# Hooks


def test_time_limits_of_the_object_count():
    async def late(request):
        yield "first"
        await asyncio.Event().wait()

    class Fallback(Hooks):
        def __init__(self, run):
            super().__init__(run)
            self.native_timeout = 0.2

        async def native_fallback(self):
            yield {"type": "TEXT_MESSAGE_CHUNK", "messageId": "f", "delta": " instead"}

    class Short(Hooks):
        timeout = 0.2

        async def event(self, event):
            await asyncio.Event().wait()

    async def main():
        for hooks in (Fallback, lambda run: Fallback(run)):
            async with Served(agentwire.agent(late), hooks=hooks) as served:
                assert text_of(await served.say("hello")) == "first instead"
        async with Served(words, hooks=lambda run: Short(run)) as served:
            assert (await served.say("hello"))[-1]["code"] == "HOOK_FAILED"

    asyncio.run(main())


def test_a_native_hook_that_gives_no_event_fails():
    async def main():
        for point, value in [("native", 42), ("translate", Translation.replace("text"))]:
            hooks = type("Wrong", (Hooks,), {point: lambda self, event, value=value: value})
            async with Served(words, hooks=hooks) as served:
                assert (await served.say("hello"))[-1]["code"] == "HOOK_FAILED"

    asyncio.run(main())


def test_a_hook_may_be_a_plain_generator():
    class Twice(Hooks):
        def event(self, event):
            yield event
            if event["type"] == "TEXT_MESSAGE_CONTENT":
                yield event

    async def main():
        async with Served(words, hooks=Twice) as served:
            assert text_of(await served.say("hello")) == "one one twotwo"

    asyncio.run(main())


def test_hooks_and_locks_see_the_body_of_the_request():
    seen = []

    class Looking(Hooks):
        async def input_record(self, input):
            seen.append(self.run.request_info.json["runId"])

    class Lock(SessionLock):
        def lock(self, run):
            seen.append(run.request_info.input["runId"])

    async def main():
        for settings in ({"hooks": Looking}, {"lock": Lock()}):
            async with Served(words, **settings) as served:
                body = json.dumps(run_input("hello", run="mine")).encode()
                assert (await served.gateway.request("POST", "/", body=body))[0] == 200

    asyncio.run(main())
    assert seen == ["mine", "mine"]


# Gateway


def test_events_of_a_run_need_no_ids():
    @agentwire.agent
    async def ending(request):
        yield {"type": "RUN_STARTED"}
        yield "text"
        yield {"type": "RUN_FINISHED", "result": 5}

    async def main():
        async with Served(ending) as served:
            events = await served.say("hello")
            assert kinds(events)[-1] == "RUN_FINISHED" and events[-1]["result"] == 5

    asyncio.run(main())


def test_a_run_in_other_formats():
    async def main():
        async with Served(words) as served:
            run = {"messages": [USER]}
            found = [event async for event in served.gateway.run(run, format="langgraph")]
            assert {"metadata", "messages", "values"} <= {event["event"] for event in found}
            hai = [event async for event in served.gateway.run(run, format="hai")]
            assert "BUSINESS_DATA_CONTENT" in kinds(hai)
            for wrong in ("ai-sdk@4", "ag-ui-proto", "adk", "nope"):
                with pytest.raises(ConfigError) as caught:
                    served.gateway.run(run, format=wrong)
                assert caught.value.key == "format"
            with pytest.raises(ConfigError):
                served.gateway.run("{")

    asyncio.run(main())


def test_links_have_the_prefix_of_a_mount():
    async def main():
        gateway = Gateway({"a": words}, store="memory:", signals=False)
        app = FastAPI()
        app.mount("/my ai", gateway)
        async with gateway.lifespan():
            transport = httpx.ASGITransport(app=app)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
                (agent,) = (await client.get("/my%20ai/agents")).json()["agents"]
                assert agent["url"] == "/my%20ai/agents/a"
                assert (await client.post(agent["url"], json=run_input("hello"))).status_code == 200
                openapi = (await client.get("/my%20ai/openapi.json")).json()
                assert openapi["servers"] == [{"url": "/my%20ai"}]
                page = await client.get("/my%20ai/", headers={"accept": "text/html"})
                assert page.headers["location"] == "/my%20ai/console"
            # The app itself has no prefix.
            assert "servers" not in json.loads((await gateway.request("GET", "/openapi.json"))[2])

    asyncio.run(main())


def test_the_identity_function_decides_about_lists_of_agents_too():
    def identity(info):
        seen.append((info.part, info.agent))
        return Caller("ann") if info.headers.get("x-key") == "k" else None

    seen = []

    async def main():
        async with Served(words, identity=identity) as served:
            for path in ("/agents", "/openapi.json", "/agents/a/capabilities", "/capabilities"):
                assert (await served.gateway.request("GET", path))[0] == 401, path
                assert (await served.gateway.request("GET", path, headers={"x-key": "k"}))[0] == 200, path
            before = len(seen)
            assert (await served.gateway.request("GET", "/livez"))[0] == 200
            assert len(seen) == before

    asyncio.run(main())
    assert ("server", "") in seen and ("main", "a") in seen


def test_every_key_of_an_agent_is_one_of_an_upstream():
    command = [sys.executable, "-m", "agentwire", "config", "schema"]
    schema = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    table = schema["properties"]["agents"]["additionalProperties"]
    for part in table.get("$ref", "").split("/")[1:]:
        schema = schema[part]
    keys = (schema if "$ref" in table else table)["properties"]
    assert set(keys) - {"upstream"} == AGENT_KEYS - {"lock"}
    hooks = {"input": {"url": "http://127.0.0.1:9/"}}
    given = agentwire.upstream("replay", file=__file__, breaker={"failures": 3}, sse="standard", hooks=hooks)
    assert given.settings == {"breaker": {"failures": 3}, "sse": "standard", "hooks": hooks}
    with pytest.raises(ConfigError) as caught:
        Gateway(words, store="memory:", hooks=hooks)
    assert caught.value.key == "hooks"


@pytest.mark.parametrize(("key", "value"), [("worker_threads", 0), ("identity_timeout", 0)])
def test_numbers_are_checked_when_a_gateway_is_made(key, value):
    with pytest.raises(ConfigError) as caught:
        Gateway(words, store="memory:", **{key: value})
    assert caught.value.key == key


def test_settings_of_an_agent_in_an_app():
    app = FastAPI()
    gateway = add_agent(app, words, "/a", name="a", busy="wait", drain={"grace": "1s"})
    add_agent(app, words, "/b", name="b", busy="reject")
    with pytest.raises(ConfigError) as caught:
        add_agent(app, words, "/c", name="c", drain={"grace": "1s"})
    assert caught.value.key == "drain" and gateway.agents == ["a", "b"]
    with pytest.raises(ConfigError):
        add_agent(APIRouter(), words, "/d", busy="nonsense")
    # The agent of the program has its own settings.
    assert "busy" not in words.settings


def ag_ui_events():
    """Events as objects of `ag_ui.core`, with members of several words at every level."""
    from ag_ui import core

    call = core.ToolCall(id="c1", type="function", function=core.FunctionCall(name="look", arguments="{}"))
    messages = [
        core.UserMessage(id="u1", role="user", content="hi"),
        core.AssistantMessage(id="a1", role="assistant", tool_calls=[call]),
        core.ToolMessage(id="t1", role="tool", content="seen", tool_call_id="c1"),
    ]

    class Own(core.CustomEvent):
        """An event of one's own class."""

    return [
        core.TextMessageStartEvent(message_id="m1", role="assistant"),
        core.TextMessageContentEvent(message_id="m1", delta="Hello"),
        core.TextMessageEndEvent(message_id="m1"),
        core.ToolCallStartEvent(tool_call_id="c2", tool_call_name="look", parent_message_id="m1"),
        core.ToolCallArgsEvent(tool_call_id="c2", delta="{}"),
        core.ToolCallEndEvent(tool_call_id="c2"),
        core.ToolCallResultEvent(message_id="m2", tool_call_id="c2", content="seen"),
        core.StepStartedEvent(step_name="plan"),
        core.StepFinishedEvent(step_name="plan"),
        core.StateSnapshotEvent(snapshot={"snake_case": None}),
        core.MessagesSnapshotEvent(messages=messages),
        Own(name="own", value={"snake_case": 1}),
    ]


def test_objects_of_ag_ui_are_events():
    given = ag_ui_events()
    dicts = [event.model_dump(mode="json", by_alias=True, exclude_none=True) for event in given]
    dicts[9]["snapshot"] = {"snake_case": None}
    with_objects, with_dicts = Translator("ag-ui"), Translator("ag-ui")
    made = [event for item in given for event in with_objects.push_events(item)] + with_objects.finish_events()
    same = [event for item in dicts for event in with_dicts.push_events(item)] + with_dicts.finish_events()
    assert made == same and with_objects.report().skipped == 0
    assert {"messageId": "m1", "delta": "Hello"}.items() <= made[2].items()
    assert agentwire.fold(given) == agentwire.fold(dicts)


def test_an_agent_and_its_hooks_may_give_objects_of_ag_ui():
    from ag_ui.core import CustomEvent, TextMessageContentEvent

    async def said(request):
        given = ag_ui_events()
        yield given[0]
        yield given[1:]

    class Louder(agentwire.Hooks):
        async def event(self, event):
            if event["type"] == "TEXT_MESSAGE_CONTENT":
                yield TextMessageContentEvent(message_id=event["messageId"], delta=event["delta"].upper())
            elif event["type"] == "STEP_STARTED":
                yield CustomEvent(name="step", value={"step_name": event["stepName"]})
                yield event
            else:
                yield event

    async def main():
        gateway = agentwire.Gateway({"said": agentwire.agent(said, hooks=Louder)}, store="memory:")
        async with gateway.lifespan():
            return [event async for event in gateway.run({"messages": [{"id": "u", "role": "user", "content": "x"}]})]

    events = asyncio.run(main())
    kinds = [event["type"] for event in events]
    assert kinds[-1] == "RUN_FINISHED", events[-1]
    assert [event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT"] == ["HELLO"]
    assert {"name": "step", "value": {"step_name": "plan"}}.items() <= events[kinds.index("CUSTOM")].items()


def test_a_generator_that_is_not_async_is_refused_at_once():
    def spoken(request):
        yield "no"

    with pytest.raises(ConfigError, match="'spoken' is not async") as caught:
        agentwire.Gateway({"a": spoken}, store="memory:")
    assert caught.value.hint == "`async def`"


@pytest.mark.parametrize("is_removed", [True, False], ids=["removed", "kept"])
def test_a_mount_behind_a_proxy_with_a_prefix(is_removed):
    """A proxy may remove the prefix of an app, which then has it as `root_path` only."""

    async def echo(request):
        yield f"You said {request.user_text()}"

    gateway = Gateway({"echo": echo}, store="memory:")
    inner = FastAPI(lifespan=gateway.lifespan)
    inner.mount("/ai", gateway)

    async def app(scope, receive, send):
        await inner({**scope, "root_path": "/proxy"}, receive, send)

    async def main():
        transport = httpx.ASGITransport(app)
        prefix = "/ai" if is_removed else "/proxy/ai"
        async with gateway.lifespan(), httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            ran = await client.post(f"{prefix}/", json=run_input("hello"))
            return ran, await client.get(f"{prefix}/livez"), await client.get(f"{prefix}/agents/none")

    ran, live, none = asyncio.run(main())
    assert (ran.status_code, live.text.strip(), none.status_code) == (200, "ok", 404)
    assert "You said hello" in ran.text


def test_a_mount_of_an_old_starlette():
    """Before 0.33, which FastAPI 0.104 has, the path is that below the mount, and `raw_path` the whole one."""

    async def echo(request):
        yield f"You said {request.user_text()}"

    gateway = Gateway({"echo": echo}, store="memory:")

    async def app(scope, receive, send):
        path = scope["path"].removeprefix("/ai")
        await gateway({**scope, "path": path, "root_path": "/ai", "app_root_path": ""}, receive, send)

    async def main():
        transport = httpx.ASGITransport(app)
        async with gateway.lifespan(), httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            ran = await client.post("/ai/", json=run_input("hello"))
            return ran, await client.get("/ai/livez"), await client.get("/ai/threads/a%20b/none")

    ran, live, none = asyncio.run(main())
    assert (ran.status_code, live.text.strip(), none.status_code) == (200, "ok", 404)
    assert "You said hello" in ran.text


def test_a_client_that_leaves_before_the_response_is_no_error_of_a_middleware():
    @agentwire.agent
    async def plain(request):
        yield "hello"

    async def main():
        async with Served(plain) as served:
            app = Starlette(routes=[Mount("/", served.gateway)])

            async def passed(request, call_next):
                return await call_next(request)

            app.add_middleware(BaseHTTPMiddleware, dispatch=passed)
            messages = iter([{"type": "http.request", "body": b"{", "more_body": True}])

            async def receive():
                return next(messages, {"type": "http.disconnect"})

            sent = []

            async def send(message):
                sent.append(message)

            headers = [(b"content-type", b"application/json"), (b"content-length", b"1000")]
            scope = {"type": "http", "method": "POST", "path": "/", "raw_path": b"/", "query_string": b""}
            await app({**scope, "headers": headers, "root_path": "", "http_version": "1.1"}, receive, send)
            return sent

    sent = asyncio.run(main())
    assert sent == [] or sent[0]["status"] == 400


@pytest.mark.parametrize(("status", "told"), [(200, 403), (302, 403), (99, 403), (429, 429), (503, 503), (None, 403)])
def test_a_refusal_is_an_error(status, told):
    @agentwire.agent
    async def plain(request):
        yield "hello"

    def refuse(info):
        raise agentwire.Refused("no", status=status)

    async def main():
        async with Served(plain, identity=refuse) as served:
            return await served.get("/thread/list")

    found = asyncio.run(main())
    assert (found[0], found[1]["error"]["code"]) == (told, "HOOK_REFUSED")


@agentwire.agent
async def hello(request):
    yield "hello"


def test_a_start_that_failed_is_tried_again(tmp_path):
    gateway = agentwire.Gateway(hello, store=f"sqlite:{tmp_path}/later/a.db", signals=False)

    async def main():
        for _ in range(2):
            with pytest.raises(agentwire.StoreError, match="unable to open") as error:
                await gateway.request("GET", "/livez")
            assert error.value.code == "STORE_UNAVAILABLE"
        (tmp_path / "later").mkdir()
        assert (await gateway.request("GET", "/livez"))[0] == 200
        await gateway.drain()
        with pytest.raises(agentwire.GatewayClosed):
            await gateway.request("GET", "/livez")

    asyncio.run(main())


def test_a_first_request_that_is_cancelled_does_not_end_the_others(tmp_path):
    gateway = agentwire.Gateway(hello, store=f"sqlite:{tmp_path}/a.db", signals=False)

    async def main():
        first, *others = [asyncio.ensure_future(gateway.request("GET", "/livez")) for _ in range(3)]
        await asyncio.sleep(0)
        first.cancel()
        assert [(await other)[0] for other in others] == [200, 200]
        await gateway.drain()

    asyncio.run(main())


async def two_arguments(first, second):
    yield "hello"


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"agents": {1: hello}}, "agents"),
        ({"agents": hello, "config": 5}, "config"),
        ({"agents": {"a": two_arguments}}, "agents.a"),
        ({"agents": {"a": FastAPI()}}, "agents.a"),
        ({"agents": {"a": StateGraph(MessagesState)}}, "agents.a"),
        ({"agents": hello, "identity": lambda: "ann"}, "identity"),
    ],
)
def test_wrong_forms_are_named(settings, key):
    with pytest.raises(agentwire.ConfigError) as error:
        agentwire.Gateway(store="memory:", **settings)
    assert error.value.key == key


@pytest.mark.parametrize("made", [two_arguments, StateGraph(MessagesState), 42])
def test_functions_that_make_graphs_are_checked(made):
    with pytest.raises(agentwire.ConfigError) as error:
        agentwire.langgraph(made)
    assert error.value.key == "graph"


def test_callables_that_take_the_request_are_agents():
    class Called:
        async def __call__(self, request, more=None):
            yield "called"

        async def method(self, *arguments):
            yield "called"

    async def main(agent):
        async with Served(agent) as served:
            return text_of(await served.say("x"))

    for agent in (Called(), Called().method, functools.partial(Called.method, Called()), lambda given: Called()(given)):
        assert asyncio.run(main(agent)) == "called"


def test_one_origin_may_be_text():
    async def main():
        async with Served(hello, cors="https://a.example") as served:
            headers = {"origin": "https://a.example"}
            return await served.gateway.request("GET", "/thread/list", headers=headers)

    assert asyncio.run(main())[1]["access-control-allow-origin"] == "https://a.example"
