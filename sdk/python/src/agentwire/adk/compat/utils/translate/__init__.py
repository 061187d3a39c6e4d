"""Makers of events, for translate handlers."""

from .function_calls import FunctionCallEventUtil
from .message import MessageEventUtil
from .state import StateEventUtil
from .thinking import ThinkingEventUtil, ThinkingMessageEventUtil

__all__ = [
    "FunctionCallEventUtil",
    "MessageEventUtil",
    "StateEventUtil",
    "ThinkingEventUtil",
    "ThinkingMessageEventUtil",
]
