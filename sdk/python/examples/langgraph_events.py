"""The AG-UI events of a graph, without a server: `python langgraph_events.py`."""

import asyncio
from typing import Any

from agentwire import AGUIAdapter, EventEmitter
from langchain_core.runnables import RunnableConfig
from langgraph.graph import START, MessagesState, StateGraph


def chart(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
    EventEmitter(config).emit("display_chart", {"type": "line", "data": [1, 5, 3]})
    return {"messages": [("ai", "Here is the chart.")]}


graph = StateGraph(MessagesState).add_node("chart", chart).add_edge(START, "chart").compile()


async def main() -> None:
    question = {"threadId": "t1", "runId": "r1", "messages": [{"id": "m1", "role": "user", "content": "Draw it."}]}
    async for event in AGUIAdapter(graph).event_stream_adapter(question):
        print(event.model_dump_json(by_alias=True, exclude_none=True))


asyncio.run(main())
