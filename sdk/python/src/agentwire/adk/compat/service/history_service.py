"""The history."""

from ..services import HistoryService

__all__ = ["HistoryService"]
