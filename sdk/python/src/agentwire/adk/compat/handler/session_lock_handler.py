"""The default lock."""

from ..names import DefaultSessionLockHandler

__all__ = ["DefaultSessionLockHandler"]
