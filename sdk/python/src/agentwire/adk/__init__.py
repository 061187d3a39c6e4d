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

from .frontend import CONTEXT_KEY, MAX_TOOLS, TOOLS_KEY, FrontendTool, FrontendTools, frontend_context

if TYPE_CHECKING:
    from .local import adk_agent as adk_agent

__all__ = [
    "CONTEXT_KEY",
    "MAX_TOOLS",
    "TOOLS_KEY",
    "FrontendTool",
    "FrontendTools",
    "adk_agent",
    "frontend_context",
]


#: The names of adk-agui-middleware, which need FastAPI and the package of AG-UI.
_COMPAT = frozenset(
    "AGUIErrorEvent BaseADKEventHandler BaseADKEventTimeoutHandler BaseAGUIEventHandler BaseAGUIStateSnapshotHandler "
    "BaseInOutHandler BaseTranslateHandler ConfigContext DefaultSessionLockHandler ErrorModel ErrorResponseModel "
    "HandlerContext HistoryConfig HistoryPathConfig HistoryService InputInfo PathConfig RunnerConfig SSEService "
    "SessionLockConfig SessionLockHandler SessionParameter StateConfig StatePathConfig StateService TranslateEvent "
    "register_agui_endpoint register_agui_history_endpoint register_state_endpoint".split()
)


def __getattr__(name: str) -> Any:
    # Loaded when used: front-end tools work in an agent's process without the compiled module.
    if name == "adk_agent":
        from .local import adk_agent

        return adk_agent
    if name not in _COMPAT:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import compat

    return getattr(compat, name)


class _Module(ModuleType):
    """The module as a function."""

    def __call__(self, *arguments: Any, **settings: Any) -> Any:
        from .local import adk_agent

        return adk_agent(*arguments, **settings)


sys.modules[__name__].__class__ = _Module
