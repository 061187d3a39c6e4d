"""Custom events from the code of an agent to the user interface."""

from __future__ import annotations

from typing import Any, Generator, Mapping, Optional

#: The name of the LangChain event that wraps all custom events. agentwire unwraps it.
MARKER = "agent_custom_event"


class _Done:
    """Makes `await emitter.emit(...)` work, although `emitter.emit(...)` is already complete."""

    def __await__(self) -> Generator[Any, None, None]:
        return
        yield  # pragma: no cover


class EventEmitter:
    """Sends named events from nodes and tools, independent of the protocol of the user interface.

    `config` is the `RunnableConfig` that LangGraph passes to nodes and tools. The default is that of the running
    node, where Python can determine it (3.11 and later in async code).
    """

    def __init__(self, config: Optional[Mapping[str, Any]] = None) -> None:
        self._config = config

    def emit(self, name: str, payload: Any = None, *, event_id: Optional[str] = None) -> _Done:
        """Sends one event. Does nothing without listeners."""
        config = self._config if self._config is not None else _current_config()
        # A plain list of handlers has no run that an event could belong to.
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
