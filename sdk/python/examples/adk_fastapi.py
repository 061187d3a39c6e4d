"""A Google ADK agent in a FastAPI app: uvicorn adk_fastapi:app"""

from __future__ import annotations

from collections.abc import AsyncGenerator

import agentwire
from fastapi import FastAPI
from google.adk.agents import BaseAgent
from google.adk.agents.invocation_context import InvocationContext
from google.adk.events import Event
from google.genai import types


class Greeter(BaseAgent):
    """Your LlmAgent is here."""

    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncGenerator[Event, None]:
        parts = ctx.user_content.parts if ctx.user_content and ctx.user_content.parts else []
        text = f"ADK heard: {' '.join(part.text or '' for part in parts)}"
        content = types.Content(role="model", parts=[types.Part(text=text)])
        yield Event(author=self.name, invocation_id=ctx.invocation_id, content=content)


gateway = agentwire.Gateway({"shop": agentwire.adk(Greeter(name="greeter"))}, store="memory:")
app = FastAPI(lifespan=gateway.lifespan)
app.mount("/", gateway)
