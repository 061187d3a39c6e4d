"""The modules that are functions too, as type checkers see them: `agentwire.adk(agent)` and `agentwire.adk.ADKAgent`.

A type checker cannot call a module. For it, `agentwire.adk` and `agentwire.langgraph` are classes of agents with the names
of the modules. Nothing imports this file at run time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Optional

from . import langgraph_endpoint as _langgraph_endpoint
from . import langgraph_local as _langgraph_local
from .adk import compat as _compat
from .adk import endpoint as _endpoint
from .adk import frontend as _frontend
from .adk import local as _local
from .agents import Agent


class adk(Agent):
    from .adk.compat import AGUIErrorEvent as AGUIErrorEvent
    from .adk.compat import BaseADKEventHandler as BaseADKEventHandler
    from .adk.compat import BaseADKEventTimeoutHandler as BaseADKEventTimeoutHandler
    from .adk.compat import BaseAGUIEventHandler as BaseAGUIEventHandler
    from .adk.compat import BaseAGUIStateSnapshotHandler as BaseAGUIStateSnapshotHandler
    from .adk.compat import BaseInOutHandler as BaseInOutHandler
    from .adk.compat import BaseSSEService as BaseSSEService
    from .adk.compat import BaseTranslateHandler as BaseTranslateHandler
    from .adk.compat import ConfigContext as ConfigContext
    from .adk.compat import DefaultSessionLockHandler as DefaultSessionLockHandler
    from .adk.compat import ErrorModel as ErrorModel
    from .adk.compat import ErrorResponseModel as ErrorResponseModel
    from .adk.compat import FrontendToolset as FrontendToolset
    from .adk.compat import HandlerContext as HandlerContext
    from .adk.compat import HistoryConfig as HistoryConfig
    from .adk.compat import HistoryPathConfig as HistoryPathConfig
    from .adk.compat import HistoryService as HistoryService
    from .adk.compat import InputInfo as InputInfo
    from .adk.compat import PathConfig as PathConfig
    from .adk.compat import RunnerConfig as RunnerConfig
    from .adk.compat import SessionLockConfig as SessionLockConfig
    from .adk.compat import SessionLockHandler as SessionLockHandler
    from .adk.compat import SessionParameter as SessionParameter
    from .adk.compat import ShutdownHandler as ShutdownHandler
    from .adk.compat import SSEService as SSEService
    from .adk.compat import StateConfig as StateConfig
    from .adk.compat import StatePathConfig as StatePathConfig
    from .adk.compat import StateService as StateService
    from .adk.compat import TranslateEvent as TranslateEvent
    from .adk.endpoint import ADKAgent as ADKAgent
    from .adk.frontend import AGUIToolset as AGUIToolset
    from .adk.frontend import FrontendTool as FrontendTool
    from .adk.frontend import FrontendTools as FrontendTools

    AgentResolver = _endpoint.AgentResolver
    CONTEXT_KEY = _frontend.CONTEXT_KEY
    MAX_TOOLS = _frontend.MAX_TOOLS
    TOOLS_KEY = _frontend.TOOLS_KEY
    add_adk_fastapi_endpoint = staticmethod(_endpoint.add_adk_fastapi_endpoint)
    adk_agent = staticmethod(_local.adk_agent)
    create_adk_app = staticmethod(_endpoint.create_adk_app)
    frontend_context = staticmethod(_frontend.frontend_context)
    make_extract_headers = staticmethod(_endpoint.make_extract_headers)
    register_agui_endpoint = staticmethod(_compat.register_agui_endpoint)
    register_agui_history_endpoint = staticmethod(_compat.register_agui_history_endpoint)
    register_state_endpoint = staticmethod(_compat.register_state_endpoint)
    resolve_agent_from_message_history = staticmethod(_endpoint.resolve_agent_from_message_history)

    def __init__(
        self,
        agent: _local.AgentOrFactory,
        *,
        app_name: Optional[str] = None,
        session_service: Any = None,
        artifact_service: Any = None,
        memory_service: Any = None,
        credential_service: Any = None,
        plugins: Sequence[Any] = (),
        run_config: Any = None,
        use_in_memory_services: bool = True,
        options: Optional[Mapping[str, str]] = None,
        **settings: Any,
    ) -> None: ...


class langgraph(Agent):
    from .langgraph import AGUIAdapter as AGUIAdapter
    from .langgraph import LangGraphAgent as LangGraphAgent
    from .langgraph import LangGraphEventType as LangGraphEventType
    from .langgraph import Task as Task

    add_langgraph_fastapi_endpoint = staticmethod(_langgraph_endpoint.add_langgraph_fastapi_endpoint)
    langgraph_agent = staticmethod(_langgraph_local.langgraph_agent)

    def __init__(
        self,
        graph: _langgraph_local.GraphOrFactory,
        *,
        config: Any = None,
        context: Any = None,
        options: Optional[Mapping[str, str]] = None,
        state_keys: tuple[str, ...] = (),
        **settings: Any,
    ) -> None: ...
