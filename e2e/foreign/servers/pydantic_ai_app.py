"""Pydantic AI's AG-UI endpoint, set up as in its documentation, with a scripted model."""

import sys

import uvicorn
from ag_ui.core import EventType, StateSnapshotEvent
from pydantic import BaseModel
from pydantic_ai import Agent, DeferredToolRequests, RunContext, ToolReturn
from pydantic_ai.messages import BinaryContent, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import DeltaThinkingPart, DeltaToolCall, FunctionModel
from pydantic_ai.ui import StateDeps
from pydantic_ai.ui.ag_ui import AGUIAdapter
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

import script


class State(BaseModel):
    theme: str = "light"


def conversation(messages):
    questions, results, media = [], [], []
    for part in (part for message in messages for part in message.parts):
        if isinstance(part, UserPromptPart):
            content = [part.content] if isinstance(part.content, str) else part.content
            questions.append("".join(piece for piece in content if isinstance(piece, str)))
            media = [seen(piece) for piece in content if not isinstance(piece, str)]
            results = []
        elif isinstance(part, ToolReturnPart):
            results.append((part.tool_name, part.model_response_str()))
    return questions, results, media


def seen(piece):
    if isinstance(piece, BinaryContent):
        return f"{piece.media_type} of {len(piece.data)} bytes"
    return f"{type(piece).__name__} at {piece.url}"


async def model(messages, _info):
    index = 0
    async for delta in script.play(script.reply(*conversation(messages))):
        match delta:
            case ("text", text):
                yield text
            case ("think", text):
                yield {0: DeltaThinkingPart(content=text)}
            case ("call", name, arguments):
                index += 1
                yield {index: DeltaToolCall(name=name, json_args="", tool_call_id=script.call_id())}
                for piece in script.pieces(arguments):
                    yield {index: DeltaToolCall(json_args=piece)}


agent = Agent(
    FunctionModel(stream_function=model),
    deps_type=StateDeps[State],
    output_type=[str, DeferredToolRequests],
)
agent.tool_plain(script.get_weather)
agent.tool_plain(script.add)
agent.tool_plain(script.break_down)


@agent.tool_plain(requires_approval=True)
def delete_all(scope: str) -> str:
    """Deletes everything."""
    return f"deleted {scope}"


@agent.tool
def set_theme(context: RunContext[StateDeps[State]], theme: str) -> ToolReturn:
    """Sets the theme of the page."""
    context.deps.state.theme = theme
    event = StateSnapshotEvent(type=EventType.STATE_SNAPSHOT, snapshot=context.deps.state.model_dump())
    return ToolReturn(return_value=f"theme {theme}", metadata=[event])


async def run(request: Request) -> Response:
    return await AGUIAdapter.dispatch_request(request, agent=agent, deps=StateDeps(State()))


async def status(_request: Request) -> Response:
    return PlainTextResponse("available")


app = Starlette(routes=[Route("/", run, methods=["POST"]), Route("/status", status)])

if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
