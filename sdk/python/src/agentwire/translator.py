"""Any stream to any format."""

from __future__ import annotations

import json
import logging
import uuid
from collections import Counter
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Optional, Union

from . import _native
from .errors import ConfigError, described, encodable

if TYPE_CHECKING:
    from ag_ui.core import RunAgentInput

__all__ = [
    "FormatInfo",
    "Input",
    "Loss",
    "OptionInfo",
    "ProfileInfo",
    "Report",
    "Tolerated",
    "Translator",
    "atranslate",
    "formats",
    "translate",
]

#: An input of AG-UI: its object, the same as a dict (camelCase or snake_case), or as JSON text.
Input = Union["RunAgentInput", Mapping[str, Any], str, bytes]
#: The largest frame, in bytes: that of the command.
MAX_FRAME: int = _native.MAX_FRAME


@dataclass(frozen=True)
class Loss:
    """A kind of event that was not expressed exactly."""

    event: str
    times: int
    why: str


@dataclass(frozen=True)
class Tolerated:
    """A deviation that the reader tolerated: its kind and name, its count and the first frame that has it."""

    what: str
    name: str
    times: int
    first_frame: int


@dataclass(frozen=True)
class Report:
    """The result of a translation. `str(report)` is the report of `agentwire convert --report`."""

    frames: int
    skipped: int
    exact: dict[str, int]
    approximated: list[Loss]
    dropped: list[Loss]
    repaired: dict[str, int]
    tolerated: list[Tolerated]
    replaced_bytes: int = 0
    text: str = field(default="", repr=False, compare=False)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class OptionInfo:
    """An option of a format; no values means any text."""

    name: str
    values: list[str]
    about: str


@dataclass(frozen=True)
class ProfileInfo:
    """A variant of a format that can be written."""

    name: str
    about: str
    framing: str
    content_type: str


@dataclass(frozen=True)
class FormatInfo:
    """A format: the framings it is read from, and the profiles it is written in."""

    name: str
    about: str
    reads: list[str]
    profiles: list[ProfileInfo]
    options: list[OptionInfo]


def formats() -> list[FormatInfo]:
    """The table of `agentwire formats`."""
    return [
        FormatInfo(
            row["name"],
            row["about"],
            row["reads"],
            [ProfileInfo(**profile) for profile in row["profiles"]],
            [OptionInfo(**option) for option in row["options"]],
        )
        for row in json.loads(_native.formats())
    ]


