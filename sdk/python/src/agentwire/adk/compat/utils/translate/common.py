"""Steps of a translation."""

from __future__ import annotations

from google.adk.events import Event

from ...data_model.event import TranslateEvent

__all__ = ["create_translate_replace_adk_event", "create_translate_retune_event"]


def create_translate_retune_event() -> TranslateEvent:
    """The end of the translation of an event."""
    return TranslateEvent(is_retune=True)


def create_translate_replace_adk_event(event: Event) -> TranslateEvent:
    """Another event in its place."""
    return TranslateEvent(adk_event=event, is_replace=True)
