"""The calls of a session that wait for a result: `state["pending_tool_calls"]`, id and name, as in adk-agui-middleware."""

from __future__ import annotations

import json
from typing import Any, Optional

from ag_ui.core import RunErrorEvent
from google.adk.events import Event, EventActions

from .data_model.common import InputInfo
from .event.error_event import AGUIErrorEvent

__all__ = ["PENDING", "REQUEST", "answered", "pending_calls", "write_pending"]

#: The key of the session's state.
PENDING = "pending_tool_calls"
#: The prefix of ADK's own requests to a person.
REQUEST = "adk_request_"


async def pending_calls(sessions: Any, info: InputInfo) -> dict[str, str]:
    """The calls that wait."""
    session = await sessions.get_session(app_name=info.app_name, user_id=info.user_id, session_id=info.session_id)
    found = session.state.get(PENDING) if session is not None else None
    return {str(id): str(name) for id, name in found.items()} if isinstance(found, dict) else {}


async def write_pending(sessions: Any, app: str, user: str, session_id: str, pending: dict[str, str]) -> None:
    """Stores the calls that wait, if they are not the stored ones."""
    session = await sessions.get_session(app_name=app, user_id=user, session_id=session_id)
    if session is None or (session.state.get(PENDING) or {}) == pending:
        return
    event = Event(invocation_id="pending", author="system", actions=EventActions(state_delta={PENDING: pending}))
    await sessions.append_event(session, event)


def answered(body: dict[str, Any], pending: dict[str, str], session_id: str) -> Optional[RunErrorEvent]:
    """Completes an input with the result of a call; the error of one that has nothing to say."""
    messages = body.get("messages") or []
    last = messages[-1] if messages else {}
    if last.get("role") != "tool":
        if body.get("resume") or any(message.get("role") == "user" and message.get("content") for message in messages):
            return None
        return AGUIErrorEvent.create_no_input_message_error(session_id)
    name = pending.get(last.get("toolCallId", ""))
    if name is None:
        return AGUIErrorEvent.create_no_tool_results_error(session_id)
    content = last.get("content")
    try:
        if not isinstance(content, str) or not content.strip():
            last["content"] = json.dumps({"success": True, "result": None})
        value = json.loads(last["content"])
    except ValueError as error:
        return AGUIErrorEvent.create_tool_processing_error_event(error)
    if name.startswith(REQUEST):
        # ADK's own request to a person is an interrupt in the gateway.
        messages.pop()
        answer = {"interruptId": last["toolCallId"], "status": "resolved", "payload": value}
        body["resume"] = [*(body.get("resume") or []), answer]
    return None
