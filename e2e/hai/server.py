"""A HAI server with the request models of the standard's public demo, which refuse a message without `content` (422).

It plays the standard's scenarios: a chat, a question by a front-end tool, and a task whose patches presume items that
only the demo's page makes. The message id is the same in every run, as in the standard's sample.
"""

import json
import sys
import time
from typing import Any, Dict, List, Optional

import uvicorn
from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from pydantic import BaseModel


class HAIMessage(BaseModel):
    id: str
    role: str
    content: str
    toolCallId: Optional[str] = None


class HAIAgentRequest(BaseModel):
    threadId: str
    runId: str
    messages: List[HAIMessage] = []
    context: List[HAIMessage] = []
    tools: List[Dict[str, Any]] = []
    forwardedProps: Dict[str, Any] = {}


app = FastAPI()
MESSAGE = "msgId-001"


def event(kind, **members):
    return {"type": kind, **members, "timestamp": int(time.time() * 1000)}


def said(text):
    yield event("BUSINESS_DATA_START", messageId=MESSAGE, role="assistant")
    for word in text.split(" "):
        delta = json.dumps({"output": {"type": "text", "content": word + " "}}, ensure_ascii=False)
        yield event("BUSINESS_DATA_CONTENT", messageId=MESSAGE, delta=delta)
    yield event("BUSINESS_DATA_END", messageId=MESSAGE, role="assistant")


def patch(op, item, status):
    return event("STATE_DELTA", delta=[{"op": op, "path": f"/workflowItems/{item}/status", "value": status, "from": ""}])


def answer(body):
    last = body.messages[-1]
    yield event("RUN_STARTED", messageId=MESSAGE, role="assistant")
    if last.role == "tool":
        yield from said(f"{last.toolCallId} says {last.content}")
    elif last.content == "deploy":
        yield {"type": "TOOL_CALL_START", "toolCallId": "tool-123", "toolCallName": "confirmAction", "parentMessageId": "msg-456"}
        yield {"type": "TOOL_CALL_ARGS", "toolCallId": "tool-123", "delta": '{"action":'}
        yield {"type": "TOOL_CALL_ARGS", "toolCallId": "tool-123", "delta": '"Deploy to production"}'}
        yield {"type": "TOOL_CALL_END", "toolCallId": "tool-123"}
    elif last.content == "task":
        for item in range(3):
            yield event("AGENT_COLLABORATIVE_MESSAGE_START", **{"from": "planner", "to": f"actor {item}"}, messageId=MESSAGE)
            task = json.dumps({"task": {"id": str(item), "name": f"task {item}"}})
            yield event("AGENT_COLLABORATIVE_MESSAGE_CONTENT", delta=task, messageId=MESSAGE)
            yield event("AGENT_COLLABORATIVE_MESSAGE_END", messageId=MESSAGE)
            yield patch("add", item, "running")
            yield patch("replace", item, "done")
    else:
        yield from said(f"{len(body.messages)} messages in {body.threadId}")
    yield event("RUN_FINISHED", messageId=MESSAGE, role="assistant")


@app.get("/status")
def status():
    return {"ok": True}


@app.post("/api/v1/hai/ai_dome/chat")
def chat(body: HAIAgentRequest):
    frames = (f"data: {json.dumps(frame, ensure_ascii=False)}\n\n" for frame in answer(body))
    return StreamingResponse(frames, media_type="text/event-stream")


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
