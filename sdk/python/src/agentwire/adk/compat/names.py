"""The classes of adk-agui-middleware: configuration, handlers and what they exchange."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable
from typing import Any, Optional, Union

from ag_ui.core import BaseEvent, EventType, RunAgentInput, RunErrorEvent
from google.adk.agents.run_config import RunConfig, StreamingMode  # type: ignore[attr-defined]
from google.adk.events import Event
from google.adk.sessions import InMemorySessionService
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request

from ...errors import ConfigError
from ..local import SERVICES

Extractor = Union[str, Callable[..., Any]]


class _Model(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)


# data_model


class PathConfig(_Model):
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


class SessionLockConfig(_Model):
    """The patience of a run whose thread another one has."""

    lock_timeout: Optional[int] = 300
    lock_retry_times: int = 3
    lock_retry_interval: float = 10.0


class SessionParameter(_Model):
    """The place of a session."""

    app_name: str
    user_id: str
    session_id: str


class TranslateEvent(_Model):
    """A step of a translation: an event to say, an event to decode instead, or the end of the translation."""

    agui_event: Optional[BaseEvent] = None
    adk_event: Optional[Event] = None
    is_retune: bool = False
    is_replace: bool = False


class ErrorModel(_Model):
    """An error response."""

    error: str
    error_description: Union[dict[str, Any], str]
    timestamp: int = Field(default_factory=lambda: int(time.time()))
    trace_id: str = ""


class ErrorResponseModel(_Model):
    """The body of an error response."""

    detail: ErrorModel


class QueueManager:
    """A queue of events of a run."""

    def __init__(self, queue: asyncio.Queue[Any]) -> None:
        self._queue = queue

    async def put(self, event: Any) -> None:
        """Says an event in the run."""
        await self._queue.put(event)

    def drain(self) -> list[Any]:
        """The events so far."""
        found = []
        while not self._queue.empty():
            found.append(self._queue.get_nowait())
        return found


class QueueHandler:
    """The queues of a run."""

    def __init__(self) -> None:
        self._adk = QueueManager(asyncio.Queue())
        self._agui = QueueManager(asyncio.Queue())

    def get_adk_queue(self) -> QueueManager:
        """ADK events."""
        return self._adk

    def get_agui_queue(self) -> QueueManager:
        """AG-UI events."""
        return self._agui


class InputInfo(_Model):
    """The request of a run."""

    agui_content: RunAgentInput
    request: Request
    app_name: str
    user_id: str
    session_id: str
    initial_state: Optional[dict[str, Any]] = None
    event_queue: QueueHandler = Field(default_factory=QueueHandler)


async def default_session_id(agui_content: RunAgentInput, request: Request) -> str:
    """The thread of the input."""
    return str(agui_content.thread_id)


async def default_extract_initial_state(agui_content: RunAgentInput, request: Request) -> dict[str, Any]:
    """The state of the input."""
    state = agui_content.state
    return state if isinstance(state, dict) else {}


class ConfigContext(_Model):
    """Where app, user, session and state of a request are; functions may be sync or async."""

    app_name: Extractor = "default"
    user_id: Extractor
    session_id: Extractor = default_session_id
    extract_initial_state: Optional[Callable[..., Any]] = default_extract_initial_state
    convert_run_agent_input: Optional[Callable[..., Any]] = None
    session_lock_config: SessionLockConfig = SessionLockConfig()
    event_source_response_mode: bool = False
    retune_on_stream_complete: bool = False
    is_add_adk_event_in_agui_event: bool = False
    auto_remove_agui_raw_event: bool = False
    #: The version of AG-UI of the clients: `1`, or `0` for THINKING_* events.
    ag_ui_profile: Optional[str] = None


class RunnerConfig(_Model):
    """The services of the runner."""

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
        """The artifacts."""
        return self._service("artifact_service")

    def get_memory_service(self) -> Any:
        """The memory."""
        return self._service("memory_service")

    def get_credential_service(self) -> Any:
        """The credentials."""
        return self._service("credential_service")


# base_abc


class BaseADKEventHandler(ABC):
    """Filters ADK events."""

    def __init__(self, input_info: Optional[InputInfo]) -> None:
        pass

    @abstractmethod
    def process(self, event: Event) -> AsyncGenerator[Optional[Event], None]:
        """The events in its place."""


class BaseADKEventTimeoutHandler(ABC):
    """Ends a stream that takes too long."""

    def __init__(self, input_info: Optional[InputInfo]) -> None:
        pass

    @abstractmethod
    async def get_timeout(self) -> int:
        """Seconds for the whole stream."""

    @abstractmethod
    def process_timeout_fallback(self) -> AsyncGenerator[Optional[Event], None]:
        """The events after it."""


class BaseAGUIEventHandler(ABC):
    """Filters AG-UI events."""

    def __init__(self, input_info: Optional[InputInfo]) -> None:
        pass

    @abstractmethod
    def process(self, event: BaseEvent) -> AsyncGenerator[Optional[BaseEvent], None]:
        """The events in its place."""


class BaseAGUIStateSnapshotHandler(ABC):
    """Changes the state at the end of a run."""

    def __init__(self, input_info: Optional[InputInfo]) -> None:
        pass

    @abstractmethod
    async def process(self, state_snapshot: dict[str, Any]) -> Optional[dict[str, Any]]:
        """The state in its place."""


class BaseTranslateHandler(ABC):
    """Translates ADK events before the default translation."""

    def __init__(self, input_info: Optional[InputInfo]) -> None:
        pass

    @abstractmethod
    def translate(self, adk_event: Event) -> AsyncGenerator[TranslateEvent, None]:
        """The steps of the translation."""


class BaseInOutHandler(ABC):
    """Looks at the input and at all events, and may change them."""

    @abstractmethod
    async def input_record(self, input_info: InputInfo) -> None:
        """The input."""

    @abstractmethod
    async def output_record(self, agui_event: BaseEvent) -> None:
        """An event."""

    @abstractmethod
    async def output_catch_and_change(self, agui_event: BaseEvent) -> BaseEvent:
        """The event in its place."""


class SessionLockHandler(ABC):
    """A lock around runs."""

    def __init__(self, lock_config: SessionLockConfig) -> None:
        self.lock_config = lock_config

    @abstractmethod
    async def lock(self, input_info: InputInfo) -> bool:
        """True if the lock was free."""

    @abstractmethod
    async def unlock(self, input_info: InputInfo) -> None:
        """Releases it."""

    async def get_locked_message(self, input_info: InputInfo) -> RunErrorEvent:
        """The event of a run that did not get it."""
        return AGUIErrorEvent.create_is_locked_error(input_info.session_id)


class DefaultSessionLockHandler(SessionLockHandler):
    """The gateway's own lease: one run per user and thread, in all processes on its store."""

    async def lock(self, input_info: InputInfo) -> bool:
        return True

    async def unlock(self, input_info: InputInfo) -> None:
        return None


