"""Times ag-ui-langgraph (translator and encoder) on recorded events; prints CPU seconds and bytes as JSON.

The events are passed as LangGraph's own objects, so parsing is excluded. Usage:
peer_ag_ui.py RECORDING ROUNDS raw|lean
"""

import asyncio
import json
import sys
import time

from ag_ui.core import RunAgentInput, UserMessage
from ag_ui.encoder import EventEncoder
from ag_ui_langgraph import LangGraphAgent
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage
from langgraph.checkpoint.memory import MemorySaver
from langgraph.graph import START, MessagesState, StateGraph

KINDS = {"human": HumanMessage, "ai": AIMessage, "AIMessageChunk": AIMessageChunk}


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


async def main() -> None:
    recording, rounds, mode = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    with open(recording, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    graph = StateGraph(MessagesState).add_node("chatbot", lambda state: {}).add_edge(START, "chatbot").compile(
        checkpointer=MemorySaver()
    )
    events = [{**line, "data": revive(line["data"])} for line in lines]

    async def replay(*_args, **_kwargs):
        for event in events:
            yield event

    graph.astream_events = replay
    best, size = None, 0
    for number in range(rounds):
        agent = LangGraphAgent(name="bench", graph=graph, emit_raw_events=mode == "raw")
        encoder = EventEncoder()
        given = RunAgentInput(
            thread_id=f"t{number}", run_id="r", state={}, tools=[], context=[], forwarded_props={},
            messages=[UserMessage(id="h1", role="user", content="go")],
        )
        begun = time.process_time()
        size = 0
        async for event in agent.run(given):
            size += len(encoder.encode(event).encode())
        spent = time.process_time() - begun
        best = spent if best is None else min(best, spent)
    print(json.dumps({"events": len(events), "seconds": best, "bytes": size}))


asyncio.run(main())
