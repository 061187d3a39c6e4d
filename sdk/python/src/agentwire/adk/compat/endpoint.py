"""The routes."""

from .sse_service import register_agui_endpoint
from .services import register_agui_history_endpoint, register_state_endpoint

__all__ = ["register_agui_endpoint", "register_agui_history_endpoint", "register_state_endpoint"]
