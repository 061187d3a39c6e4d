"""The state."""

from ..services import StateService

__all__ = ["StateService"]
