"""The names of adk-agui-middleware, under its own paths.

`sed s/adk_agui_middleware/agentwire.adk.compat/` is a whole migration of the main route; docs/migrate has the rest.
"""

from .names import (
    AGUIErrorEvent,
    BaseADKEventHandler,
    BaseADKEventTimeoutHandler,
    BaseAGUIEventHandler,
    BaseAGUIStateSnapshotHandler,
    BaseInOutHandler,
    BaseTranslateHandler,
    ConfigContext,
    DefaultSessionLockHandler,
    ErrorModel,
    ErrorResponseModel,
    HandlerContext,
    HistoryPathConfig,
    InputInfo,
    PathConfig,
    RunnerConfig,
    SessionLockConfig,
    SessionLockHandler,
    SessionParameter,
    StatePathConfig,
    TranslateEvent,
)
from .services import (
    HistoryConfig,
    HistoryService,
    StateConfig,
    StateService,
    register_agui_history_endpoint,
    register_state_endpoint,
)
from .sse_service import SSEService, register_agui_endpoint

__all__ = [
    "AGUIErrorEvent",
    "BaseADKEventHandler",
    "BaseADKEventTimeoutHandler",
    "BaseAGUIEventHandler",
    "BaseAGUIStateSnapshotHandler",
    "BaseInOutHandler",
    "BaseTranslateHandler",
    "ConfigContext",
    "DefaultSessionLockHandler",
    "ErrorModel",
    "ErrorResponseModel",
    "HandlerContext",
    "HistoryConfig",
    "HistoryPathConfig",
    "HistoryService",
    "InputInfo",
    "PathConfig",
    "RunnerConfig",
    "SSEService",
    "SessionLockConfig",
    "SessionLockHandler",
    "SessionParameter",
    "StateConfig",
    "StatePathConfig",
    "StateService",
    "TranslateEvent",
    "register_agui_endpoint",
    "register_agui_history_endpoint",
    "register_state_endpoint",
]
