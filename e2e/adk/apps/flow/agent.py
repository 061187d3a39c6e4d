"""A workflow (ADK 2) that requests input from a person between two steps."""

from google.adk.events.event import Event
from google.adk.events.request_input import RequestInput
from google.adk.workflow import START, Workflow
from google.genai import types

COLOUR = {"type": "object", "properties": {"colour": {"type": "string"}}, "required": ["colour"]}


async def ask():
    yield RequestInput(message="Which colour?", payload={"options": ["red", "blue"]}, response_schema=COLOUR)


def paint(node_input: dict):
    return Event(content=types.Content(role="model", parts=[types.Part(text=f"Painted {node_input['colour']}.")]))


root_agent = Workflow(name="flow", edges=[(START, ask, paint)])
