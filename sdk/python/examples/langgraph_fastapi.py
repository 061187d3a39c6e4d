"""A LangGraph graph in a FastAPI app, with history, state and reconnects: uvicorn langgraph_fastapi:app"""

from __future__ import annotations

from typing import Any

import agentwire
from fastapi import FastAPI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph


def answer(state: MessagesState) -> dict[str, Any]:
    """Your model is here."""
    return {"messages": [("ai", f"You have asked {len(state['messages']) // 2 + 1} times.")]}


graph = StateGraph(MessagesState).add_node("answer", answer).add_edge(START, "answer")
agent = agentwire.langgraph(graph.compile(checkpointer=InMemorySaver()))

gateway = agentwire.Gateway({"support": agent}, store="memory:")
app = FastAPI(lifespan=gateway.lifespan)


@app.get("/mine")
def mine() -> dict[str, str]:
    """A route of the app's own."""
    return {"hello": "from the app"}


app.mount("/", gateway)  # after the app's own routes
