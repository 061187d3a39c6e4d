"""The request of HAI as pydantic models. Unknown members are kept."""

from __future__ import annotations

import json
import uuid
from typing import Any, Optional, Union

try:
    from pydantic import BaseModel, ConfigDict, Field
except ImportError as error:
    raise ImportError("the request models of agentwire.hai need pydantic: pip install pydantic") from error


class HAIMessage(BaseModel):
    """A message. User interfaces also send `contents` (outputs) in place of `content`."""

    model_config = ConfigDict(extra="allow")

    id: str = Field(default_factory=lambda: f"msg-{uuid.uuid4().hex}")
    role: str
    content: Union[str, list[Any], dict[str, Any], None] = None
    contents: Optional[list[Any]] = None
    name: Optional[str] = None
    toolCallId: Optional[str] = None
    toolCalls: Optional[list[dict[str, Any]]] = None
    timestamp: Union[int, float, str, None] = None

    def text(self) -> str:
        """The text of the message: of its content, of the text parts, or of the text outputs."""
        return _text(self.content if self.content not in (None, "") else self.contents)


class HAIAgentRequest(BaseModel):
    """A request. A client that sends no ids gets new ones."""

    model_config = ConfigDict(extra="allow")

    threadId: str = Field(default_factory=lambda: f"thread-{uuid.uuid4().hex}")
    runId: str = Field(default_factory=lambda: f"run-{uuid.uuid4().hex}")
    messages: list[HAIMessage] = Field(default_factory=list)
    context: list[Any] = Field(default_factory=list)
    tools: list[dict[str, Any]] = Field(default_factory=list)
    forwardedProps: dict[str, Any] = Field(default_factory=dict)
    state: Any = None
    resume: Any = None

    def user_text(self) -> str:
        """The text of the last user message; empty if there is none."""
        said = (message.text() for message in reversed(self.messages) if message.role == "user")
        return next(said, "")


def _text(content: Any) -> str:
    if isinstance(content, str):
        return _joined_documents(content)
    if isinstance(content, dict):
        output = content.get("output", content)
        if isinstance(output, dict) and output.get("type") == "text":
            return str(output.get("content", output.get("text", "")))
        return ""
    if isinstance(content, list):
        return "".join(_text(part) for part in content)
    return ""


def _joined_documents(content: str) -> str:
    """Text, or the text of joined documents `{"output":…}{"output":…}`."""
    if not content.startswith('{"output"'):
        return content
    decoder, at, found = json.JSONDecoder(), 0, []
    try:
        while at < len(content):
            document, at = decoder.raw_decode(content, at)
            found.append(_text(document))
    except ValueError:
        return content
    return "".join(found)
