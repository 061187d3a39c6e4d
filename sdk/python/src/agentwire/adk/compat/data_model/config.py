"""Paths and services."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Optional, Union

from google.adk.agents.run_config import RunConfig, StreamingMode  # type: ignore[attr-defined]
from google.adk.sessions import InMemorySessionService
from pydantic import BaseModel, ConfigDict, Field

from ....errors import ConfigError
from ...local import SERVICES
from ..base_abc.handler import BaseADKEventHandler, BaseAGUIEventHandler, BaseTranslateHandler

__all__ = ["HistoryConfig", "HistoryPathConfig", "PathConfig", "RunnerConfig", "StateConfig", "StatePathConfig"]

#: A value, or a function of the request, sync or async.
OfRequest = Union[str, Callable[..., Any]]


class PathConfig(BaseModel):
    """The path of the main route."""

    agui_main_path: str = ""


class HistoryPathConfig(PathConfig):
    """The paths of the history."""

    agui_message_snapshot_path: str = "/message_snapshot/{thread_id}"
    agui_thread_list_path: str = "/thread/list"
    agui_thread_delete_path: str = "/thread/{thread_id}"


class StatePathConfig(PathConfig):
    """The paths of the state."""

    agui_patch_state_path: str = "/state/{thread_id}"
    agui_state_snapshot_path: str = "/state_snapshot/{thread_id}"


class RunnerConfig(BaseModel):
    """The services of the runner."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    use_in_memory_services: bool = True
    run_config: RunConfig = RunConfig(streaming_mode=StreamingMode.SSE)
    session_service: Any = Field(default_factory=InMemorySessionService)
    artifact_service: Any = None
    memory_service: Any = None
    credential_service: Any = None
    plugins: Optional[list[Any]] = None

    def _service(self, name: str) -> Any:
        found = getattr(self, name)
        if found is None:
            if not self.use_in_memory_services:
                raise ConfigError(f"there is no `{name}`", key=name, hint="give one, or allow services in memory")
            found = SERVICES[name]()
            setattr(self, name, found)
        return found

    def get_artifact_service(self) -> Any:
        """The artifacts; made in memory if there are none."""
        return self._service("artifact_service")

    def get_memory_service(self) -> Any:
        """The memory; made if there is none."""
        return self._service("memory_service")

    def get_credential_service(self) -> Any:
        """The credentials; made in memory if there are none."""
        return self._service("credential_service")


class _SessionConfig(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)

    app_name: OfRequest = "default"
    user_id: OfRequest
    session_id: OfRequest
    #: That of the app's `SSEService` if absent.
    session_service: Any = Field(default_factory=InMemorySessionService)


class HistoryConfig(_SessionConfig):
    """App, user and session of a request to the history, and the handlers of its events."""

    retune_on_stream_complete: bool = False
    get_thread_list: Optional[Callable[..., Any]] = None
    adk_event_handler: Optional[type[BaseADKEventHandler]] = None
    agui_event_handler: Optional[type[BaseAGUIEventHandler]] = None
    translate_handler: Optional[type[BaseTranslateHandler]] = None


class StateConfig(_SessionConfig):
    """App, user and session of a request to the state."""

    get_state: Optional[Callable[..., Any]] = None