class HandlerContext(_Model):
    """The classes of handlers; one object each is made per run, of the lock one per service."""

    session_lock_handler: type[SessionLockHandler] = DefaultSessionLockHandler
    adk_event_handler: Optional[type[BaseADKEventHandler]] = None
    adk_event_timeout_handler: Optional[type[BaseADKEventTimeoutHandler]] = None
    agui_event_handler: Optional[type[BaseAGUIEventHandler]] = None
    agui_state_snapshot_handler: Optional[type[BaseAGUIStateSnapshotHandler]] = None
    translate_handler: Optional[type[BaseTranslateHandler]] = None
    in_out_record_handler: Optional[type[BaseInOutHandler]] = None


class AGUIErrorEvent:
    """The error events of the middleware."""

    @staticmethod
    def _error(code: str, message: str) -> RunErrorEvent:
        return RunErrorEvent(type=EventType.RUN_ERROR, code=code, message=message)

    @staticmethod
    def create_encoding_error_event(e: Exception) -> RunErrorEvent:
        return AGUIErrorEvent._error("ENCODING_ERROR", f"Event encoding failed: {e}")

    @staticmethod
    def create_agent_error_event(e: Exception) -> RunErrorEvent:
        return AGUIErrorEvent._error("AGENT_ERROR", f"Agent execution failed: {e}")

    @staticmethod
    def create_execution_error_event(e: Exception) -> RunErrorEvent:
        return AGUIErrorEvent._error("EXECUTION_ERROR", f"Agent execution failed: {e}")

    @staticmethod
    def create_no_tool_results_error(thread_id: str) -> RunErrorEvent:
        return AGUIErrorEvent._error("NO_TOOL_RESULTS", f"No tool results found in thread {thread_id}")

    @staticmethod
    def create_no_input_message_error(thread_id: str) -> RunErrorEvent:
        return AGUIErrorEvent._error("NO_INPUT_MESSAGE", f"No input message found in thread {thread_id}")

    @staticmethod
    def create_tool_processing_error_event(e: Exception) -> RunErrorEvent:
        return AGUIErrorEvent._error("TOOL_RESULT_PROCESSING_ERROR", f"Failed to process tool results: {e}")

    @staticmethod
    def create_is_locked_error(thread_id: str) -> RunErrorEvent:
        return AGUIErrorEvent._error("THREAD_IS_LOCKED", f"Thread {thread_id} is locked")
