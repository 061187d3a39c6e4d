"""Steps of a translation."""

from __future__ import annotations

from typing import Optional

from ag_ui.core import BaseEvent
from google.adk.events import Event
from pydantic import BaseModel, SerializeAsAny

__all__ = ["TranslateEvent"]


class TranslateEvent(BaseModel):
    """A step of a translation: an event to send, an ADK event to translate instead, or the end of the translation."""

    agui_event: Optional[SerializeAsAny[BaseEvent]] = None
    adk_event: Optional[Event] = None
    is_retune: bool = False
    is_replace: bool = False
