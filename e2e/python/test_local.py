"""`agentwire.langgraph(graph)` and `agentwire.adk(agent)`: real graphs and ADK agents in process."""

import asyncio
import json
import pathlib
import subprocess
import sys
from typing import Any, TypedDict

import agentwire
import pytest
from google.adk.agents import LlmAgent, SequentialAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.apps import App
from google.adk.events import Event
from google.adk.events.request_input import RequestInput
from google.adk.models import BaseLlm, LlmResponse
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.sessions import InMemorySessionService
from google.adk.workflow import START as WORKFLOW_START
from google.adk.workflow import Workflow
from google.genai.types import Content, Part
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessageChunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import interrupt
from servers import Served, events_of, kinds, run_input, text_of

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "e2e" / "adk" / "apps"))

from demo.agent import root_agent  # noqa: E402


class ScriptedChatModel(BaseChatModel):
    """A model whose chunks a function of the messages gives."""

    script: Any

    @property
    def _llm_type(self):
        return "scripted"

    def _stream(self, messages, stop=None, run_manager=None, **options):
        for piece in self.script(messages):
            yield ChatGenerationChunk(message=piece)

    def _generate(self, messages, stop=None, run_manager=None, **options):
        whole = None
        for piece in self.script(messages):
            whole = piece if whole is None else whole + piece
        return ChatResult(generations=[ChatGeneration(message=whole)])


# LangGraph


@tool
def weather(city: str) -> str:
    """The weather."""
    return f"sunny in {city}"


