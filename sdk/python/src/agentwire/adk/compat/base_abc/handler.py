"""The handlers."""

from ..names import (
    BaseADKEventHandler,
    BaseADKEventTimeoutHandler,
    BaseAGUIEventHandler,
    BaseAGUIStateSnapshotHandler,
    BaseInOutHandler,
    BaseTranslateHandler,
    SessionLockHandler,
)

__all__ = [
    "BaseADKEventHandler",
    "BaseADKEventTimeoutHandler",
    "BaseAGUIEventHandler",
    "BaseAGUIStateSnapshotHandler",
    "BaseInOutHandler",
    "BaseTranslateHandler",
    "SessionLockHandler",
]
