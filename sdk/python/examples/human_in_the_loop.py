"""A graph that asks a person, and goes on with the answer: python human_in_the_loop.py"""

from __future__ import annotations

import asyncio
from typing import Any

import agentwire
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt


def pay(state: MessagesState) -> dict[str, Any]:
    """Pays if a person agrees."""
    is_agreed = interrupt({"question": "Pay 20 €?"})
    return {"messages": [("ai", "Paid." if is_agreed else "Not paid.")]}


graph = StateGraph(MessagesState).add_node("pay", pay).add_edge(START, "pay").compile(checkpointer=InMemorySaver())


async def main() -> None:
    gateway = agentwire.Gateway({"cashier": graph}, store="memory:")
    async with gateway.lifespan():
        question = {"threadId": "t1", "runId": "r1", "messages": [{"id": "m1", "role": "user", "content": "Pay!"}]}
        end = await gateway.run(question).result()
        (item,) = end["outcome"]["interrupts"]
        print("asked:", item["metadata"] if "message" not in item else item["message"])
        answer = [{"interruptId": item["id"], "status": "resolved", "payload": True}]
        async for event in gateway.run({"threadId": "t1", "runId": "r2", "messages": [], "resume": answer}):
            if event["type"] == "TEXT_MESSAGE_CONTENT":
                print("said:", event["delta"])


asyncio.run(main())
