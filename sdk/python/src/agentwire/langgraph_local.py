"""A LangGraph graph as an agent, in process: the requests of the upstream `langgraph`, answered by the compiled graph."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Optional, Union
from urllib.parse import urlsplit
from uuid import UUID

from . import _native
from .agents import Agent, RunRequest, check_callable, is_uncompiled, maybe_await, pour
from .errors import ConfigError
from .langgraph_input import command_of, messages_of, state_of

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig

    from .bridge import Call

__all__ = ["LangGraphLocal", "langgraph_agent"]

#: The key of the graph's state with the tools of the user interface.
TOOLS_KEY = "agentwire:tools"
#: Runs whose end is remembered.
MAX_ENDED = 1000
#: The members of a `RunnableConfig` that a client may send.
CLIENT_CONFIG = ("configurable", "metadata", "recursion_limit", "tags")

Graph = Any
GraphOrFactory = Union[Graph, Callable[[RunRequest], Union[Graph, Awaitable[Graph]]]]


def _may_be_derived(thread: str) -> bool:
    """True if an id has the form of derived ones: a UUID of version 5."""
    try:
        return UUID(thread).version == 5
    except ValueError:
        return False


class LangGraphLocal(Agent):
    """A compiled graph, or a function that makes one per run."""

    def __init__(
        self,
        graph: GraphOrFactory,
        *,
        config: Any = None,
        context: Any = None,
        options: Optional[Mapping[str, str]] = None,
        state_keys: tuple[str, ...] = (),
        **settings: Any,
    ) -> None:
        identity, hooks, lock = (settings.pop(key, None) for key in ("identity", "hooks", "lock"))
        super().__init__(kind="langgraph", settings=settings, identity=identity, hooks=hooks, lock=lock)
        if not hasattr(graph, "astream_events") and not callable(graph):
            hint = "call its method `compile`" if is_uncompiled(graph) else None
            needed = f"a graph or a function that makes one is needed, not {type(graph).__name__}"
            raise ConfigError(needed, key="graph", hint=hint)
        if not hasattr(graph, "astream_events"):
            check_callable(graph, "graph", "a function that makes a graph")
        self.graph = graph
        self._config = config
        self._context = context
        self.options = dict(options or {})
        self._state_keys = list(state_keys)
        self._ended: dict[str, str] = {}

    def about(self) -> dict[str, Any]:
        options = [f"{key}={value}" for key, value in self.options.items()]
        return {**super().about(), "options": options, "state_keys": self._state_keys}

    async def answer(self, call: Call) -> None:
        method = call.payload["method"]
        parts = urlsplit(call.payload["path"]).path.strip("/").split("/")
        match (method, parts):
            case ("POST", ["threads"]):
                call.respond(200, {})
            case ("GET", ["threads", thread, "state"]):
                await self._state(call, thread)
            case ("POST", ["threads", thread, "runs", "stream"]):
                await self._run(call, thread)
            case ("GET", ["threads", thread, "runs", run]):
                self._status(call, thread, run)
            case ("GET", ["threads", _, "runs"]):
                call.respond(200, [])
            case ("POST", ["threads", _, "runs", _, "cancel"]):
                # The task of the run has been cancelled with its stream.
                call.respond(200, {})
            case ("DELETE", ["threads", thread]):
                await self._forget(call, thread)
            case _:
                call.respond(404, {"detail": "Not Found"})

    def _thread(self, call: Call, thread: str) -> str:
        """The thread in the checkpointer: the client's own id if there is one user, a derived one otherwise.

        The configuration decides, not only a name: a request without a name must not reach the threads of others, not
        even those of a caller that the program names itself. So an id in the form of derived ones gets a prefix.
        """
        payload = call.payload
        own = str(payload["thread"])
        is_default = (payload["tenant"], payload["user"]) == ("default", "default-user")
        if not (payload["one_user"] and is_default and payload["scope"] is None):
            return thread
        return f"default-user/{own}" if _may_be_derived(own) else own

    async def _graph(self, request: RunRequest) -> tuple[Any, bool]:
        """The graph, and True if it was made for this call."""
        if hasattr(self.graph, "astream_events"):
            return self.graph, False
        made = await maybe_await(self.graph(request))
        if not hasattr(made, "astream_events"):
            raise TypeError(f"the function gave {type(made).__name__}, not a graph")
        return made, True

    async def _config_of(self, request: RunRequest, thread: str, forwarded: Any = None) -> RunnableConfig:
        own = self._config
        if callable(own):
            own = await maybe_await(own(request))
        sent = {key: forwarded[key] for key in CLIENT_CONFIG if key in forwarded} if isinstance(forwarded, dict) else {}
        merged: Any = {**sent, **(own or {})}
        asked = sent.get("configurable")
        asked = {key: value for key, value in asked.items() if key != "thread_id"} if isinstance(asked, dict) else {}
        merged["configurable"] = {**asked, "thread_id": thread, **(own or {}).get("configurable", {})}
        found: RunnableConfig = merged
        return found

    async def _state(self, call: Call, thread: str) -> None:
        request = call.run_request()
        graph, is_made = await self._graph(request)
        try:
            if not getattr(graph, "checkpointer", None):
                call.respond(404, {"detail": "no checkpointer"})
                return
            config = await self._config_of(request, self._thread(call, thread))
            state = await graph.aget_state(config)
            if not state.values and not state.next:
                call.respond(404, {"detail": "no such thread"})
                return
            call.head(200, {"content-type": "application/json"})
            await call.send(_native.to_line(state_of(state)).encode())
        finally:
            await close(graph, is_made)

    async def _run(self, call: Call, thread: str) -> None:
        request = call.run_request()
        body = json.loads(call.payload["body"])
        graph, is_made = await self._graph(request)
        run = request.run_id
        try:
            config = await self._config_of(request, self._thread(call, thread), body.get("config"))
            more: dict[str, Any] = {}
            context = self._context
            if callable(context) and not isinstance(context, type):
                context = await maybe_await(context(request))
            if context is None:
                context = body.get("context")
            if context is not None:
                more["context"] = context
            for key in ("interrupt_before", "interrupt_after"):
                if body.get(key):
                    more[key] = body[key]
            given = self._input(body, request) if hasattr(graph, "aget_state") else messages_of(body["input"]["messages"])
            place = {"content-location": f"/threads/{thread}/runs/{run}"}
            call.head(200, {"content-type": "application/x-ndjson", **place})
            self._note(run, "running")
            await pour(call, graph.astream_events(given, config=config, version="v2", **more))
            self._note(run, "success")
        except BaseException:
            self._note(run, "error")
            raise
        finally:
            await close(graph, is_made)

    def _input(self, body: dict[str, Any], request: RunRequest) -> Any:
        if "command" in body:
            return command_of(body["command"])
        values = body["input"]
        if values is None:
            return None
        given = {**values, "messages": messages_of(values.get("messages") or [])}
        if request.tools:
            given[TOOLS_KEY] = request.tools
        return given

    def _note(self, run: str, status: str) -> None:
        self._ended.pop(run, None)
        self._ended[run] = status
        while len(self._ended) > MAX_ENDED:
            del self._ended[next(iter(self._ended))]

    def _status(self, call: Call, thread: str, run: str) -> None:
        status = self._ended.get(run)
        if status is None:
            call.respond(404, {"detail": "no such run"})
            return
        call.respond(200, {"run_id": run, "thread_id": thread, "assistant_id": call.target, "status": status})

    async def _forget(self, call: Call, thread: str) -> None:
        graph, is_made = await self._graph(call.run_request())
        try:
            checkpointer = getattr(graph, "checkpointer", None)
            delete = getattr(checkpointer, "adelete_thread", None)
            if delete is not None:
                await delete(self._thread(call, thread))
            call.respond(200, {})
        finally:
            await close(graph, is_made)


async def close(made: Any, is_made: bool) -> None:
    """Closes an object that was made for one call."""
    if not is_made:
        return
    for name in ("aclose", "close"):
        function = getattr(made, name, None)
        if callable(function):
            await maybe_await(function())
            return


def langgraph_agent(
    graph: GraphOrFactory,
    *,
    config: Any = None,
    context: Any = None,
    options: Optional[Mapping[str, str]] = None,
    state_keys: tuple[str, ...] = (),
    **settings: Any,
) -> Agent:
    """An agent that is a compiled graph in this process, or a function that makes one per run.

    It has what the LangGraph upstream has: the thread's history and state (`aget_state`), interrupts by id, deletion.
    `config` (or a function of the `RunRequest`) is the `RunnableConfig` of every run; `options` are those of the reader;
    `settings` the keys of `[agents.NAME]`. The tools of the user interface are in `state["agentwire:tools"]`.
    """
    return LangGraphLocal(graph, config=config, context=context, options=options, state_keys=state_keys, **settings)
