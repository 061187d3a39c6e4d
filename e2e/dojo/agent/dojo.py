"""Graphs for the features that AG-UI's dojo shows, with scripted models."""
from __future__ import annotations

import asyncio
import copy
import pathlib
import sys
import urllib.request
from typing import Annotated, Any

from typing_extensions import TypedDict

here = pathlib.Path(__file__).resolve().parent
# The scripted models are beside this file on a LangGraph server, which runs in a copy of its folder.
sys.path[:0] = [str(here), str(here.parents[1] / "langgraph" / "agent")] if len(here.parents) > 1 else [str(here)]

from langchain_core.callbacks import adispatch_custom_event  # noqa: E402
from langchain_core.messages import AIMessage, ToolMessage  # noqa: E402
from langchain_core.runnables import RunnableConfig  # noqa: E402
from langgraph.graph import END, START, StateGraph  # noqa: E402
from langgraph.graph.message import add_messages  # noqa: E402
from langgraph.types import interrupt  # noqa: E402

from fakes import ScriptedChatModel, calls, long_text, say  # noqa: E402


class S(TypedDict, total=False):
    messages: Annotated[list, add_messages]
    tools: list[Any]
    steps: list[Any]
    recipe: dict[str, Any]
    document: str
    itinerary: dict[str, Any]


def chat(script, metadata=None):
    model = ScriptedChatModel(script=script, by_turn=True)

    async def node(state, config: RunnableConfig):
        if metadata:
            config = {**config, "metadata": {**config.get("metadata", {}), **metadata}}
        return {"messages": [await model.ainvoke(state["messages"], config)]}
    return node


def graph(nodes, edges):
    made = StateGraph(S)
    for name, node in nodes.items():
        made.add_node(name, node)
    for start, end in edges:
        made.add_edge(start, end)
    return made.compile()


def one(node):
    return graph({"chat": node}, [(START, "chat"), ("chat", END)])


# A tool of the page, declared by the client; the graph ends at its call and goes on with its result.
agentic_chat = one(chat([calls([("call_bg", "change_background", {"background": "blue"})], "ac-1", text="With pleasure."), say("It is blue now.", "ac-2")]))
human_in_the_loop = one(chat([calls([("call_plan", "generate_task_steps", {"steps": [{"description": "pack", "status": "enabled"}]})], "hl-1"), say("Then let us go.", "hl-2")]))
tool_based_generative_ui = one(chat([calls([("call_haiku", "generate_haiku", {"japanese": ["古池や"], "english": ["an old pond"]})], "tg-1"), say("A haiku for you.", "tg-2")]))


def ask(state):
    answer = interrupt({"question": "Which steps?", "steps": ["pack", "go"]})
    return {"steps": answer["steps"], "messages": [AIMessage(f"{len(answer['steps'])} steps it is.", id="in-2")]}


interrupting = graph({"plan": chat([say("I have a plan.", "in-1")]), "ask": ask}, [(START, "plan"), ("plan", "ask"), ("ask", END)])


async def gate(state):
    """Waits for the answer of the address behind `after` in the question, so that a test decides when the node goes on."""
    asked = next(message.content for message in reversed(state["messages"]) if message.type == "human")
    if " after " in asked:
        await asyncio.to_thread(urllib.request.urlopen, asked.rpartition(" after ")[2], timeout=120)


async def work(state, config: RunnableConfig):
    steps = [{"description": name, "status": "pending"} for name in ("look", "decide")]
    for number, step in enumerate(steps):
        if number:
            await gate(state)
        step["status"] = "completed"
        # A copy: the server serializes it later.
        await adispatch_custom_event("manually_emit_state", {**state, "steps": copy.deepcopy(steps)}, config=config)
    await adispatch_custom_event("manually_emit_message", {"message_id": "ag-1", "message": "Halfway."}, config=config)
    return {"steps": steps, "messages": [AIMessage("Halfway.", id="ag-1"), AIMessage("All done.", id="ag-2")]}


agentic_generative_ui = one(work)


async def cook(state, config: RunnableConfig):
    message = state["messages"][-1]
    call = message.tool_calls[0]
    recipe = {**(state.get("recipe") or {}), "title": call["args"]["title"]}
    return {"recipe": recipe, "messages": [ToolMessage("written", tool_call_id=call["id"], id="ss-t")]}


shared_state = graph(
    {"chat": chat([calls([("call_recipe", "generate_recipe", {"title": "Soup"})], "ss-1")]), "cook": cook, "say": chat([say("x", "x"), say("Soup it is.", "ss-2")])},
    [(START, "chat"), ("chat", "cook"), ("cook", "say"), ("say", END)])

PREDICT = [{"state_key": "document", "tool": "write_document", "tool_argument": "document"}]
TEXT = " ".join(word.strip() for word in long_text(40))


async def written(state, config: RunnableConfig):
    await gate(state)
    call = state["messages"][-1].tool_calls[0]
    return {"document": call["args"]["document"], "messages": [ToolMessage("written", tool_call_id=call["id"], id="ps-t")]}


predictive_state_updates = graph(
    {"chat": chat([calls([("call_doc", "write_document", {"document": TEXT})], "ps-1")], {"predict_state": PREDICT}), "write": written, "say": chat([say("x", "x"), say("Do you like it?", "ps-2")])},
    [(START, "chat"), ("chat", "write"), ("write", "say"), ("say", END)])

flights = one(chat([say("A flight to Oslo.", "sg-1")]))
hotels = graph({"hotel": lambda state: {"itinerary": {"hotel": "Grand"}, "messages": [AIMessage("A hotel in Oslo.", id="sg-2")]}}, [(START, "hotel"), ("hotel", END)])
subgraphs = graph({"flights": flights, "hotels": hotels, "report": lambda state: {"messages": [AIMessage("All booked.", id="sg-3")]}},
                  [(START, "flights"), ("flights", "hotels"), ("hotels", "report"), ("report", END)])
