"""Python objects as JSON: the walk in Rust writes the same as the recorder in Python, and survives hostile objects."""

import dataclasses
import datetime
import enum
import json
import math
import pathlib
import threading
import uuid
from typing import Any, Optional

import pydantic
import pytest
from google.adk.events import Event
from google.genai import types
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, SystemMessage, ToolMessage
from langgraph.types import Command, Interrupt, Send

from agentwire import Translator, _native, to_line
from agentwire.recorder import _python_to_line
from conftest import ROOT

FIXTURES = ROOT / "crates" / "agentwire-core" / "src" / "format"


class Color(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1


class Word(str, enum.Enum):
    HELLO = "hello"


@dataclasses.dataclass
class Point:
    x: int
    inner: Any = None


@dataclasses.dataclass(slots=True)
class Slotted:
    y: str = "s"


class Slots:
    __slots__ = ("a", "b")

    def __init__(self):
        self.a = 1


class Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow", arbitrary_types_allowed=True)
    name: Optional[str] = None
    at: Any = None


class Old(pydantic.v1.BaseModel if pydantic.VERSION < "3" else object):
    n: int = 1


class Root(pydantic.RootModel[list[int]]):
    pass


VALUES = [
    None,
    True,
    0,
    -(2**63),
    2**63,
    2**200,
    10**400,
    1.5,
    1e300,
    1e-7,
    1e16,
    math.nan,
    -math.inf,
    "",
    "\ud800x",
    "\x00\x1f\x7f\"\\ \u2028😀",
    b"",
    b"a",
    b"ab",
    b"abc\xff",
    bytearray(b"xyz"),
    (1, 2),
    {1, 2},
    frozenset(["a"]),
    {1: "a", "1": "b", None: 2, (1, 2): 3},
    [[], {}, ()],
    uuid.UUID(int=7),
    Color.RED,
    Level.LOW,
    Word.HELLO,
    Point(1, [Slotted()]),
    Slots(),
    ValueError("bad"),
    Model(name="n", at=datetime.datetime(2026, 1, 2), extra=3),
    Old(),
    Root([1, 2]),
    datetime.date(2026, 1, 2),
    Interrupt(value={"q": 1}, id="i"),
    Send("node", {"a": 1}),
    Command(resume="yes"),
    AIMessage("hi", id="1", tool_calls=[{"name": "f", "args": {"a": 1}, "id": "c"}]),
    AIMessageChunk(content="hi", id="1", tool_call_chunks=[{"name": "f", "args": "{", "id": "c", "index": 0}]),
    HumanMessage([{"type": "text", "text": "x"}]),
    SystemMessage("s"),
    ToolMessage("r", tool_call_id="c", status="error"),
    Document(page_content="p", metadata={"a": 1}),
    Event(author="a", content=types.Content(role="model", parts=[types.Part(text="x")])),
    int,
    object,
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_lines_are_those_of_the_recorder(value):
    assert to_line(value) == _python_to_line(value)
    assert to_line({"event": [value]}) == _python_to_line({"event": [value]})
    json.loads(to_line(value))


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()) | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner) | st.tuples(inner),
)


@settings(max_examples=300, deadline=None)
@given(PLAIN)
def test_any_value_is_written_as_the_recorder_does(value):
    assert to_line(value) == _python_to_line(value)


@pytest.mark.parametrize("path", sorted(FIXTURES.glob("*/fixtures/*.jsonl")), ids=lambda path: path.stem)
def test_every_recording(path):
    for line in path.read_text("utf-8", "surrogatepass").split("\n"):
        try:
            event = json.loads(line)
        except ValueError:
            continue
        assert to_line(event) == _python_to_line(event)


# Hostile objects.


def deep(levels):
    value = []
    for _ in range(levels):
        value = [value]
    return value


def test_deep_and_cyclic_values_become_bounded_text():
    cycle = {}
    cycle["self"] = cycle
    loop = [Model(at=None)]
    loop[0].at = loop
    for value in (deep(100_000), cycle, loop):
        assert len(to_line(value)) < 10_000
    assert to_line(cycle) == _python_to_line(cycle)


class Raising:
    __slots__ = ()

    def __str__(self):
        raise RuntimeError("no text")


@dataclasses.dataclass
class RaisingProperty:
    a: int = 1

    def __getattribute__(self, name):
        if name == "a":
            raise RuntimeError("no member")
        return super().__getattribute__(name)


class Liar(dict):
    def items(self):
        raise RuntimeError("called")

    __iter__ = keys = values = __getitem__ = items


class LiarText(str):
    def __str__(self):
        raise RuntimeError("called")

    encode = __repr__ = __str__


CHUNK = {"event": "on_chat_model_stream", "run_id": "r", "name": "m", "data": {"chunk": AIMessageChunk(content="x", id="1")}, "metadata": {}, "tags": []}


@pytest.mark.parametrize("bad", [None, 42, [1, 2], "text"[:0] or (1,), Raising(), RaisingProperty(), {"event": Raising()}])
def test_bad_objects_are_skipped_and_counted(bad, caplog):
    translator = Translator("langgraph")
    before = translator.push_events(CHUNK)
    translator.push(bad)
    translator.push(bad)
    after = translator.push_events(CHUNK) + translator.finish_events()
    assert before[-1]["type"] == "TEXT_MESSAGE_CONTENT"
    assert any(event.get("delta") == "x" for event in after)
    report = translator.report()
    assert report.skipped + sum(entry.times for entry in report.tolerated) >= 2
    assert len([record for record in caplog.records if record.name == "agentwire.langgraph"]) == 1


def test_the_layout_is_read_not_overridden_methods():
    assert json.loads(to_line(Liar(a=LiarText("b")))) == {"a": "b"}


def test_a_dict_that_changes_while_it_is_walked():
    class Growing:
        def __str__(self):
            for number in range(100):
                holder[f"n{number}"] = number
            return "grown"

    holder = {"first": Growing(), "second": 2}
    assert json.loads(_native.to_json(holder))["first"] == "grown"


def test_objects_changed_by_another_thread():
    shared = {"a": [1, 2, 3], "b": {"c": Model(name="n")}}
    stop = threading.Event()

    def change():
        while not stop.is_set():
            shared["b"][str(len(shared["b"]) % 50)] = Model()
            shared["a"].append(1)
            if len(shared["a"]) > 100:
                shared["a"].clear()
                shared["b"].clear()

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for _ in range(2000):
            json.loads(to_line(shared))
    finally:
        stop.set()
        thread.join()


def test_an_event_larger_than_the_limit_is_skipped():
    translator = Translator("ag-ui", max_frame=1000)
    translator.push({"type": "CUSTOM", "name": "n", "value": "x" * 2000})
    translator.finish()
    assert translator.report().skipped == 1


def test_lean_models_leave_out_what_is_none():
    assert json.loads(_native.to_json(Model(at=1))) == {"at": 1}
    assert json.loads(_native.to_json(Root([1]))) == [1]


def test_bytes_of_adk_are_written_as_adk_writes_them():
    raw = bytes(range(256))
    blob = types.Blob(data=raw, mime_type="image/png")
    parts = [types.Part(text="x", thought_signature=raw), types.Part(inline_data=blob)]
    event = Event(author="a", content=types.Content(role="model", parts=parts))
    wanted = json.loads(event.model_dump_json(exclude_none=True))
    assert "-_" in wanted["content"]["parts"][0]["thought_signature"]
    assert json.loads(_native.to_json(event))["content"] == wanted["content"]
    # Bytes outside of such models keep the standard alphabet.
    assert json.loads(_native.to_json([blob, raw]))[1] == json.loads(to_line(raw))
