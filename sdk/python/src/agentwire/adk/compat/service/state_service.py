"""`StateService`: the state of ADK's sessions."""

from __future__ import annotations

from typing import Any

from ag_ui.core import EventType, StateSnapshotEvent
from google.adk.events import Event, EventActions
from starlette.requests import Request

from ....agents import maybe_await
from ....converters import apply_patch
from ....errors import AgentwireError
from ..data_model.config import StateConfig
from .sessions import SessionsOfRequests, refused

__all__ = ["StateService"]

_ABSENT = object()


class StateService(SessionsOfRequests):
    """The state of a session."""

    def __init__(self, state_config: StateConfig) -> None:
        super().__init__(state_config)
        self.state_config = state_config

    async def get_state_snapshot(self, request: Request) -> StateSnapshotEvent:
        """The state as an event."""
        state = dict((await self.session(request)).state)
        if self.state_config.get_state is not None:
            state = await maybe_await(self.state_config.get_state(state))
        return StateSnapshotEvent(type=EventType.STATE_SNAPSHOT, snapshot=state)

    async def patch_state(self, request: Request, state_patch: list[dict[str, Any]]) -> dict[str, str]:
        """Applies a JSON Patch, all or nothing."""
        session = await self.session(request)
        before = dict(session.state)
        try:
            after = apply_patch(before, state_patch)
        except AgentwireError as error:
            raise refused(409, "PATCH_FAILED", str(error)) from error
        if not isinstance(after, dict):
            raise refused(409, "PATCH_FAILED", "the state of a session is an object")
        removed = [key for key in before if key not in after]
        if removed:
            raise refused(409, "PATCH_FAILED", f"ADK cannot remove the key `{removed[0]}`")
        delta = {key: value for key, value in after.items() if before.get(key, _ABSENT) != value}
        if delta:
            actions = EventActions(state_delta=delta)
            event = Event(invocation_id=f"patch-{session.id}", author="system", actions=actions)
            await self.config.session_service.append_event(session=session, event=event)
        return {"status": "updated"}
