"""Steps of a translation."""

from ..names import TranslateEvent

__all__ = ["TranslateEvent"]
