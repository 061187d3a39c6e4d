"""Helpers for Python agents whose events are read by agentwire.

`EventEmitter` and `record` are for LangGraph; `agentwire.adk` is for Google ADK. Importing this package imports neither framework.
"""

from .emitter import MARKER, EventEmitter
from .recorder import record, to_line

__all__ = ["MARKER", "EventEmitter", "record", "to_line"]
