"""The recorded streams as objects, and graphs and agents that replay them."""

import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "upstreams"))

from recording import lines  # noqa: E402


def run_input(run="r", thread="t"):
    message = {"id": f"u-{run}", "role": "user", "content": "go"}
    return {
        "threadId": thread,
        "runId": run,
        "messages": [message],
        "state": {},
        "tools": [],
        "context": [],
        "forwardedProps": {},
    }


def langgraph_events():
    """The events of `astream_events` as LangGraph gives them."""
    from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage

    kinds = {"human": HumanMessage, "ai": AIMessage, "AIMessageChunk": AIMessageChunk}

    def revive(value):
        if isinstance(value, list):
            return [revive(item) for item in value]
        if isinstance(value, dict):
            if value.get("type") in kinds and "content" in value:
                kept = {key: item for key, item in value.items() if item is not None and key != "type"}
                return kinds[value["type"]](**kept)
            return {key: revive(item) for key, item in value.items()}
        return value

    events = [json.loads(line) for line in lines("langgraph")]
    return [{**event, "data": revive(event["data"])} for event in events]


def replaying_graph(events, turn=False, pause=None):
    """A compiled graph whose stream is the recording; with `turn` the loop gets a turn after each event, with `pause`
    these seconds, so that every event travels alone."""
    import asyncio

    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph.graph import START, MessagesState, StateGraph

    graph = StateGraph(MessagesState).add_node("chatbot", lambda state: {}).add_edge(START, "chatbot")
    compiled = graph.compile(checkpointer=InMemorySaver())

    async def replay(*_arguments, **_options):
        for event in events:
            yield event
            if pause is not None:
                await asyncio.sleep(pause)
            elif turn:
                await asyncio.sleep(0)

    compiled.astream_events = replay
    return compiled


def adk_events():
    """The events of a runner."""
    from google.adk.events import Event

    return [Event.model_validate_json(line) for line in lines("adk")]


def replaying_agent(events):
    """An ADK agent that gives the recording."""
    from google.adk.agents import BaseAgent

    class Replay(BaseAgent):
        async def _run_async_impl(self, ctx):
            for event in events:
                yield event.model_copy(update={"invocation_id": ctx.invocation_id})

    return Replay(name="replay")
