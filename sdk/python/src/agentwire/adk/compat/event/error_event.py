"""Error events."""

from ..names import AGUIErrorEvent

__all__ = ["AGUIErrorEvent"]
