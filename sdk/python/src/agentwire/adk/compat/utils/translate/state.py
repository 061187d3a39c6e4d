"""The state as AG-UI events."""

from __future__ import annotations

from typing import Any, Optional

from ag_ui.core import EventType, StateDeltaEvent, StateSnapshotEvent
from google.adk.events import Event

__all__ = ["StateEventUtil"]


class StateEventUtil:
    """Makes the events of the state."""

    @staticmethod
    def create_state_delta_event_with_json_patch(
        delta: list[dict[str, Any]], adk_event: Optional[Event] = None
    ) -> StateDeltaEvent:
        """A change of the state as JSON Patch."""
        changes: Any = delta
        return StateDeltaEvent(type=EventType.STATE_DELTA, delta=changes, raw_event=adk_event)

    @staticmethod
    def create_state_snapshot_event(
        state_snapshot: dict[str, Any], adk_event: Optional[Event] = None
    ) -> StateSnapshotEvent:
        """The whole state."""
        return StateSnapshotEvent(type=EventType.STATE_SNAPSHOT, snapshot=state_snapshot, raw_event=adk_event)
