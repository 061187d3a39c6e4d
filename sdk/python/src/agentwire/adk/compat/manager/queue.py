"""A queue of a run."""

from ..names import QueueManager

__all__ = ["QueueManager"]
