"""The place of a session."""

from ..names import SessionParameter

__all__ = ["SessionParameter"]
