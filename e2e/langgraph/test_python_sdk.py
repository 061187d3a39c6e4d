"""The Python helpers with real graphs, and their output through `agentwire convert`."""

import asyncio
import io
import json
import math
import os
import pathlib
import subprocess
import sys
import uuid

import pytest

ROOT = pathlib.Path(os.environ.get("AGENTWIRE_ROOT", pathlib.Path(__file__).resolve().parents[2]))
SDK = ROOT / "sdk" / "python"
BINARY = os.environ.get("AGENTWIRE", str(ROOT / "target" / "debug" / "agentwire"))
sys.path.insert(0, str(SDK / "src"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "agent"))

from langchain_core.messages import AIMessage  # noqa: E402
from langchain_core.runnables import RunnableConfig  # noqa: E402
from langgraph.graph import START, MessagesState, StateGraph  # noqa: E402

from agentwire import EventEmitter, record, to_line  # noqa: E402
from fakes import ScriptedChatModel, say  # noqa: E402


def graph_of(*nodes):
    graph = StateGraph(MessagesState)
    last = START
    for node in nodes:
        graph.add_node(node.__name__, node)
        graph.add_edge(last, node.__name__)
        last = node.__name__
    return graph.compile()


def recorded(graph, given=None):
    file = io.StringIO()
    events = graph.astream_events(given or {"messages": [("user", "hi")]}, version="v2")
    count = asyncio.run(record(events, file))
    lines = file.getvalue().splitlines()
    assert len(lines) == count
    return [json.loads(line) for line in lines]


def converted(lines):
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    command = [BINARY, "convert", "--from", "langgraph", "--to", "ag-ui", "--lines"]
    done = subprocess.run(command, input=text.encode(), capture_output=True, timeout=600)
    assert done.returncode == 0, done.stderr.decode()
    return [json.loads(line) for line in done.stdout.splitlines()]


def customs(events):
    return [(event["name"], event["value"]) for event in events if event["type"] == "CUSTOM"]


def test_events_from_sync_and_async_nodes_arrive_in_order():
    def first(state, config: RunnableConfig):
        EventEmitter(config).emit("one", {"type": "line", "data": [1, 5, 3]})
        return {}

    async def second(state, config: RunnableConfig):
        emitter = EventEmitter(config)
        emitter.emit("two", None, event_id="e2")
        await emitter.emit("three", "text")
        return {}

    lines = recorded(graph_of(first, second))
    raw = [line["data"] for line in lines if line["event"] == "on_custom_event"]
    assert raw[1] == {"name": "two", "payload": None, "event_id": "e2"}
    assert customs(converted(lines)) == [("one", {"type": "line", "data": [1, 5, 3]}), ("two", None), ("three", "text")]


def test_emit_without_listeners_does_nothing():
    calls = []

    def node(state, config=None):
        EventEmitter(config).emit("quiet", 1)
        EventEmitter({}).emit("quiet", 1)
        EventEmitter({"callbacks": []}).emit("quiet", 1)
        EventEmitter({"callbacks": None}).emit("quiet", 1)
        EventEmitter().emit("quiet", 1)
        calls.append(1)
        return {}

    node({})
    assert calls == [1]
    asyncio.run(graph_of(node).ainvoke({"messages": []}))


def test_the_config_of_the_running_node_is_found():
    async def node(state):
        EventEmitter().emit("found", 1)
        return {}

    assert customs(converted(recorded(graph_of(node)))) == [("found", 1)]


def test_a_recording_folds_to_the_message():
    model = ScriptedChatModel(script=[say("Grüße, 世界 🚀", "m1")])

    async def chat(state, config: RunnableConfig):
        return {"messages": [await model.ainvoke(state["messages"], config)]}

    events = converted(recorded(graph_of(chat)))
    text = "".join(event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT")
    assert text == "Grüße, 世界 🚀"
    snapshot = [event for event in events if event["type"] == "MESSAGES_SNAPSHOT"][-1]
    assert [message["content"] for message in snapshot["messages"]] == ["hi", "Grüße, 世界 🚀"]
    assert events[-1]["type"] == "RUN_FINISHED"


def test_an_exception_is_recorded_and_raised():
    def bad(state):
        raise RuntimeError("no database")

    file = io.BytesIO()
    events = graph_of(bad).astream_events({"messages": []}, version="v2")
    with pytest.raises(RuntimeError, match="no database"):
        asyncio.run(record(events, file))
    lines = [json.loads(line) for line in file.getvalue().splitlines()]
    assert lines[-1] == {"event": "error", "data": {"error": "RuntimeError", "message": "no database"}}
    assert converted(lines)[-1]["code"] == "RuntimeError"


def test_mode_tuples_are_recorded_too(tmp_path):
    def node(state):
        return {"messages": [AIMessage("done", id="d1")]}

    path = tmp_path / "modes.jsonl"
    stream = graph_of(node).astream({"messages": [("user", "hi")]}, stream_mode=["values", "updates"])
    asyncio.run(record(stream, path))
    events = converted([json.loads(line) for line in path.read_text().splitlines()])
    assert events[-1]["type"] == "RUN_FINISHED"
    assert any(event.get("delta") == "done" for event in events)


def test_every_value_becomes_a_line_of_json():
    class Slotted:
        __slots__ = ("node",)

        def __init__(self):
            self.node = "n"

    cycle = []
    cycle.append(cycle)
    odd = {
        1: math.nan, "id": uuid.UUID(int=1), "set": {1}, "bytes": b"\x00\xff", "error": ValueError("x"),
        "half": "\ud83d", "slots": Slotted(), "class": Slotted, "cycle": cycle, "lines": "a\nb\u2028c",
    }
    line = to_line({"event": "on_custom_event", "data": odd})
    assert "\n" not in line
    data = json.loads(line.encode("utf-8"))["data"]
    assert data["1"] is None
    assert data["id"] == "00000000-0000-0000-0000-000000000001"
    assert data["error"] == {"error": "ValueError", "message": "x"}
    assert data["slots"] == {"node": "n"}


def test_the_example_pipes_a_graph_into_the_translator():
    environment = {**os.environ, "PYTHONPATH": str(SDK / "src")}
    command = [sys.executable, str(SDK / "examples" / "pipe_graph.py")]
    done = subprocess.run(command, env=environment, capture_output=True, timeout=600)
    assert done.returncode == 0, done.stderr.decode()
    events = converted([json.loads(line) for line in done.stdout.splitlines()])
    assert customs(events) == [("greeting", {"language": "en"})]
    assert events[-1]["type"] == "RUN_FINISHED"
