"""Extractors and handlers of a service."""

from ..names import ConfigContext, HandlerContext

__all__ = ["ConfigContext", "HandlerContext"]
