"""The request of a run."""

from ..names import InputInfo, SessionLockConfig

__all__ = ["InputInfo", "SessionLockConfig"]
