"""The names of adk-agui-middleware, under its own paths: `sed s/adk_agui_middleware/agentwire.adk.compat/`."""

try:
    import ag_ui.core as _ag_ui  # noqa: F401
except ImportError as error:
    raise ImportError('agentwire.adk.compat needs ag-ui-protocol: pip install "agentwire-gateway[adk]"') from error

from .base_abc.handler import (
    BaseADKEventHandler,
    BaseADKEventTimeoutHandler,
    BaseAGUIEventHandler,
    BaseAGUIStateSnapshotHandler,
    BaseInOutHandler,
    BaseTranslateHandler,
    SessionLockHandler,
)
from .base_abc.sse_service import BaseSSEService
from .data_model.common import InputInfo, SessionLockConfig
from .data_model.config import (
    HistoryConfig,
    HistoryPathConfig,
    PathConfig,
    RunnerConfig,
    StateConfig,
    StatePathConfig,
)
from .data_model.context import ConfigContext, HandlerContext
from .data_model.error import ErrorModel, ErrorResponseModel
from .data_model.event import TranslateEvent
from .data_model.session import SessionParameter
from .endpoint import register_agui_endpoint, register_agui_history_endpoint, register_state_endpoint
from .event.error_event import AGUIErrorEvent
from .handler.session_lock_handler import DefaultSessionLockHandler
from .service.history_service import HistoryService
from .service.sse_service import SSEService
from .service.state_service import StateService
from .tools.frontend_tool import FrontendToolset
from .tools.shutdown import ShutdownHandler

__all__ = [
    "AGUIErrorEvent",
    "BaseADKEventHandler",
    "BaseADKEventTimeoutHandler",
    "BaseAGUIEventHandler",
    "BaseAGUIStateSnapshotHandler",
    "BaseInOutHandler",
    "BaseSSEService",
    "BaseTranslateHandler",
    "ConfigContext",
    "DefaultSessionLockHandler",
    "ErrorModel",
    "ErrorResponseModel",
    "FrontendToolset",
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
    "ShutdownHandler",
    "StateConfig",
    "StatePathConfig",
    "StateService",
    "TranslateEvent",
    "register_agui_endpoint",
    "register_agui_history_endpoint",
    "register_state_endpoint",
]
