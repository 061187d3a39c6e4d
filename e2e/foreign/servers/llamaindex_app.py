"""The AG-UI router of LlamaIndex, set up as in its documentation, with a scripted model."""

import os
import sys

import uvicorn
from fastapi import FastAPI
from llama_index.core.workflow import Context
from llama_index.llms.openai_like import OpenAILike
from llama_index.protocols.ag_ui.router import get_ag_ui_workflow_router

import script


async def set_theme(ctx: Context, theme: str) -> str:
    """Sets the theme of the page."""
    state = await ctx.store.get("state", default={})
    await ctx.store.set("state", {**(state or {}), "theme": theme})
    return f"theme {theme}"


model = OpenAILike(
    model="scripted",
    api_base=os.environ["MODEL_URL"],
    api_key="none",
    is_chat_model=True,
    is_function_calling_model=True,
    max_retries=0,
)
app = FastAPI()
app.include_router(
    get_ag_ui_workflow_router(
        llm=model,
        backend_tools=[script.get_weather, script.add, script.break_down, set_theme],
        initial_state={},
        timeout=None,
    )
)


@app.get("/status")
def status():
    return "available"


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
