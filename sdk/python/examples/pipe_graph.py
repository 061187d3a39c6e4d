"""Pipes the events of a graph into agentwire: `python pipe_graph.py | agentwire convert --from langgraph --to ag-ui`."""
import asyncio, sys
from agentwire import EventEmitter, record
from langgraph.graph import START, MessagesState, StateGraph

def greet(state, config):
    EventEmitter(config).emit("greeting", {"language": "en"})
    return {"messages": [("ai", "Hello from a graph.")]}

graph = StateGraph(MessagesState).add_node("greet", greet).add_edge(START, "greet").compile()
asyncio.run(record(graph.astream_events({"messages": [("user", "hi")]}, version="v2"), sys.stdout))
