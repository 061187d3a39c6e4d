"""Agno's AgentOS with its AG-UI interface, set up as in its documentation, with a scripted model."""

import json
import sys
from dataclasses import dataclass

import uvicorn
from agno.agent import Agent
from agno.db.in_memory import InMemoryDb
from agno.models.base import Model
from agno.models.response import ModelResponse
from agno.os import AgentOS
from agno.os.interfaces.agui import AGUI
from agno.run import RunContext
from agno.tools import tool

import script


def conversation(messages):
    questions, results, media, names = [], [], [], {}
    for message in messages:
        if message.role == "user":
            questions.append(message.get_content_string())
            results, media = [], [seen(image) for image in message.images or []]
        for call in message.tool_calls or []:
            names[call["id"]] = call["function"]["name"]
        if message.role == "tool":
            name = message.tool_name or names.get(message.tool_call_id)
            results.append((name, message.get_content_string()))
    return questions, results, media


def seen(image):
    content = image.get_content_bytes() if image.content else None
    return f"{image.mime_type} of {len(content)} bytes" if content else f"{type(image).__name__} at {image.url}"


@dataclass
class Scripted(Model):
    id: str = "scripted"
    name: str = "Scripted"
    provider: str = "nobody"

    async def ainvoke_stream(self, messages, **_):
        async for delta in script.play(script.reply(*conversation(messages))):
            match delta:
                case ("text", text):
                    yield ModelResponse(role="assistant", content=text)
                case ("think", text):
                    yield ModelResponse(role="assistant", reasoning_content=text)
                case ("call", name, arguments):
                    call_id = script.call_id()
                    for piece in script.pieces(arguments):
                        function = {"name": name, "arguments": piece}
                        call = {"id": call_id, "type": "function", "function": function}
                        yield ModelResponse(role="assistant", tool_calls=[call])

    def parse_tool_calls(self, tool_calls_data):
        """Joins the pieces of each call."""
        calls = {}
        for piece in tool_calls_data:
            if piece["id"] in calls:
                calls[piece["id"]]["function"]["arguments"] += piece["function"]["arguments"]
            else:
                calls[piece["id"]] = json.loads(json.dumps(piece))
        return list(calls.values())

    def invoke(self, *_, **__):
        raise NotImplementedError("this server streams")

    async def ainvoke(self, *_, **__):
        raise NotImplementedError("this server streams")

    def invoke_stream(self, *_, **__):
        raise NotImplementedError("this server is asynchronous")

    def _parse_provider_response(self, response, **_):
        return response

    def _parse_provider_response_delta(self, response):
        return response


@tool(requires_confirmation=True)
def delete_all(scope: str) -> str:
    """Deletes everything."""
    return f"deleted {scope}"


def set_theme(run_context: RunContext, theme: str) -> str:
    """Sets the theme of the page."""
    run_context.session_state["theme"] = theme
    return f"theme {theme}"


agent = Agent(
    id="scripted",
    model=Scripted(),
    db=InMemoryDb(),
    tools=[script.get_weather, script.add, script.break_down, delete_all, set_theme],
    add_history_to_context=True,
    num_history_runs=100,
    telemetry=False,
)
app = AgentOS(agents=[agent], interfaces=[AGUI(agent=agent)], telemetry=False).get_app()

if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
