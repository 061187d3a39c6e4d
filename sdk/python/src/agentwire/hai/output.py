"""The builder of the standard's sample: names, parameters, defaults and order of the members are those of the sample."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional, Union

from .frame import frame
from .outputs import Outputs


class _FrameMethod(staticmethod):  # type: ignore[type-arg]
    """A static method that knows the settings of the builder it is called on."""

    def __get__(self, instance: Any, owner: Optional[type] = None) -> Any:
        function = super().__get__(instance, owner)
        if instance is None or not instance._object_deltas:
            return function
        return lambda chat_info, object_deltas=True: function(chat_info, object_deltas=object_deltas)


class BaseChatOutput(Outputs):
    """Builds HAI events as dicts, and frames of them.

    Every event gets `default_fields`, unless it has a member of the same name. Unknown keyword arguments of a function
    are ignored, as in the standard.

    Args:
        extra_fields: Keep the unknown keyword arguments as members of the event.
        object_deltas: Frames contain deltas as objects, by the letter of the standard. The default is a string, like
            the reference server, because the reference client requires it.
        clock: Returns the time in milliseconds.
    """

    def __init__(
        self,
        *,
        extra_fields: bool = False,
        object_deltas: bool = False,
        clock: Optional[Callable[[], int]] = None,
        **default_fields: Any,
    ) -> None:
        self._default_fields = default_fields
        self._extra_fields = extra_fields
        self._object_deltas = object_deltas
        self._clock = clock

    @_FrameMethod
    def build_sse_data(chat_info: Any, object_deltas: bool = False) -> str:
        """A dict, a pydantic model or text as one frame. Text that is a frame is returned unchanged."""
        return frame(chat_info, object_deltas=object_deltas)

    def new_id(self, prefix: str = "msg") -> str:
        """An id that no other message has."""
        return f"{prefix}-{uuid.uuid4().hex}"

    def _now(self, timestamp: Optional[int]) -> int:
        if timestamp is not None:
            return timestamp
        return int(time.time() * 1000) if self._clock is None else self._clock()

    def _event(self, members: dict[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
        extra = dict(extra)
        if extra.pop("extra_fields", self._extra_fields):
            members.update({key: value for key, value in extra.items() if key not in members})
        members.update({key: value for key, value in self._default_fields.items() if key not in members})
        return members

    def _timed(self, kind: str, members: dict[str, Any], timestamp: Optional[int], extra: Mapping[str, Any]) -> dict[str, Any]:
        return self._event({"type": kind, **members, "timestamp": self._now(timestamp)}, extra)

    # Runs and steps.

    def build_run_started(self, message_id: str, role: str = "assistant", timestamp: Optional[int] = None, **kwargs: Any) -> dict[str, Any]:
        """RUN_STARTED."""
        return self._timed("RUN_STARTED", {"messageId": message_id, "role": role}, timestamp, kwargs)

    def build_run_finished(self, message_id: str, role: str = "assistant", timestamp: Optional[int] = None, **kwargs: Any) -> dict[str, Any]:
        """RUN_FINISHED."""
        return self._timed("RUN_FINISHED", {"messageId": message_id, "role": role}, timestamp, kwargs)

    def build_run_error(self, message: str, code: Optional[str] = None, timestamp: Optional[int] = None, **kwargs: Any) -> dict[str, Any]:
        """RUN_ERROR."""
        members = {"message": message} if code is None else {"message": message, "code": code}
        return self._timed("RUN_ERROR", members, timestamp, kwargs)

    def build_step_started(self, step_name: str, **kwargs: Any) -> dict[str, Any]:
        """STEP_STARTED."""
        return self._event({"type": "STEP_STARTED", "stepName": step_name}, kwargs)

    def build_step_finished(self, step_name: str, **kwargs: Any) -> dict[str, Any]:
        """STEP_FINISHED."""
        return self._event({"type": "STEP_FINISHED", "stepName": step_name}, kwargs)

    # Collaboration of agents.

    def build_agent_collaborative_message_start(
        self, from_agent: str, to_agent: str, message_id: str, timestamp: Optional[int] = None, **kwargs: Any
    ) -> dict[str, Any]:
        """AGENT_COLLABORATIVE_MESSAGE_START."""
        members = {"from": from_agent, "to": to_agent, "messageId": message_id}
        return self._timed("AGENT_COLLABORATIVE_MESSAGE_START", members, timestamp, kwargs)

    def build_agent_collaborative_message_content(
        self, task: Union[Mapping[str, Any], str], message_id: str, timestamp: Union[int, str, None] = None, **kwargs: Any
    ) -> dict[str, Any]:
        """AGENT_COLLABORATIVE_MESSAGE_CONTENT; a task has an `id` and a `name`.

        The standard's sample calls it as `("USER", "Agent", "msgId-001")`, with the parameters of the start. The third
        is then the message, and the task is that of the second agent.
        """
        if isinstance(task, str) and isinstance(timestamp, str):
            task, message_id, timestamp = {"id": timestamp, "name": message_id}, timestamp, None
        members = {"delta": {"task": task}, "messageId": message_id}
        time_of_event = timestamp if not isinstance(timestamp, str) else None
        return self._timed("AGENT_COLLABORATIVE_MESSAGE_CONTENT", members, time_of_event, kwargs)

    def build_agent_collaborative_message_end(self, message_id: str, timestamp: Optional[int] = None, **kwargs: Any) -> dict[str, Any]:
        """AGENT_COLLABORATIVE_MESSAGE_END."""
        return self._timed("AGENT_COLLABORATIVE_MESSAGE_END", {"messageId": message_id}, timestamp, kwargs)

    # State and messages.

    def build_state_delta(
        self, op: str, path: str, value: Any, from_value: str = "", timestamp: Optional[int] = None, **kwargs: Any
    ) -> dict[str, Any]:
        """STATE_DELTA with one operation."""
        delta = [{"op": op, "path": path, "value": value, "from": from_value}]
        return self._timed("STATE_DELTA", {"delta": delta}, timestamp, kwargs)

    def build_state_snapshot(self, snapshot: Any, timestamp: Optional[int] = None, **kwargs: Any) -> dict[str, Any]:
        """STATE_SNAPSHOT."""
        return self._timed("STATE_SNAPSHOT", {"snapshot": snapshot}, timestamp, kwargs)

    def build_message_snapshot(self, messages: Sequence[Any], timestamp: Optional[int] = None, **kwargs: Any) -> dict[str, Any]:
        """MESSAGE_SNAPSHOT, without developer messages, which are not for end users."""
        shown = [self._message(message) for message in messages]
        listed = [message for message in shown if message.get("role") != "developer"]
        return self._timed("MESSAGE_SNAPSHOT", {"messages": listed}, timestamp, kwargs)

    # Business data.

    def build_business_data_start(self, message_id: str, role: str = "assistant", timestamp: Optional[int] = None, **kwargs: Any) -> dict[str, Any]:
        """BUSINESS_DATA_START."""
        return self._timed("BUSINESS_DATA_START", {"messageId": message_id, "role": role}, timestamp, kwargs)

    def build_business_data_content(
        self,
        output: Mapping[str, Any],
        message_id: str,
        layout: Optional[Mapping[str, Any]] = None,
        block_id: Optional[str] = None,
        style: Optional[Mapping[str, Any]] = None,
        timestamp: Optional[int] = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """BUSINESS_DATA_CONTENT with one output, for example of `build_text_output`."""
        delta: dict[str, Any] = {"output": output}
        members = {"messageId": message_id, "delta": delta}
        event: dict[str, Any] = {"type": "BUSINESS_DATA_CONTENT", **members, "timestamp": self._now(timestamp)}
        if layout:
            delta["layout"] = layout
        if block_id:
            event["blockId"] = block_id
        if style:
            event["style"] = style
        return self._event(event, kwargs)

    def build_business_data_end(self, message_id: str, role: str = "assistant", timestamp: Optional[int] = None, **kwargs: Any) -> dict[str, Any]:
        """BUSINESS_DATA_END."""
        return self._timed("BUSINESS_DATA_END", {"messageId": message_id, "role": role}, timestamp, kwargs)

    # Tool calls.

    def build_tool_call_start(self, tool_call_id: str, tool_call_name: str, parent_message_id: str, **kwargs: Any) -> dict[str, Any]:
        """TOOL_CALL_START. The parent is the message of the call."""
        members = {"toolCallId": tool_call_id, "toolCallName": tool_call_name, "parentMessageId": parent_message_id}
        return self._event({"type": "TOOL_CALL_START", **members}, kwargs)

    def build_tool_call_args(self, tool_call_id: str, delta: Any, **kwargs: Any) -> dict[str, Any]:
        """TOOL_CALL_ARGS. A string is a part of the arguments."""
        return self._event({"type": "TOOL_CALL_ARGS", "toolCallId": tool_call_id, "delta": delta}, kwargs)

    def build_tool_call_end(self, tool_call_id: str, **kwargs: Any) -> dict[str, Any]:
        """TOOL_CALL_END."""
        return self._event({"type": "TOOL_CALL_END", "toolCallId": tool_call_id}, kwargs)

    def build_tool_call_result(self, message_id: str, tool_call_id: str, content: Any, role: str = "tool", **kwargs: Any) -> dict[str, Any]:
        """TOOL_CALL_RESULT. An object is written as JSON."""
        text = content if isinstance(content, str) else self._json(content)
        members = {"messageId": message_id, "toolCallId": tool_call_id, "content": text, "role": role}
        return self._event({"type": "TOOL_CALL_RESULT", **members}, kwargs)

    # Others.

    def build_custom(self, name: str, value: Any, timestamp: Optional[int] = None, **kwargs: Any) -> dict[str, Any]:
        """CUSTOM."""
        return self._timed("CUSTOM", {"name": name, "value": value}, timestamp, kwargs)

    def build_raw(self, event: Any, source: Optional[str] = None, timestamp: Optional[int] = None, **kwargs: Any) -> dict[str, Any]:
        """RAW."""
        members = {"event": event} if source is None else {"event": event, "source": source}
        return self._timed("RAW", members, timestamp, kwargs)
