"""The quick start of adk-agui-middleware, with the import changed: uvicorn middleware_quickstart:app"""

from __future__ import annotations

from collections.abc import AsyncGenerator

from agentwire.adk.compat import SSEService
from agentwire.adk.compat.data_model.config import PathConfig, RunnerConfig
from agentwire.adk.compat.data_model.context import ConfigContext
from agentwire.adk.compat.endpoint import register_agui_endpoint
from fastapi import FastAPI, Request
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


app = FastAPI(title="AI Agent Service", version="1.0.0")


async def extract_user_id(_: object, request: Request) -> str:
    return request.headers.get("X-User-Id", "default-user")


sse_service = SSEService(
    agent=Greeter(name="greeter"),
    config_context=ConfigContext(
        app_name="my-app",
        user_id=extract_user_id,
        session_id=lambda content, req: content.thread_id,
        event_source_response_mode=True,
    ),
    runner_config=RunnerConfig(),
)

register_agui_endpoint(app, sse_service, path_config=PathConfig(agui_main_path="/agui"))
