"""Messages of the history."""

from __future__ import annotations

from typing import Annotated, Literal, Union

from ag_ui.core.types import (
    AssistantMessage,
    BaseMessage,
    DeveloperMessage,
    SystemMessage,
    ToolMessage,
    UserMessage,
)
from pydantic import Field

__all__ = ["Message", "ThinkingMessage"]


class ThinkingMessage(BaseMessage):
    """A thought of the model. The history of agentwire has `reasoning` messages instead."""

    role: Literal["thinking"] = "thinking"  # pyright: ignore[reportIncompatibleVariableOverride]
    content: str


Message = Annotated[
    Union[ThinkingMessage, DeveloperMessage, SystemMessage, AssistantMessage, UserMessage, ToolMessage],
    Field(discriminator="role"),
]