def input_text(value: Input, ids: Optional[Mapping[str, str]] = None) -> str:
    """An input as JSON text with the names of AG-UI; `ids` are for one that has none."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        value = bytes(value).decode("utf-8", "replace")
    if isinstance(value, str):
        try:
            parsed = json.loads(value)
        except (ValueError, RecursionError):
            # The reader of inputs names the place of the mistake.
            return value
        # Text that is complete stays as it is, to the last digit of its numbers.
        if not isinstance(parsed, dict) or _REQUIRED.keys() <= parsed.keys():
            return value
        return _native.to_json(_completed(parsed, ids or {}))
    dump = getattr(value, "model_dump_json", None)
    if callable(dump):
        return str(dump(by_alias=True, exclude_none=True))
    if isinstance(value, Mapping):
        return _native.to_json(_completed(value, ids or {}))
    raise ConfigError(f"expected a RunAgentInput, a mapping or JSON text, found {type(value).__name__}", key="input")


_SNAKE = {
    "thread_id": "threadId",
    "run_id": "runId",
    "parent_run_id": "parentRunId",
    "forwarded_props": "forwardedProps",
    "protocol_version": "protocolVersion",
    "tool_calls": "toolCalls",
    "tool_call_id": "toolCallId",
    "interrupt_id": "interruptId",
    "mime_type": "mimeType",
    "encrypted_value": "encryptedValue",
    "activity_type": "activityType",
}
#: Members of messages and of their parts whose own members are AG-UI's too; all others are data.
_NESTED = ("content", "source", "toolCalls")
#: The members that AG-UI requires.
_REQUIRED: dict[str, Any] = {"threadId": "thread", "runId": "run", "messages": [], "tools": [], "context": []}


def _completed(value: Mapping[str, Any], ids: Mapping[str, str]) -> dict[str, Any]:
    """The input with the names of AG-UI, and with the members that AG-UI requires."""
    members = {_SNAKE.get(key, key): item for key, item in value.items()}
    for key in ("messages", "resume"):
        if isinstance(members.get(key), (list, tuple)):
            members[key] = [renamed(item) for item in members[key]]
    return {**_REQUIRED, **ids, **{key: item for key, item in members.items() if item is not None}}


def new_ids() -> dict[str, str]:
    """Ids of a run in a thread of its own."""
    return {"threadId": f"thread-{uuid.uuid4()}", "runId": f"run-{uuid.uuid4()}"}


def renamed(item: Any) -> Any:
    """A message, a part of one or an answer with the names of AG-UI."""
    dump = getattr(item, "model_dump", None)
    if callable(dump):
        return dump(by_alias=True, exclude_none=True)
    if isinstance(item, (list, tuple)):
        return [renamed(each) for each in item]
    if not isinstance(item, Mapping):
        return item
    # The content of an activity is data of its program.
    nested = () if item.get("role") == "activity" else _NESTED
    members = {_SNAKE.get(key, key): value for key, value in item.items() if value is not None}
    return {key: renamed(value) if key in nested else value for key, value in members.items()}


class Translator:
    """Translates one stream, piece by piece.

    The first `push` decides between objects (dicts, models, dataclasses: one event each) and bytes or text in the
    framing of the source. What cannot be read is skipped, counted in the report and logged once per kind, or raises
    an `EventTranslationError` if `strict`; `finish` then returns the ending.

    Args:
        from_: The format of the source: see `formats()`.
        to: The format of the output, as `format` or `format@profile`.
        thread, run: Ids for sources that have none.
        request: The input of the run. Its ids are those of the output.
        options: Options of both sides, `reader` and `writer` those of one.
        framing: The framing of the source (`sse`, `lines`, `array`), instead of the detected one; with `out:lines` the
            output is JSON lines.
        clock: The time in milliseconds, for formats whose events need one.
    """

    def __init__(
        self,
        from_: str,
        to: str = "ag-ui",
        *,
        thread: str = "thread",
        run: str = "run",
        request: Optional[Input] = None,
        options: Optional[Mapping[str, str]] = None,
        reader: Optional[Mapping[str, str]] = None,
        writer: Optional[Mapping[str, str]] = None,
        framing: Optional[str] = None,
        strict: bool = False,
        max_frame: int = MAX_FRAME,
        clock: Optional[Callable[[], int]] = None,
    ) -> None:
        if max_frame < 1:
            raise ConfigError(f"a frame cannot have {max_frame} bytes", key="max_frame", hint="1 or more")
        pairs = [f"{key}={value}" for key, value in (options or {}).items()]
        pairs += [f"from.{key}={value}" for key, value in (reader or {}).items()]
        pairs += [f"to.{key}={value}" for key, value in (writer or {}).items()]
        text = None if request is None else input_text(request)
        self._log = logging.getLogger(f"agentwire.{from_.partition('@')[0]}")
        now = None if clock is None else clock()
        self._stream = _native.Stream(
            from_, to, thread, run, text, pairs, framing, strict, max_frame, now, self._on_unknown
        )
        self._writes_events = to.partition("@")[0] == "ag-ui"
        #: The kinds of events that had to be given as custom ones, because `ag_ui.core` does not have them.
        self.customs: Counter[str] = Counter()
        self._reads_langgraph = from_.partition("@")[0] == "langgraph"

    def push(self, data: Any) -> bytes:
        """Translates an object, or a piece of bytes or text."""
        return self._stream.push(data)

    def push_events(self, data: Any) -> list[dict[str, Any]]:
        """The same as AG-UI dicts; only for the target `ag-ui`."""
        self._check_events()
        return _events(self._stream.push(data))

    def finish(self, error: Optional[BaseException] = None) -> bytes:
        """Ends the stream: everything that is open is closed. `error` is the exception that ended the source."""
        if error is None:
            return self._stream.finish()
        code, message = getattr(error, "code", None), getattr(error, "message", None)
        if isinstance(code, str) and isinstance(message, str):
            return self._stream.finish(encodable(code), encodable(message))
        told = described(error)
        is_named = self._reads_langgraph and told != type(error).__name__
        frame = {"event": "error", "data": error} if is_named else None
        return self._stream.finish("UPSTREAM_FAILED", told, frame)

    def finish_events(self, error: Optional[BaseException] = None) -> list[dict[str, Any]]:
        """The same as AG-UI dicts."""
        self._check_events()
        return _events(self.finish(error))

    def report(self) -> Report:
        """The report so far."""
        data, text = self._stream.report(list(self.customs.items()))
        found = json.loads(data)
        return Report(
            frames=found["frames"],
            skipped=found["skipped"],
            exact={row["event"]: row["times"] for row in found["exact"]},
            approximated=[Loss(**row) for row in found["approximated"]],
            dropped=[Loss(**row) for row in found["dropped"]],
            repaired={row["rule"]: row["times"] for row in found["repaired"]},
            tolerated=[
                Tolerated(row["what"], row["name"], row["times"], row["firstFrame"]) for row in found["tolerated"]
            ],
            replaced_bytes=found["replacedBytes"],
            text=text,
        )

    @property
    def content_type(self) -> str:
        """The content type of a response with the output."""
        return self._stream.content_type

    @property
    def headers(self) -> dict[str, str]:
        """The headers of a response with the output."""
        return self._stream.headers

    def _check_events(self) -> None:
        if not self._writes_events:
            raise TypeError("events as dicts are those of the target `ag-ui`")

    def _on_unknown(self, kind: str, name: str, excerpt: str) -> None:
        self._log.warning("%s %r: %s", kind, name, excerpt)


def _events(out: bytes) -> list[dict[str, Any]]:
    # JSON has no line breaks of its own, so that every frame is one line.
    lines = (line.removeprefix(b"data: ") for line in out.split(b"\n") if line)
    return [json.loads(line) for line in lines if line.startswith(b"{")]


def translate(source: Iterable[Any], from_: str, to: str = "ag-ui", **options: Any) -> Iterator[bytes]:
    """Translates the objects or pieces of `source`. If it raises, the output gets its ending first."""
    translator = Translator(from_, to, **options)
    return _translated(source, translator)


def _translated(source: Iterable[Any], translator: Translator) -> Iterator[bytes]:
    try:
        for item in source:
            if out := translator.push(item):
                yield out
    except Exception as error:
        if out := translator.finish(error):
            yield out
        raise
    if out := translator.finish():
        yield out


def atranslate(source: AsyncIterable[Any], from_: str, to: str = "ag-ui", **options: Any) -> AsyncIterator[bytes]:
    """The same for an asynchronous source."""
    translator = Translator(from_, to, **options)
    return _atranslated(source, translator)


async def _atranslated(source: AsyncIterable[Any], translator: Translator) -> AsyncIterator[bytes]:
    items = source.__aiter__()
    try:
        async for item in items:
            if out := translator.push(item):
                yield out
    except Exception as error:
        if out := translator.finish(error):
            yield out
        raise
    finally:
        close = getattr(items, "aclose", None)
        if close is not None:
            await close()
    if out := translator.finish():
        yield out
