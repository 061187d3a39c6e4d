"""`Translator`: the bytes of `agentwire convert`, for objects and bytes, in any cut."""

import asyncio
import dataclasses
import json
import pathlib
import random
import subprocess
import sys
import threading

import pytest

import agentwire
from agentwire import ConfigError, EventTranslationError, Translator, UnknownEventTypeError, atranslate, translate
from conftest import ROOT

COMMAND = [sys.executable, "-m", "agentwire"]
FIXTURES = ROOT / "crates" / "agentwire-core" / "src" / "format"
SOURCES = {"langgraph": "langgraph", "adk": "adk", "openai": "openai", "hai": "hai"}
FILES = [
    (name, path)
    for name, folder in SOURCES.items()
    for path in sorted((FIXTURES / folder / "fixtures").glob("*"))
    if path.suffix in (".jsonl", ".sse", ".json") and ".events" not in path.name and path.stat().st_size < 300_000
]
TARGETS = ["ag-ui", "ag-ui@0", "ag-ui@chunks", "ag-ui-proto", "hai", "ai-sdk@5", "ai-sdk@4", "openai"]
# The time of events that have none.
NOW = 1_700_000_000_000


def converted(path, from_, to):
    command = [*COMMAND, "convert", "--from", from_, "--to", to, "--lenient", str(path)]
    if to.startswith("hai"):
        command[4:4] = ["-O", f"to.stamp={NOW}"]
    return subprocess.run(command, capture_output=True, timeout=120).stdout


def targets():
    known = {f"{info.name}@{profile.name}" for info in agentwire.formats() for profile in info.profiles}
    return [target for target in TARGETS if target in known or any(name.startswith(f"{target}@") for name in known)]


@pytest.mark.parametrize(("from_", "path"), FILES, ids=lambda part: part if isinstance(part, str) else part.stem)
def test_bytes_are_those_of_the_command(from_, path):
    data = path.read_bytes()
    cuts = random.Random(path.name)
    for to in random.Random(path.stem).sample(targets(), 2):
        if to == "openai" and not any(info.name == "openai" and info.profiles for info in agentwire.formats()):
            continue
        translator = Translator(from_, to, clock=lambda: NOW)
        out, at = b"", 0
        while at < len(data):
            size = cuts.choice([1, 2, 7, 100, 5000, 100_000])
            out += translator.push(data[at : at + size])
            at += size
        out += translator.finish()
        expected = converted(path, from_, to)
        if to.startswith("hai"):
            # The command has the time of its start.
            assert len(out.split(b"\n\n")) == len(expected.split(b"\n\n"))
        elif b"this looks like" not in expected:
            # For a whole file the command compares other formats, if nothing in it was understood.
            assert out == expected


def lines(path):
    return [json.loads(line) for line in path.read_text("utf-8").split("\n") if line]


OBJECTS = [(name, path) for name, path in FILES if path.suffix == ".jsonl" and "broken" not in path.name][:60]


@pytest.mark.parametrize(("from_", "path"), OBJECTS, ids=lambda part: part if isinstance(part, str) else part.stem)
def test_objects_give_the_same_as_bytes(from_, path):
    try:
        events = lines(path)
    except ValueError:
        events = None
    if events is None or len(events) < 2:
        # A cut or single document is no list of events.
        with pytest.raises(TypeError):
            translator = Translator(from_)
            translator.push({})
            translator.push(b"")
        return
    by_object = Translator(from_)
    out = b"".join(by_object.push(event) for event in events) + by_object.finish()
    by_bytes = Translator(from_)
    assert out == by_bytes.push(path.read_bytes()) + by_bytes.finish()


CHUNKS = [
    {"choices": [{"delta": {"content": "Hi "}}]},
    {"choices": [{"delta": {"content": "you"}, "finish_reason": "stop"}]},
]


