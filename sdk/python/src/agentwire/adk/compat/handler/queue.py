"""The queues of a run."""

from ..names import QueueHandler

__all__ = ["QueueHandler"]
