"""agentwire for Python: translate the streams of agents between formats, in process.

Importing this package imports nothing but the standard library. Every name is loaded when it is used: `AGUIAdapter`,
`EventEmitter` and `record` are for LangGraph, `agentwire.adk` is for Google ADK, `agentwire.hai` is a HAI back end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._native import __version__ as __version__
    from .adk.local import adk_agent as adk_agent
    from .agents import Agent as Agent
    from .agents import AgentLike as AgentLike
    from .agents import RunRequest as RunRequest
    from .agents import agent as agent
    from .agents import upstream as upstream
    from .converters import Folded as Folded
    from .converters import apply_patch as apply_patch
    from .converters import diff as diff
    from .converters import fold as fold
    from .converters import to_adk_content as to_adk_content
    from .emitter import MARKER as MARKER
    from .emitter import EventEmitter as EventEmitter
    from .errors import AgentwireError as AgentwireError
    from .errors import AGUIAdapterError as AGUIAdapterError
    from .errors import ConfigError as ConfigError
    from .errors import EventTranslationError as EventTranslationError
    from .errors import Failure as Failure
    from .errors import GatewayClosed as GatewayClosed
    from .errors import ReaderCut as ReaderCut
    from .errors import Refused as Refused
    from .errors import Stopped as Stopped
    from .errors import StoreError as StoreError
    from .errors import ToolCallTrackingError as ToolCallTrackingError
    from .errors import UnknownEventTypeError as UnknownEventTypeError
    from .events import Event as Event
    from .events import EventType as EventType
    from .gateway import Gateway as Gateway
    from .gateway import RunHandle as RunHandle
    from .hooks import Hooks as Hooks
    from .hooks import HooksFactory as HooksFactory
    from .hooks import RunContext as RunContext
    from .hooks import RunInput as RunInput
    from .hooks import SessionLock as SessionLock
    from .hooks import Translation as Translation
    from .identity import Caller as Caller
    from .identity import IdentityFn as IdentityFn
    from .identity import RequestInfo as RequestInfo
    from .langgraph import AGUIAdapter as AGUIAdapter
    from .langgraph import LangGraphEventType as LangGraphEventType
    from .langgraph import Task as Task
    from .langgraph_local import langgraph_agent as langgraph_agent
    from .langgraph_input import to_command as to_command
    from .langgraph_input import to_graph_input as to_graph_input
    from .langgraph_input import to_langchain as to_langchain
    from .recorder import record as record
    from .recorder import to_line as to_line
    from .translator import FormatInfo as FormatInfo
    from .translator import Input as Input
    from .translator import Loss as Loss
    from .translator import OptionInfo as OptionInfo
    from .translator import ProfileInfo as ProfileInfo
    from .translator import Report as Report
    from .translator import Tolerated as Tolerated
    from .translator import Translator as Translator
    from .translator import atranslate as atranslate
    from .translator import formats as formats
    from .translator import translate as translate

    # Last: for pyright, `from .langgraph import` above makes the name a module.
    from ._modules import adk as adk
    from ._modules import langgraph as langgraph

_MODULES = {
    "_native": ["__version__"],
    "adk.local": ["adk_agent"],
    "agents": ["Agent", "AgentLike", "RunRequest", "agent", "upstream"],
    "converters": ["Folded", "apply_patch", "diff", "fold", "to_adk_content"],
    "emitter": ["MARKER", "EventEmitter"],
    "errors": [
        "AGUIAdapterError",
        "AgentwireError",
        "ConfigError",
        "EventTranslationError",
        "Failure",
        "GatewayClosed",
        "ReaderCut",
        "Refused",
        "Stopped",
        "StoreError",
        "ToolCallTrackingError",
        "UnknownEventTypeError",
    ],
    "events": ["Event", "EventType"],
    "gateway": ["Gateway", "RunHandle"],
    "hooks": ["Hooks", "HooksFactory", "RunContext", "RunInput", "SessionLock", "Translation"],
    "identity": ["Caller", "IdentityFn", "RequestInfo"],
    "langgraph": ["AGUIAdapter", "LangGraphEventType", "Task"],
    "langgraph_local": ["langgraph_agent"],
    "langgraph_input": ["to_command", "to_graph_input", "to_langchain"],
    "recorder": ["record", "to_line"],
    "translator": [
        "FormatInfo",
        "Input",
        "Loss",
        "OptionInfo",
        "ProfileInfo",
        "Report",
        "Tolerated",
        "Translator",
        "atranslate",
        "formats",
        "translate",
    ],
}
#: Modules that are functions too: `agentwire.langgraph(graph)`.
_CALLABLE = ("adk", "langgraph")
_HOME = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [  # noqa: F822
    "AGUIAdapter",
    "AGUIAdapterError",
    "Agent",
    "AgentLike",
    "AgentwireError",
    "Caller",
    "ConfigError",
    "Event",
    "EventEmitter",
    "EventTranslationError",
    "EventType",
    "Failure",
    "Folded",
    "FormatInfo",
    "Gateway",
    "GatewayClosed",
    "Hooks",
    "HooksFactory",
    "IdentityFn",
    "Input",
    "LangGraphEventType",
    "Loss",
    "MARKER",
    "OptionInfo",
    "ProfileInfo",
    "ReaderCut",
    "Refused",
    "Report",
    "RequestInfo",
    "RunContext",
    "RunHandle",
    "RunInput",
    "RunRequest",
    "SessionLock",
    "Stopped",
    "StoreError",
    "Task",
    "Tolerated",
    "ToolCallTrackingError",
    "Translation",
    "Translator",
    "UnknownEventTypeError",
    "adk",
    "adk_agent",
    "agent",
    "apply_patch",
    "atranslate",
    "diff",
    "fold",
    "formats",
    "langgraph",
    "langgraph_agent",
    "record",
    "to_adk_content",
    "to_command",
    "to_graph_input",
    "to_langchain",
    "to_line",
    "translate",
    "upstream",
]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _CALLABLE:
        return import_module(f".{name}", __name__)
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_HOME[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
