"""Custom events from the code of an agent to the user interface."""

from __future__ import annotations

import base64
from typing import Any, Generator, Mapping, Optional, Union

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
        dispatch_custom_event(MARKER, data, config=config)  # type: ignore[arg-type]
        return _Done()

    def emit_progress(self, step: str, progress: float, details: Optional[str] = None) -> _Done:
        """Sends `progress_update`."""
        return self.emit("progress_update", {"step": step, "progress": progress, "details": details})

    def emit_chart(self, chart_type: str, data: Any, title: Optional[str] = None) -> _Done:
        """Sends `display_chart`."""
        return self.emit("display_chart", {"type": chart_type, "data": data, "title": title})

    def emit_file_download(self, filename: str, content: Union[bytes, str], mime_type: str) -> _Done:
        """Sends `file_download`, with the content in base64."""
        raw = content.encode("utf-8") if isinstance(content, str) else bytes(content)
        text = base64.b64encode(raw).decode("ascii")
        return self.emit("file_download", {"filename": filename, "content": text, "mime_type": mime_type})


def _current_config() -> Optional[Mapping[str, Any]]:
    try:
        from langchain_core.runnables.config import var_child_runnable_config
    except ImportError:
        return None
    return var_child_runnable_config.get()
