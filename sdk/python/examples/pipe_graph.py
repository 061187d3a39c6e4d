"""Pipes the events of a graph into agentwire: `python pipe_graph.py | agentwire convert --from langgraph --to ag-ui`."""

import asyncio
import sys
from typing import Any

from agentwire import EventEmitter, record
from langchain_core.runnables import RunnableConfig
from langgraph.graph import START, MessagesState, StateGraph


def greet(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
    EventEmitter(config).emit("greeting", {"language": "en"})
    return {"messages": [("ai", "Hello from a graph.")]}


graph = StateGraph(MessagesState).add_node("greet", greet).add_edge(START, "greet").compile()
question: Any = {"messages": [("user", "hi")]}
asyncio.run(record(graph.astream_events(question, version="v2"), sys.stdout))
