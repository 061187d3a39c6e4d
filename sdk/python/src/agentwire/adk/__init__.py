"""Google ADK: front-end tools for agents."""

from __future__ import annotations

try:
    import google.adk as _google_adk  # noqa: F401
except ImportError as error:
    raise ImportError('agentwire.adk needs google-adk: pip install "agentwire-gateway[adk]"') from error

from .frontend import CONTEXT_KEY, MAX_TOOLS, TOOLS_KEY, FrontendTool, FrontendTools, frontend_context

__all__ = ["CONTEXT_KEY", "MAX_TOOLS", "TOOLS_KEY", "FrontendTool", "FrontendTools", "frontend_context"]
