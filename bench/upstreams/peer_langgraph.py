"""The FastAPI endpoint of `ag-ui-langgraph` with a graph that replays the recording. peer_langgraph.py RATE"""

import json
import socket
import sys

import uvicorn
from ag_ui_langgraph import LangGraphAgent, add_langgraph_fastapi_endpoint
from fastapi import FastAPI
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage
from langgraph.checkpoint.memory import MemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from recording import Times, lines

KINDS = {"human": HumanMessage, "ai": AIMessage, "AIMessageChunk": AIMessageChunk}
rate = float(sys.argv[1])
times = Times()


def revive(value):
    """Converts JSON back to messages."""
    if isinstance(value, list):
        return [revive(item) for item in value]
    if isinstance(value, dict):
        if value.get("type") in KINDS and "content" in value:
            kept = {key: item for key, item in value.items() if item is not None and key != "type"}
            return KINDS[value["type"]](**kept)
        return {key: revive(item) for key, item in value.items()}
    return value


events = [{**event, "data": revive(event["data"])} for event in map(json.loads, lines("langgraph"))]
graph = StateGraph(MessagesState).add_node("chatbot", lambda state: {}).add_edge(START, "chatbot").compile(
    checkpointer=MemorySaver()
)


async def replay(*args, config=None, **kwargs):
    config = config or kwargs.get("config") or next((arg for arg in args if isinstance(arg, dict) and "configurable" in arg), {})
    thread = config.get("configurable", {}).get("thread_id", "")
    async for number in times.paced(thread, len(events), rate):
        yield events[number]


graph.astream_events = replay
app = FastAPI()
# Without RAW events, which would double the work and the bytes.
add_langgraph_fastapi_endpoint(app, LangGraphAgent(name="bench", graph=graph, emit_raw_events=False), "/")


@app.get("/times/{run}")
def sent(run: str):
    return times.of.get(run, [])


listening = socket.create_server(("127.0.0.1", 0))
print(listening.getsockname()[1], flush=True)
uvicorn.Server(uvicorn.Config(app, log_level="error", access_log=False)).run(sockets=[listening])
