"""Events that the code of an agent sends to the user interface by hand."""

from __future__ import annotations

from typing import Any, Generator, Mapping, Optional

#: The name of the LangChain event that carries all others. agentwire unwraps it.
MARKER = "agent_custom_event"


class _Done:
    """Lets `await emitter.emit(...)` work where `emitter.emit(...)` has done everything already."""

    def __await__(self) -> Generator[Any, None, None]:
        return
        yield  # pragma: no cover


class EventEmitter:
    """Sends named events from nodes and tools; knows nothing of user interface protocols.

    `config` is the `RunnableConfig` that LangGraph hands to nodes and tools. Without one, that of the running
    node is used where Python can find it (3.11 and later in async code).
    """

    def __init__(self, config: Optional[Mapping[str, Any]] = None) -> None:
        self._config = config

    def emit(self, name: str, payload: Any = None, *, event_id: Optional[str] = None) -> _Done:
        """Sends one event. Does nothing if nobody listens."""
        config = self._config if self._config is not None else _current_config()
        # A list of handlers has no run to which an event could belong.
        if not config or getattr(config.get("callbacks"), "parent_run_id", None) is None:
            return _Done()
        from langchain_core.callbacks.manager import dispatch_custom_event

        data = {"name": name, "payload": payload}
        if event_id is not None:
            data["event_id"] = event_id
        dispatch_custom_event(MARKER, data, config=config)
        return _Done()


def _current_config() -> Optional[Mapping[str, Any]]:
    try:
        from langchain_core.runnables.config import var_child_runnable_config
    except ImportError:
        return None
    return var_child_runnable_config.get()
