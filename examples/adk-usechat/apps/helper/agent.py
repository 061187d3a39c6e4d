"""An ADK agent with a tool. Its model is scripted, so no API key is needed; replace it with your own."""

import asyncio
import re

from google.adk.agents import LlmAgent
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.genai import types


def get_weather(city: str) -> dict:
    """Tells the weather of a city."""
    return {"city": city, "celsius": 21}


class Scripted(BaseLlm):
    """Calls the tool for questions about the weather, and reports the result."""

    model: str = "scripted"

    async def generate_content_async(self, llm_request, stream=False):
        part = llm_request.contents[-1].parts[-1]
        if answer := part.function_response:
            text = "It is {celsius} °C in {city}. Take a walk!".format(**answer.response)
        elif found := re.search(r"weather in (\w+)", part.text or ""):
            call = types.FunctionCall(name="get_weather", args={"city": found[1]})
            yield LlmResponse(content=types.Content(role="model", parts=[types.Part(function_call=call)]))
            return
        elif "count" in (part.text or ""):
            text = " ".join(map(str, range(1, 41))) + ", done."
        else:
            text = f"You said: {part.text}. Ask me about the weather in some city, or to count."
        if stream:
            for word in re.findall(r"\S+\s*", text):
                # Counting takes long enough to reload the page in the middle.
                await asyncio.sleep(0.2 if "done" in text else 0.05)
                yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text=word)]), partial=True)
        yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text=text)]))


root_agent = LlmAgent(name="helper", model=Scripted(), tools=[get_weather])
