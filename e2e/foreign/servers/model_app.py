"""The scripted model as an OpenAI-compatible server, for frameworks without a fake model of their own."""

import base64
import json
import sys

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

import script


#: Microsoft Agent Framework puts the state into a message before the question.
STATE = "Application state supplied by"


def conversation(messages):
    questions, results, media, names, before = [], [], [], {}, None
    for message in messages:
        for call in message.get("tool_calls") or []:
            names[call["id"]] = call["function"]["name"]
        content = message.get("content") or ""
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        text = "".join(part.get("text", "") for part in parts)
        if message["role"] == "user" and not text.startswith(STATE):
            # Some frameworks send each part of a question as a message of its own.
            media = media if before == "user" else []
            media += [seen(part) for part in parts if part["type"] != "text"]
            questions += [text] if text else []
            results = []
        elif message["role"] == "tool":
            results.append((names.get(message["tool_call_id"]), text))
        before = message["role"]
    return questions, results, media


def seen(part):
    url = part.get("image_url", {}).get("url", "")
    if not url.startswith("data:"):
        return f"{part['type']} at {url}"
    kind, _, data = url.removeprefix("data:").partition(";base64,")
    return f"{kind} of {len(base64.b64decode(data))} bytes"


async def chunks(deltas):
    """The chunks of a streamed completion."""
    calls, first, completion = 0, {"role": "assistant"}, script.call_id()

    def chunk(delta=None, finish_reason=None, **more):
        choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish_reason}]
        return {"id": completion, "object": "chat.completion.chunk", "created": 1, "model": "scripted", "choices": choices} | more

    try:
        async for delta in script.play(deltas):
            match delta:
                case ("text", text):
                    yield chunk(first | {"content": text})
                case ("think", text):
                    yield chunk(first | {"content": None, "reasoning_content": text})
                case ("call", name, arguments):
                    call = {"index": calls, "id": script.call_id(), "type": "function"}
                    yield chunk(first | {"tool_calls": [call | {"function": {"name": name, "arguments": ""}}]})
                    for piece in script.pieces(arguments):
                        yield chunk({"tool_calls": [{"index": calls, "function": {"arguments": piece}}]})
                    calls += 1
            first = {}
    except RuntimeError as error:
        yield {"error": {"message": str(error), "type": "server_error", "code": "scripted"}}
        return
    yield chunk({}, "tool_calls" if calls else "stop")
    yield chunk(usage={"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2})


async def completions(request: Request) -> Response:
    body = await request.json()
    deltas = script.reply(*conversation(body["messages"]))
    match deltas[0]:
        # A status that the clients do not retry.
        case ("raise", text):
            return JSONResponse({"error": {"message": text, "type": "invalid_request_error", "code": "scripted"}}, 400)

    async def lines():
        async for each in chunks(deltas):
            yield f"data: {json.dumps(each)}\n\n"
        yield "data: [DONE]\n\n"

    return StreamingResponse(lines(), media_type="text/event-stream")


async def status(_request: Request) -> Response:
    return PlainTextResponse("available")


app = Starlette(routes=[Route("/v1/chat/completions", completions, methods=["POST"]), Route("/status", status)])

if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
