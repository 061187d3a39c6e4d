"""Google ADK: agents of a gateway, and front-end tools for agents.

The module is also the function: `agentwire.adk(agent)` makes an agent.
"""

from __future__ import annotations

try:
    import google.adk as _google_adk  # noqa: F401
except ImportError as error:
    raise ImportError('agentwire.adk needs google-adk: pip install "agentwire-gateway[adk]"') from error

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from .frontend import (
    CONTEXT_KEY,
    MAX_TOOLS,
    TOOLS_KEY,
    AGUIToolset,
    FrontendTool,
    FrontendTools,
    frontend_context,
)

if TYPE_CHECKING:
    from .compat import AGUIErrorEvent as AGUIErrorEvent
    from .compat import BaseADKEventHandler as BaseADKEventHandler
    from .compat import BaseADKEventTimeoutHandler as BaseADKEventTimeoutHandler
    from .compat import BaseAGUIEventHandler as BaseAGUIEventHandler
    from .compat import BaseAGUIStateSnapshotHandler as BaseAGUIStateSnapshotHandler
    from .compat import BaseInOutHandler as BaseInOutHandler
    from .compat import BaseSSEService as BaseSSEService
    from .compat import BaseTranslateHandler as BaseTranslateHandler
    from .compat import ConfigContext as ConfigContext
    from .compat import DefaultSessionLockHandler as DefaultSessionLockHandler
    from .compat import ErrorModel as ErrorModel
    from .compat import ErrorResponseModel as ErrorResponseModel
    from .compat import FrontendToolset as FrontendToolset
    from .compat import HandlerContext as HandlerContext
    from .compat import HistoryConfig as HistoryConfig
    from .compat import HistoryPathConfig as HistoryPathConfig
    from .compat import HistoryService as HistoryService
    from .compat import InputInfo as InputInfo
    from .compat import PathConfig as PathConfig
    from .compat import RunnerConfig as RunnerConfig
    from .compat import SessionLockConfig as SessionLockConfig
    from .compat import SessionLockHandler as SessionLockHandler
    from .compat import SessionParameter as SessionParameter
    from .compat import ShutdownHandler as ShutdownHandler
    from .compat import SSEService as SSEService
    from .compat import StateConfig as StateConfig
    from .compat import StatePathConfig as StatePathConfig
    from .compat import StateService as StateService
    from .compat import TranslateEvent as TranslateEvent
    from .compat import register_agui_endpoint as register_agui_endpoint
    from .compat import register_agui_history_endpoint as register_agui_history_endpoint
    from .compat import register_state_endpoint as register_state_endpoint
    from .endpoint import ADKAgent as ADKAgent
    from .endpoint import AgentResolver as AgentResolver
    from .endpoint import add_adk_fastapi_endpoint as add_adk_fastapi_endpoint
    from .endpoint import create_adk_app as create_adk_app
    from .endpoint import make_extract_headers as make_extract_headers
    from .endpoint import resolve_agent_from_message_history as resolve_agent_from_message_history
    from .local import adk_agent as adk_agent

__all__ = [
    "CONTEXT_KEY",
    "MAX_TOOLS",
    "TOOLS_KEY",
    "AGUIToolset",
    "FrontendTool",
    "FrontendTools",
    "adk_agent",
    "frontend_context",
]


#: The names of adk-agui-middleware, which need FastAPI and the package of AG-UI.
_COMPAT = frozenset(
    "AGUIErrorEvent BaseADKEventHandler BaseADKEventTimeoutHandler BaseAGUIEventHandler BaseAGUIStateSnapshotHandler "
    "BaseInOutHandler BaseSSEService BaseTranslateHandler ConfigContext DefaultSessionLockHandler ErrorModel "
    "ErrorResponseModel FrontendToolset HandlerContext HistoryConfig HistoryPathConfig HistoryService InputInfo "
    "PathConfig RunnerConfig SSEService SessionLockConfig SessionLockHandler SessionParameter ShutdownHandler "
    "StateConfig StatePathConfig StateService TranslateEvent register_agui_endpoint register_agui_history_endpoint "
    "register_state_endpoint".split()
)
#: The names of ag_ui_adk, which need them too.
_ENDPOINT = frozenset(
    "ADKAgent AgentResolver add_adk_fastapi_endpoint create_adk_app make_extract_headers "
    "resolve_agent_from_message_history".split()
)


def __getattr__(name: str) -> Any:
    # Loaded when used: front-end tools work in an agent's process without the compiled module.
    if name == "adk_agent":
        from .local import adk_agent

        return adk_agent
    if name in _ENDPOINT:
        from . import endpoint

        return getattr(endpoint, name)
    if name in _COMPAT:
        from . import compat

        return getattr(compat, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class _Module(ModuleType):
    """The module as a function."""

    def __call__(self, *arguments: Any, **settings: Any) -> Any:
        from .local import adk_agent

        return adk_agent(*arguments, **settings)


sys.modules[__name__].__class__ = _Module
