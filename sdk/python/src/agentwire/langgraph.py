"""The events of a LangGraph graph, or of any LangChain runnable, as AG-UI events."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Mapping
from contextvars import ContextVar
from enum import Enum
from functools import lru_cache, partial
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, Optional, TypedDict, Union
from weakref import WeakKeyDictionary

from .errors import ConfigError, EventTranslationError
from .langgraph_endpoint import LangGraphAgent, add_langgraph_fastapi_endpoint
from .langgraph_local import langgraph_agent
from .langgraph_input import to_graph_input, to_langchain
from .translator import Report, Translator, input_text, new_ids

if TYPE_CHECKING:
    from ag_ui.core import BaseEvent
    from langchain_core.runnables import Runnable, RunnableConfig
    from starlette.responses import Response
    from typing_extensions import NotRequired

    from .translator import Input

__all__ = [
    "AGUIAdapter",
    "LangGraphAgent",
    "LangGraphEventType",
    "Task",
    "add_langgraph_fastapi_endpoint",
    "langgraph_agent",
]


class LangGraphEventType(str, Enum):
    """The types of LangGraph's events that the reader knows."""

    ON_CHAT_MODEL_STREAM = "on_chat_model_stream"
    ON_CHAT_MODEL_START = "on_chat_model_start"
    ON_CHAT_MODEL_END = "on_chat_model_end"
    ON_CHAT_MODEL_ERROR = "on_chat_model_error"
    ON_LLM_START = "on_llm_start"
    ON_LLM_STREAM = "on_llm_stream"
    ON_LLM_END = "on_llm_end"
    ON_LLM_ERROR = "on_llm_error"
    ON_CHAIN_START = "on_chain_start"
    ON_CHAIN_STREAM = "on_chain_stream"
    ON_CHAIN_END = "on_chain_end"
    ON_CHAIN_ERROR = "on_chain_error"
    ON_TOOL_START = "on_tool_start"
    ON_TOOL_STREAM = "on_tool_stream"
    ON_TOOL_END = "on_tool_end"
    ON_TOOL_ERROR = "on_tool_error"
    ON_RETRIEVER_START = "on_retriever_start"
    ON_RETRIEVER_STREAM = "on_retriever_stream"
    ON_RETRIEVER_END = "on_retriever_end"
    ON_RETRIEVER_ERROR = "on_retriever_error"
    ON_PROMPT_START = "on_prompt_start"
    ON_PROMPT_STREAM = "on_prompt_stream"
    ON_PROMPT_END = "on_prompt_end"
    ON_PARSER_START = "on_parser_start"
    ON_PARSER_STREAM = "on_parser_stream"
    ON_PARSER_END = "on_parser_end"
    ON_CUSTOM_EVENT = "on_custom_event"
    ON_NODE_START = "on_node_start"
    ON_NODE_STREAM = "on_node_stream"
    ON_NODE_END = "on_node_end"
    ON_NODE_ERROR = "on_node_error"
    ON_AGENT_ACTION = "on_agent_action"
    ON_AGENT_FINISH = "on_agent_finish"
    ERROR = "error"


class Task(TypedDict):
    """A question: the short form of an input. `id` is the run."""

    id: str
    query: str
    thread_id: NotRequired[str]


#: The translators of the last streams of this task, by adapter.
_LAST: ContextVar[Optional[WeakKeyDictionary[AGUIAdapter, Translator]]] = ContextVar(
    "agentwire.langgraph.last", default=None
)


