"""The default extractors of `ConfigContext`."""

from __future__ import annotations

from typing import Any

from ag_ui.core import RunAgentInput
from starlette.requests import Request

__all__ = ["default_extract_initial_state", "default_session_id"]


async def default_session_id(agui_content: RunAgentInput, request: Request) -> str:
    """The thread of the input."""
    return str(agui_content.thread_id)


async def default_extract_initial_state(agui_content: RunAgentInput, request: Request) -> dict[str, Any]:
    """The state of the input."""
    return agui_content.state or {}
