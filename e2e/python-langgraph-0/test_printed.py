"""The quick start of the AGUIAdapter document as printed, with only the import changed, and a graph in the gateway."""

import asyncio
from importlib.metadata import version
from typing import TypedDict

import agentwire
from agentwire import AGUIAdapter, EventEmitter, LangGraphEventType
from ag_ui.core import CustomEvent
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import interrupt
from servers import run_input, text_of


def test_the_versions():
    assert version("langgraph").startswith("0.6.") and version("ag-ui-protocol").startswith("0.1.")


class AgentState(TypedDict):
    status_message: str


def my_charting_node(state: AgentState, config: RunnableConfig):
    # 1. 执行业务逻辑
    chart_data = {"type": "line", "data": [1, 5, 3]}

    # 2. 初始化 emitter 并发射一个与业务相关的事件
    emitter = EventEmitter(config)
    emitter.emit(name="display_chart", payload=chart_data)

    # 3. 节点的 return 语句回归其纯粹的职责：更新状态
    return {"status_message": "Charting complete"}


def test_the_node_of_the_document():
    graph = StateGraph(AgentState).add_node("chart", my_charting_node).add_edge(START, "chart").compile()

    async def main():
        return [event async for event in AGUIAdapter(graph).event_stream_adapter(run_input("x"))]

    events = asyncio.run(main())
    assert [events[0].type.value, events[-1].type.value] == ["RUN_STARTED", "RUN_FINISHED"]
    (chart,) = [event for event in events if isinstance(event, CustomEvent)]
    assert (chart.name, chart.value) == ("display_chart", {"type": "line", "data": [1, 5, 3]})


def test_the_enumeration_of_the_document():
    for kind_str in ("on_tool_start", "on_tool_end", "on_chat_model_stream", "on_chain_start", "on_custom_event"):
        kind = LangGraphEventType(kind_str)
        assert kind is getattr(LangGraphEventType, kind_str.upper())


def test_a_graph_in_the_gateway_with_an_interrupt():
    class State(TypedDict):
        answer: str

    def ask(state):
        return {"answer": str(interrupt({"question": "colour?"}))}

    graph = StateGraph(State).add_node("ask", ask).add_edge(START, "ask").compile(checkpointer=InMemorySaver())

    async def main():
        gateway = agentwire.Gateway({"a": agentwire.langgraph(graph)}, store="memory:", signals=False)
        async with gateway.lifespan():
            first = [event async for event in gateway.run(run_input("x", run="r1"))]
            (item,) = first[-1]["outcome"]["interrupts"]
            resume = [{"interruptId": item["id"], "status": "resolved", "payload": "red"}]
            second = [event async for event in gateway.run(run_input("x", run="r2", messages=[], resume=resume))]
            _, _, state = await gateway.request("GET", "/state_snapshot/t")
            return first, second, state

    first, second, state = asyncio.run(main())
    assert second[-1]["type"] == "RUN_FINISHED" and b"red" in state, (text_of(second), state)