class AGUIAdapter:
    """Runs a graph and gives its events as AG-UI events. It holds no state of a run, and serves many at once.

    Args:
        agent: A compiled graph, or any runnable, which gets the messages.
        config: The `RunnableConfig` of every run; `thread_id` is the input's unless the config has one.
        context: The runtime context of the graph.
        events: `ag_ui` gives objects of `ag_ui.core`, `dict` gives dicts, `auto` objects if that package is installed.
        profile: The version of AG-UI: `1`, `0` (THINKING_* for reasoning) or `chunks`; `auto` is that of the installed
            package.
        options: Options of the reader (`agentwire formats`).
        raise_errors: Raise the exception of the graph after its RUN_ERROR.
        strict: Raise for events that are unknown or malformed.
    """

    def __init__(
        self,
        agent: Runnable[Any, Any],
        *,
        config: Optional[RunnableConfig] = None,
        context: Any = None,
        events: Literal["auto", "ag_ui", "dict"] = "auto",
        profile: Literal["auto", "1", "0", "chunks"] = "auto",
        options: Optional[Mapping[str, str]] = None,
        raise_errors: bool = False,
        strict: bool = False,
    ) -> None:
        if events not in ("auto", "ag_ui", "dict"):
            raise ConfigError(f"unknown events {events!r}", key="events", hint="auto, ag_ui or dict")
        if profile not in ("auto", "1", "0", "chunks"):
            raise ConfigError(f"unknown profile {profile!r}", key="profile", hint="auto, 1, 0 or chunks")
        self._agent = agent
        self._config = config
        self._context = context
        version = ag_ui_version()
        if events == "ag_ui" and version is None:
            raise ImportError('AG-UI objects need ag-ui-protocol: pip install "agentwire-gateway[ag-ui]"')
        self._gives_objects = events == "ag_ui" or (events == "auto" and version is not None)
        if profile == "auto":
            profile = "1" if version is None or version >= 1 or not self._gives_objects else "0"
        self._profile = profile
        self._options = dict(options or {})
        self._raise_errors = raise_errors
        self._strict = strict
        # Wrong options are told here, not at the first run.
        try:
            self._translator(None, "lines")
        except ConfigError as error:
            # They are this class's `options`, and the translator's `reader`.
            error.key = error.key and error.key.replace("reader.", "options.", 1)
            raise

    async def event_stream_adapter(
        self, input: Union[Input, Task], *, config: Optional[RunnableConfig] = None
    ) -> AsyncGenerator[BaseEvent, None]:
        """Runs the agent. First RUN_STARTED with the ids of the input, last RUN_FINISHED or RUN_ERROR."""
        request = _request(input)
        translator = self._translator(request, "lines")
        make = partial(objects, customs=translator.customs) if self._gives_objects else dicts
        stream = self._stream(request, translator, config)
        try:
            async for out in stream:
                for event in make(out):
                    yield event
        finally:
            await stream.aclose()

    run = event_stream_adapter
    stream_events = event_stream_adapter

    async def create_official_stream(
        self, input: Union[Input, Task], accept_header: Optional[str] = None
    ) -> AsyncGenerator[bytes, None]:
        """Runs the agent. Gives the bytes of a response: SSE, or AG-UI's binary form if the header asks for it."""
        request = _request(input)
        stream = self._stream(request, self._translator(request, _encoding(accept_header)), None)
        try:
            async for out in stream:
                yield out
        finally:
            await stream.aclose()

    def create_fastapi_endpoint(self) -> Callable[..., Awaitable[Response]]:
        """A route: `app.post("/")(adapter.create_fastapi_endpoint())`."""
        try:
            from starlette.requests import Request
            from starlette.responses import JSONResponse, Response, StreamingResponse
        except ImportError as error:
            raise ImportError('an endpoint needs FastAPI: pip install "agentwire-gateway[fastapi]"') from error

        async def endpoint(request: Any) -> Response:
            try:
                given = json.loads(await request.body())
                if not isinstance(given, dict):
                    raise ConfigError("the body is no object")
                text = _request(given)
                accept = request.headers.get("accept")
                translator = self._translator(text, _encoding(accept))
            except (ConfigError, ValueError) as error:
                body = {"error": {"code": "BAD_REQUEST", "message": str(error)}}
                return JSONResponse(body, status_code=400)
            headers = {**translator.headers, "cache-control": "no-store, no-transform", "x-accel-buffering": "no"}
            return StreamingResponse(self._stream(text, translator, None), headers=headers)

        endpoint.__annotations__ = {"request": Request, "return": Response}
        return endpoint

    async def translate(
        self, events: AsyncIterable[Any], input: Optional[Input] = None
    ) -> AsyncGenerator[BaseEvent, None]:
        """The AG-UI events of a stream of `astream_events` that was started elsewhere."""
        translator = self._translator(None if input is None else _request(input), "lines")
        make = partial(objects, customs=translator.customs) if self._gives_objects else dicts
        stream = self._translated(events, translator)
        try:
            async for out in stream:
                for event in make(out):
                    yield event
        finally:
            await stream.aclose()

    def report(self) -> Optional[Report]:
        """The report of the last stream of this adapter in this task."""
        found = _LAST.get()
        last = None if found is None else found.get(self)
        return None if last is None else last.report()

    def _translator(self, request: Optional[str], encoding: Literal["lines", "sse", "proto"]) -> Translator:
        target = "ag-ui-proto" if encoding == "proto" else f"ag-ui@{self._profile}"
        framing = "out:lines" if encoding == "lines" else None
        return Translator(
            "langgraph", target, request=request, reader=self._options, framing=framing, strict=self._strict
        )

    async def _stream(
        self, request: str, translator: Translator, config: Optional[RunnableConfig]
    ) -> AsyncGenerator[bytes, None]:
        thread = json.loads(request)["threadId"]
        merged: Any = _merged(self._config or {}, config or {})
        merged["configurable"] = {"thread_id": thread, **(merged.get("configurable") or {})}
        translated = self._translated(_Started(self._agent, request, merged, self._context), translator)
        try:
            async for out in translated:
                yield out
        finally:
            await translated.aclose()

    async def _translated(
        self, events: AsyncIterable[Any], translator: Translator
    ) -> AsyncGenerator[bytes, None]:
        # A copy: the tasks that begin here have theirs.
        streams = WeakKeyDictionary(_LAST.get() or {})
        streams[self] = translator
        _LAST.set(streams)
        items = events.__aiter__()
        try:
            async for event in items:
                if out := translator.push(event):
                    yield out
        except EventTranslationError:
            if out := translator.finish():
                yield out
            raise
        except Exception as error:
            if out := translator.finish(error):
                yield out
            if self._raise_errors:
                raise
            return
        finally:
            close = getattr(items, "aclose", None)
            if close is not None:
                await close()
        if out := translator.finish():
            yield out


