"""Tool calls as AG-UI events."""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator
from typing import Any, Optional, Union

from ag_ui.core import (
    BaseEvent,
    EventType,
    ToolCallArgsEvent,
    ToolCallEndEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
)
from google.adk.events import Event
from google.genai.types import FunctionCall

from ..... import _native

__all__ = ["FunctionCallEventUtil"]


class FunctionCallEventUtil:
    """Makes the events of tool calls."""

    @staticmethod
    def create_function_result_event(
        tool_call_id: str, content: Optional[dict[str, Any]], adk_event: Optional[Event] = None
    ) -> ToolCallResultEvent:
        """The result of a call."""
        return ToolCallResultEvent(
            type=EventType.TOOL_CALL_RESULT,
            message_id=str(uuid.uuid4()),
            tool_call_id=tool_call_id,
            content=_native.to_json(content) if content else "",
            raw_event=adk_event,
        )

    @staticmethod
    async def generate_function_call_event(
        tool_call_id: str,
        tool_call_name: str,
        tool_call_args: Union[dict[str, Any], str, None],
        adk_event: Optional[Event] = None,
    ) -> AsyncGenerator[BaseEvent, None]:
        """A call: its start, its arguments if there are any, its end."""
        yield ToolCallStartEvent(
            type=EventType.TOOL_CALL_START,
            tool_call_id=tool_call_id,
            tool_call_name=tool_call_name,
            raw_event=adk_event,
        )
        if tool_call_args:
            text = tool_call_args if isinstance(tool_call_args, str) else _native.to_json(tool_call_args)
            yield ToolCallArgsEvent(
                type=EventType.TOOL_CALL_ARGS, tool_call_id=tool_call_id, delta=text, raw_event=adk_event
            )
        yield ToolCallEndEvent(type=EventType.TOOL_CALL_END, tool_call_id=tool_call_id, raw_event=adk_event)

    async def generate_function_calls_event(
        self, function_calls: list[FunctionCall], adk_event: Optional[Event] = None
    ) -> AsyncGenerator[BaseEvent, None]:
        """Several calls; those without a name are left out."""
        for call in function_calls:
            if call.name:
                id = call.id or str(uuid.uuid4())
                async for event in self.generate_function_call_event(id, call.name, call.args, adk_event):
                    yield event
