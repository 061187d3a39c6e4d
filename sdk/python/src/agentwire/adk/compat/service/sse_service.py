"""The main service."""

from ..sse_service import SSEService

__all__ = ["SSEService"]