class _Started:
    """The events of an agent, which is started with the first one: an exception before it ends the run too."""

    def __init__(self, agent: Any, request: str, config: Any, context: Any) -> None:
        self._started = self._events(agent, request, config, context)

    def __aiter__(self) -> AsyncGenerator[Any, None]:
        return self._started

    @staticmethod
    async def _events(agent: Any, request: str, config: Any, context: Any) -> AsyncGenerator[Any, None]:
        given: Any
        if hasattr(agent, "aget_state"):
            state = await agent.aget_state(config) if getattr(agent, "checkpointer", None) else None
            given = to_graph_input(request, state)
        else:
            given = to_langchain(request)
        more = {} if context is None else {"context": context}
        events = agent.astream_events(given, config=config, version="v2", **more)
        try:
            async for event in events:
                yield event
        finally:
            await events.aclose()


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Two configs as LangChain merges them: tables and lists of both, the values of the second one."""
    if not base or not over:
        return {**base, **over}
    from langchain_core.runnables.config import merge_configs

    both: Any = (base, over)
    return {**merge_configs(*both)}


def _request(input: Any) -> str:
    """An input, or a task, as JSON text."""
    given: Any = input
    if not isinstance(given, (Mapping, str, bytes)) and hasattr(given, "query") and hasattr(given, "id"):
        given = {"id": given.id, "query": given.query, "thread_id": getattr(given, "thread_id", None)}
    if isinstance(given, Mapping) and "query" in given and "messages" not in given:
        run = str(given.get("id") or "run")
        thread = given.get("thread_id") or run
        message = {"id": f"{run}:user", "role": "user", "content": str(given["query"])}
        given = {"threadId": thread, "runId": run, "messages": [message]}
    # Inputs without ids must not share a thread of the checkpointer.
    return input_text(given, new_ids())


def _encoding(accept: Optional[str]) -> Literal["sse", "proto"]:
    """The encoding that an Accept header asks for; SSE where both fit."""
    weights = dict(_weight(part) for part in (accept or "").split(","))
    binary = weights.get("application/vnd.ag-ui.event+proto", 0.0)
    text = [weights[kind] for kind in ("text/event-stream", "text/*", "*/*") if kind in weights]
    return "proto" if binary > (text[0] if text else 0.0) else "sse"


def _weight(part: str) -> tuple[str, float]:
    """A media type of an Accept header, and its weight."""
    kind, *parameters = (piece.strip().lower() for piece in part.split(";"))
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return kind, float(value)
            except ValueError:
                return kind, 0.0
    return kind, 1.0


@lru_cache(maxsize=1)
def ag_ui_version() -> Optional[int]:
    """The first number of the installed version of AG-UI's package."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        import ag_ui.core  # noqa: F401

        return int(version("ag-ui-protocol").partition(".")[0])
    except (ImportError, PackageNotFoundError):
        return None


@lru_cache(maxsize=1)
def _adapter() -> Any:
    from ag_ui.core import Event
    from pydantic import TypeAdapter

    return TypeAdapter(Event).validate_json


def objects(out: bytes, customs: Optional[Counter[str]] = None) -> list[Any]:
    """Lines of events as objects of `ag_ui.core`. `customs` counts the kinds that it does not have."""
    validate = _adapter()
    try:
        return [validate(line) for line in out.split(b"\n") if line]
    except ValueError:
        return [_object(validate, line, customs) for line in out.split(b"\n") if line]


def _object(validate: Callable[[bytes], Any], line: bytes, customs: Optional[Counter[str]]) -> Any:
    try:
        return validate(line)
    except ValueError:
        # The installed package does not know the event: its nearest is a custom one with the same content.
        from ag_ui.core import CustomEvent, EventType

        event = json.loads(line)
        if customs is not None:
            customs[event.get("type", "")] += 1
        return CustomEvent(type=EventType.CUSTOM, name=event.get("type", ""), value=event)


def dicts(out: bytes) -> list[Any]:
    """Lines of events as dicts."""
    return [json.loads(line) for line in out.split(b"\n") if line]


class _Module(ModuleType):
    """The module as a function: `agentwire.langgraph(graph)` makes an agent."""

    def __call__(self, *arguments: Any, **settings: Any) -> Any:
        return langgraph_agent(*arguments, **settings)


sys.modules[__name__].__class__ = _Module
