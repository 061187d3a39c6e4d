"""Extractors and handlers of a service."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Optional, Union

from pydantic import BaseModel, ConfigDict

from ..base_abc.handler import (
    BaseADKEventHandler,
    BaseADKEventTimeoutHandler,
    BaseAGUIEventHandler,
    BaseAGUIStateSnapshotHandler,
    BaseInOutHandler,
    BaseTranslateHandler,
    SessionLockHandler,
)
from ..handler.session_lock_handler import DefaultSessionLockHandler
from ..tools.default_config_context import default_extract_initial_state, default_session_id
from .common import SessionLockConfig

__all__ = ["ConfigContext", "HandlerContext"]

#: A value, or a function of the input and the request, sync or async.
Extractor = Union[str, Callable[..., Any]]


class HandlerContext(BaseModel):
    """The classes of handlers. One object each is made per request, of the lock one per service."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    session_lock_handler: type[SessionLockHandler] = DefaultSessionLockHandler
    adk_event_handler: Optional[type[BaseADKEventHandler]] = None
    adk_event_timeout_handler: Optional[type[BaseADKEventTimeoutHandler]] = None
    agui_event_handler: Optional[type[BaseAGUIEventHandler]] = None
    agui_state_snapshot_handler: Optional[type[BaseAGUIStateSnapshotHandler]] = None
    translate_handler: Optional[type[BaseTranslateHandler]] = None
    in_out_record_handler: Optional[type[BaseInOutHandler]] = None


class ConfigContext(BaseModel):
    """App, user, session and state of a request, and the form of the stream."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    app_name: Extractor = "default"
    user_id: Extractor
    session_id: Extractor = default_session_id
    extract_initial_state: Optional[Callable[..., Any]] = default_extract_initial_state
    #: A function of the input and the calls that wait for a result (id and name), which returns the input to use.
    convert_run_agent_input: Optional[Callable[..., Any]] = None
    session_lock_config: SessionLockConfig = SessionLockConfig()
    #: `event:` lines in the stream, with the type also in `data`.
    event_source_response_mode: bool = False
    #: The whole text of a message again behind its pieces.
    retune_on_stream_complete: bool = False
    #: The ADK event as `rawEvent` of the first event that it became.
    is_add_adk_event_in_agui_event: bool = False
    #: No `rawEvent`.
    auto_remove_agui_raw_event: bool = False
    #: The version of AG-UI of the clients: `1`, or `0` with THINKING_* events. By the request if absent.
    ag_ui_profile: Optional[Literal["1", "0", "0.0.5x", "chunks", "copilotkit", "draft"]] = None
    #: The text of an exception in RUN_ERROR; it is in the log only if not.
    show_errors: bool = False