def talking(words="Hello there", tools=()):
    """A graph that calls the weather once per question that names it."""

    def script(messages):
        last = messages[-1]
        if last.type == "human" and "weather" in str(last.content):
            chunk = {"name": "weather", "args": '{"city": "Rome"}', "id": f"c{len(messages)}", "index": 0}
            return [AIMessageChunk(content="", id=f"m{len(messages)}", tool_call_chunks=[chunk])]
        said = f"{words} {len([m for m in messages if m.type == 'human'])}"
        return [AIMessageChunk(content=word + " ", id=f"m{len(messages)}") for word in said.split()]

    model = ScriptedChatModel(script=script)

    async def think(state):
        return {"messages": [await model.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("think", think)
    graph.add_node("tools", ToolNode([weather]))
    graph.add_edge(START, "think")
    graph.add_conditional_edges("think", tools_condition)
    graph.add_edge("tools", "think")
    return graph


def asking():
    def ask(state):
        colour = interrupt({"question": "which colour?"})
        return {"messages": [{"role": "assistant", "content": f"painted {colour}"}]}

    graph = StateGraph(MessagesState)
    graph.add_node("ask", ask)
    graph.add_edge(START, "ask")
    return graph


def test_a_graph_answers_calls_tools_and_remembers():
    async def main():
        saver = InMemorySaver()
        async with Served(agentwire.langgraph(talking().compile(checkpointer=saver))) as served:
            first = await served.say("hello")
            assert text_of(first).strip() == "Hello there 1"
            assert kinds(first)[0] == "RUN_STARTED" and kinds(first)[-1] == "RUN_FINISHED"
            second = await served.say("what weather?")
            shown = [kind for kind in kinds(second) if kind.startswith("TOOL_CALL")]
            assert shown[0] == "TOOL_CALL_START" and shown[-1] == "TOOL_CALL_RESULT"
            assert text_of(second).strip() == "Hello there 2"
            # The checkpointer has the thread under the client's own id.
            found = await saver.aget_tuple({"configurable": {"thread_id": "t"}})
            assert len([m for m in found.checkpoint["channel_values"]["messages"] if m.type == "human"]) == 2
            status, snapshot = await served.get("/message_snapshot/t")
            assert [m["role"] for m in snapshot["messages"]] == ["user", "assistant", "user", "assistant", "tool", "assistant"]
            # Two users do not share a thread.
            other = await served.say("hello", caller=agentwire.Caller("bob"))
            assert text_of(other).strip() == "Hello there 1"
            # Nobody reaches the thread of another by its derived id.
            theirs = [key for key in saver.storage if key != "t"]
            assert len(theirs) == 1
            foreign = await served.say("hello", thread=theirs[0])
            assert text_of(foreign).strip() == "Hello there 1"
        # A new gateway on the same checkpointer recalls the thread.
        async with Served(agentwire.langgraph(talking().compile(checkpointer=saver))) as served:
            status, snapshot = await served.get("/message_snapshot/t")
            assert status == 200 and len(snapshot["messages"]) == 6
            assert text_of(await served.say("again")).strip() == "Hello there 3"
            assert (await served.get("/thread/t", "DELETE"))[0] == 200
            assert await saver.aget_tuple({"configurable": {"thread_id": "t"}}) is None

    asyncio.run(main())


def test_a_graph_without_a_checkpointer_gets_the_whole_conversation():
    async def main():
        async with Served(agentwire.langgraph(talking().compile(), history="server")) as served:
            await served.say("one")
            assert text_of(await served.say("two")).strip() == "Hello there 2"

    asyncio.run(main())


def test_an_interrupt_is_answered_by_its_id():
    async def main():
        async with Served(asking().compile(checkpointer=InMemorySaver())) as served:
            asked = await served.say("go")
            outcome = asked[-1]["outcome"]
            assert outcome["type"] == "interrupt", asked[-1]
            [item] = outcome["interrupts"]
            status, pending = await served.get("/threads/t/pending")
            assert status == 200 and len(pending) == 1
            answer = {"interruptId": item["id"], "status": "resolved", "payload": "blue"}
            done = await served.say("", messages=[], resume=[answer])
            assert "painted blue" in json.dumps(done)
            assert kinds(done)[-1] == "RUN_FINISHED"

    asyncio.run(main())


def test_a_graph_per_run_and_a_config_per_run():
    seen = []

    class Closing:
        def __init__(self, graph):
            self._graph = graph

        def __getattr__(self, name):
            return getattr(self._graph, name)

        async def aclose(self):
            seen.append("closed")

    async def make(request):
        seen.append(request.caller.user)
        return Closing(talking(f"Hi {request.caller.user}").compile())

    def config(request):
        return {"configurable": {"thread_id": f"mine-{request.thread_id}"}, "metadata": {"run": request.run_id}}

    async def main():
        async with Served(agentwire.langgraph(make, config=config)) as served:
            assert text_of(await served.say("x", caller=agentwire.Caller("ann"))).strip() == "Hi ann 1"

    asyncio.run(main())
    assert "ann" in seen and seen.count("closed") == len([entry for entry in seen if entry != "closed"])


def test_a_graph_that_raises():
    def fail(state):
        if "own" in str(state["messages"][-1].content):
            raise agentwire.Failure("NO_CREDIT", "the account is empty")
        raise ValueError("secret text")

    graph = StateGraph(MessagesState)
    graph.add_node("fail", fail)
    graph.add_edge(START, "fail")

    async def main():
        async with Served(graph.compile(checkpointer=InMemorySaver())) as served:
            events = await served.say("x")
            assert events[-1]["type"] == "RUN_ERROR" and events[-1]["code"] == "UPSTREAM_FAILED"
            assert "secret" not in json.dumps(events)
            assert (await served.say("own"))[-1]["code"] == "NO_CREDIT"

    asyncio.run(main())


def test_front_end_tools_reach_the_graph():
    Seen = TypedDict("Seen", {"messages": list, "agentwire:tools": list})

    def look(state):
        names = [tool["name"] for tool in state["agentwire:tools"]]
        return {"messages": [{"role": "assistant", "content": str(names)}]}

    graph = StateGraph(Seen)
    graph.add_node("look", look)
    graph.add_edge(START, "look")

    async def main():
        async with Served(graph.compile()) as served:
            tools = [{"name": "pick", "description": "", "parameters": {"type": "object", "properties": {}}}]
            events = await served.say("x", tools=tools)
            assert "['pick']" in json.dumps(events)

    asyncio.run(main())


def test_a_stopped_graph_is_cancelled():
    cancelled = asyncio.Event()

    async def wait(state):
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    graph = StateGraph(MessagesState)
    graph.add_node("wait", wait)
    graph.add_edge(START, "wait")

    async def main():
        async with Served(graph.compile(checkpointer=InMemorySaver())) as served:
            handle = served.gateway.run(run_input("x"))
            async for event in handle:
                if event["type"] == "STEP_STARTED":
                    await handle.stop()
            await asyncio.wait_for(cancelled.wait(), 60)

    asyncio.run(main())


# ADK


def test_an_adk_agent_streams_calls_tools_and_keeps_its_session():
    async def main():
        sessions = InMemorySessionService()
        async with Served(agentwire.adk(root_agent, app_name="shop", session_service=sessions)) as served:
            events = await served.say("hello")
            assert "You said" in text_of(events)
            assert len([event for event in events if event["type"] == "TEXT_MESSAGE_CONTENT"]) > 1
            events = await served.say("weather")
            assert "TOOL_CALL_RESULT" in kinds(events) and "get_weather said" in text_of(events)
            found = await sessions.list_sessions(app_name="shop", user_id=None)
            assert [session.id for session in found.sessions] == ["t"]
            events = await served.say("state")
            assert (await served.get("/state_snapshot/t"))[1]["snapshot"]["theme"] == "dark"
            status, _ = await served.get("/state/t", "PATCH", [{"op": "replace", "path": "/theme", "value": "light"}])
            assert status == 200
            await served.say("hello")
            [session] = (await sessions.list_sessions(app_name="shop", user_id=None)).sessions
            session = await sessions.get_session(app_name="shop", user_id=session.user_id, session_id="t")
            assert session.state["theme"] == "light"
        # Another gateway on the same sessions recalls the thread, and deletes it.
        async with Served(agentwire.adk(root_agent, app_name="shop", session_service=sessions)) as served:
            status, snapshot = await served.get("/message_snapshot/t")
            assert status == 200 and snapshot["messages"][0]["role"] == "user"
            assert (await served.get("/thread/t", "DELETE"))[0] == 200
            assert (await sessions.list_sessions(app_name="shop", user_id=None)).sessions == []

    asyncio.run(main())


def test_long_running_tools_confirmations_and_credentials_wait_for_a_person():
    async def main():
        async with Served(agentwire.adk(root_agent)) as served:
            asked = await served.say("confirm", thread="c")
            [item] = asked[-1]["outcome"]["interrupts"]
            answer = {"interruptId": item["id"], "status": "resolved", "payload": {"confirmed": True}}
            done = await served.say("", thread="c", messages=[], resume=[answer])
            assert "delete_all said" in text_of(done), done
            asked = await served.say("calendar", thread="k")
            [item] = asked[-1]["outcome"]["interrupts"]
            assert item["id"]
            asked = await served.say("approve", thread="l")
            status, pending = await served.get("/threads/l/pending")
            assert status == 200 and len(pending) == 1

    asyncio.run(main())


def test_artifacts_front_end_tools_and_failures():
    async def main():
        async with Served(agentwire.adk(root_agent)) as served:
            await served.say("artifact")
            assert (await served.get("/threads/t/artifacts"))[1] == ["report.txt"]
            assert (await served.get("/threads/t/artifacts/report.txt"))[1] == b"hello"
            assert (await served.get("/threads/t/artifacts/none.txt"))[0] == 404
            tools = [{"name": "pick_colour", "description": "Picks.", "parameters": {"type": "object", "properties": {}}}]
            assert "pick_colour" in text_of(await served.say("tools?", thread="f", tools=tools))
            called = await served.say("pick", thread="f", tools=tools)
            assert "TOOL_CALL_END" in kinds(called) and kinds(called)[-1] == "RUN_FINISHED"
            failed = await served.say("fail", thread="x")
            assert failed[-1]["type"] == "RUN_ERROR"

    asyncio.run(main())


class Breaking(BaseLlm):
    """A model that raises, or gives an error of its own."""

    async def generate_content_async(self, llm_request, stream=False):
        words = llm_request.contents[-1].parts[0].text
        if words == "blocked":
            yield LlmResponse(error_code="SAFETY", error_message="blocked by the model")
            return
        yield LlmResponse(content=Content(role="model", parts=[Part(text="Half")]), partial=True)
        raise agentwire.Failure("NO_CREDIT", "the account is empty") if words == "own" else RuntimeError("secret text")


@pytest.mark.parametrize("nested", [False, True])
def test_an_adk_agent_that_raises(nested):
    """ADK 2 has an event with the text of an exception before it raises it."""
    agent = LlmAgent(name="breaking", model=Breaking(model="breaking"))
    if nested:
        agent = SequentialAgent(name="outer", sub_agents=[agent])

    async def main():
        async with Served(agentwire.adk(agent)) as served:
            events = await served.say("x", thread="1")
            assert (events[-1]["type"], events[-1]["code"]) == ("RUN_ERROR", "UPSTREAM_FAILED")
            assert "secret" not in json.dumps(events) and text_of(events) == "Half"
            assert (await served.say("own", thread="2"))[-1]["code"] == "NO_CREDIT"
            blocked = (await served.say("blocked", thread="3"))[-1]
            assert (blocked["code"], blocked["message"]) == ("SAFETY", "blocked by the model")
        async with Served(agentwire.adk(agent, show_errors=True)) as served:
            assert "secret text" in (await served.say("x"))[-1]["message"]

    asyncio.run(main())


def test_a_workflow_of_adk():
    """A node that is no agent; its question is answered by its id."""

    async def ask(ctx, node_input):
        yield RequestInput(interrupt_id="q", message="Which colour?")

    def tell(node_input):
        return Event(content=Content(role="model", parts=[Part(text=f"You chose {node_input}")]))

    async def main(given):
        async with Served(given) as served:
            (question,) = (await served.say("x"))[-1]["outcome"]["interrupts"]
            assert question["message"] == "Which colour?"
            answer = {"interruptId": question["id"], "status": "resolved", "payload": "red"}
            return text_of(await served.say("", messages=[], resume=[answer]))

    flow = Workflow(name="flow", edges=[(WORKFLOW_START, ask, tell)])
    for given in (flow, agentwire.adk(flow, plugins=[Counting()]), agentwire.adk(lambda request: flow)):
        assert asyncio.run(main(given)) == "You chose red"


class Counting(BasePlugin):
    def __init__(self):
        super().__init__(name="counting")
        self.runs = 0

    async def before_run_callback(self, *, invocation_context):
        self.runs += 1


def test_services_run_config_plugins_apps_and_factories():
    with pytest.raises(agentwire.ConfigError) as error:
        agentwire.adk(root_agent, use_in_memory_services=False, session_service=InMemorySessionService())
    assert error.value.key == "artifact_service"
    plugin, asked = Counting(), []

    def config(request):
        asked.append(request.user_text())
        return RunConfig(streaming_mode=StreamingMode.NONE, max_llm_calls=1)

    async def main():
        async with Served(agentwire.adk(root_agent, plugins=[plugin], run_config=config)) as served:
            assert "You said" in text_of(await served.say("hello"))
            # The second call of the model is one too many.
            assert (await served.say("weather"))[-1]["type"] == "RUN_ERROR"
        assert plugin.runs == 2 and asked == ["hello", "weather"]
        async with Served(App(name="whole", root_agent=root_agent)) as served:
            assert "You said" in text_of(await served.say("hello"))
        async with Served(agentwire.adk(lambda request: root_agent, app_name="made")) as served:
            assert "You said" in text_of(await served.say("hello"))
        async with Served(root_agent) as served:
            assert "You said" in text_of(await served.say("hello"))

    asyncio.run(main())


def test_two_frameworks_in_one_gateway():
    async def main():
        agents = {"graph": agentwire.langgraph(talking().compile()), "shop": agentwire.adk_agent(root_agent)}
        gateway = agentwire.Gateway(agents, store="memory:", default="shop", signals=False)
        async with gateway.lifespan():
            both = await asyncio.gather(
                *(gateway.run(run_input("hello", f"t{n}", f"r{n}"), agent=name).result() for n in range(10) for name in agents)
            )
            assert {event["type"] for event in both} == {"RUN_FINISHED"}
            status, _, body = await gateway.request("GET", "/runs/r0/stream")
            assert "You said" in text_of(events_of(body.decode()))

    asyncio.run(main())


def test_an_adk_agent_is_made_without_warnings():
    """As with `filterwarnings = error` in a program's own tests. ADK warns once per process."""
    code = """
import warnings
from google.adk.agents import BaseAgent
import agentwire, agentwire.adk.local

class Quiet(BaseAgent):
    pass

warnings.simplefilter("error")
agentwire.adk(Quiet(name="quiet"))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