def test_events_as_dicts():
    translator = Translator("openai", thread="t", run="r")
    events = [event for chunk in CHUNKS for event in translator.push_events(chunk)] + translator.finish_events()
    assert events[0] == {"type": "RUN_STARTED", "threadId": "t", "runId": "r", "protocolVersion": "1.0"}
    assert "".join(event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT") == "Hi you"
    assert events[-1]["type"] == "RUN_FINISHED"
    assert translator.push(CHUNKS[0]) == b"" and translator.finish() == b""
    with pytest.raises(TypeError):
        Translator("openai", "ai-sdk").push_events(CHUNKS[0])


def test_a_stream_that_is_cut_gets_its_ending():
    translator = Translator("langgraph")
    events = translator.push_events({"event": "on_chain_start", "name": "g", "run_id": "r", "data": {}, "metadata": {}})
    events += translator.finish_events()
    assert events[-1]["type"] == "RUN_ERROR" and events[-1]["code"] == "STREAM_TRUNCATED"


def test_an_exception_ends_the_stream():
    class Own(Exception):
        code, message = "NO_MONEY", "the account is empty"

    translator = Translator("ag-ui")
    translator.push({"type": "TEXT_MESSAGE_CHUNK", "messageId": "m", "delta": "half"})
    ending = translator.finish_events(Own())
    assert [event["type"] for event in ending][-2:] == ["TEXT_MESSAGE_END", "RUN_ERROR"]
    assert (ending[-1]["code"], ending[-1]["message"]) == ("NO_MONEY", "the account is empty")


def test_the_request_gives_the_ids():
    request = {"thread_id": "mine", "run_id": "asked", "messages": []}
    translator = Translator("ag-ui", request=request)
    events = translator.push_events({"type": "RUN_STARTED", "threadId": "other", "runId": "own"})
    events += translator.push_events({"type": "RUN_FINISHED", "threadId": "other", "runId": "own"})
    events += translator.finish_events()
    assert {(event["threadId"], event["runId"]) for event in events} == {("mine", "asked")}


def test_mixing_objects_and_bytes_is_a_type_error():
    translator = Translator("openai")
    translator.push(CHUNKS[0])
    for data in (b"x", "x", bytearray(b"x"), memoryview(b"x")):
        with pytest.raises(TypeError):
            translator.push(data)
    with pytest.raises(TypeError):
        Translator("ag-ui-proto").push({"type": "RUN_STARTED"})


def test_strict_raises_and_finish_gives_the_ending():
    translator = Translator("ag-ui", strict=True)
    translator.push({"type": "TEXT_MESSAGE_CHUNK", "messageId": "m", "delta": "half"})
    with pytest.raises(EventTranslationError) as raised:
        translator.push({"type": "TEXT_MESSAGE_CONTENT", "messageId": 7, "delta": []})
    assert raised.value.index == 1 and raised.value.path and raised.value.problem
    ending = translator.finish_events()
    assert ending[-1]["type"] == "RUN_ERROR" and ending[-1]["code"] == "BAD_INPUT"
    assert translator.finish() == b""


def test_strict_raises_for_unknown_types():
    translator = Translator("langgraph", strict=True)
    with pytest.raises(UnknownEventTypeError) as raised:
        translator.push({"event": "on_something_new", "data": {}, "name": "x", "run_id": "r"})
    assert raised.value.type == "on_something_new" and "on_something_new" in raised.value.event
    assert translator.finish_events()[-1]["code"] == "BAD_INPUT"


@pytest.mark.parametrize(
    ("arguments", "key", "hint"),
    [
        (("langgraf",), "from_", "did you mean `langgraph`"),
        (("langgraph@9",), "from_", "profiles: "),
        (("openai", "ag-ui@9"), "to", "profiles: "),
        (("openai", "adk"), "to", "writers: "),
        (("openai", "nothing"), "to", "writers: "),
    ],
)
def test_wrong_names_say_what_is_right(arguments, key, hint):
    with pytest.raises(ConfigError) as raised:
        Translator(*arguments)
    assert isinstance(raised.value, ValueError)
    assert raised.value.key == key
    assert hint in raised.value.hint


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        ({"options": {"stepps": "none"}}, "options.stepps"),
        ({"options": {"steps": "sometimes"}}, "options.steps"),
        ({"reader": {"stepps": "none"}}, "reader.stepps"),
        ({"writer": {"stepps": "none"}}, "writer.stepps"),
        ({"framing": "morse"}, "framing"),
        ({"framing": "out:lines", "to": "ag-ui-proto"}, "framing"),
        ({"request": {"messages": 7}}, "request"),
        ({"request": 7}, "input"),
    ],
)
def test_wrong_arguments_are_named(arguments, key):
    with pytest.raises(ConfigError) as raised:
        Translator("langgraph", **arguments)
    assert raised.value.key == key


def test_translate_and_atranslate():
    expected = b"".join(translate(CHUNKS, "openai"))

    async def source():
        for chunk in CHUNKS:
            yield chunk

    async def main():
        return b"".join([out async for out in atranslate(source(), "openai")])

    assert asyncio.run(main()) == expected

    def failing():
        yield CHUNKS[0]
        raise KeyError("x")

    out = []
    with pytest.raises(KeyError):
        for piece in translate(failing(), "openai"):
            out.append(piece)
    assert b"RUN_ERROR" in out[-1]


def test_the_report():
    translator = Translator("openai", "ai-sdk")
    for chunk in CHUNKS:
        translator.push(chunk)
    translator.finish()
    report = translator.report()
    assert report.frames == 2 and report.skipped == 0
    assert report.exact["RUN_STARTED"] == 1
    assert str(report).startswith("2 frames read\n")
    with pytest.raises(dataclasses.FrozenInstanceError):
        report.frames = 3


def test_headers():
    translator = Translator("openai", "ai-sdk")
    assert translator.content_type == "text/event-stream"
    assert translator.headers["x-vercel-ai-ui-message-stream"] == "v1"


def test_threads_take_turns():
    translator = Translator("openai")
    threads = [
        threading.Thread(target=lambda: [translator.push({"choices": [{"delta": {"content": "x"}}]}) for _ in range(200)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    translator.finish()
    assert translator.report().frames == 800


def test_large_bytes():
    text = json.dumps({"choices": [{"delta": {"content": "x" * 50}}]})
    data = f"data: {text}\n\n".encode() * 5000
    translator = Translator("openai")
    out = translator.push(data) + translator.finish()
    assert out.count(b"TEXT_MESSAGE_CONTENT") == 5000


def test_a_foreign_body():
    translator = Translator("openai")
    out = translator.push(b"<html>502</html>") + translator.finish()
    assert b"RUN_ERROR" in out and b"BAD_INPUT" in out
