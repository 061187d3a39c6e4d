"""The AG-UI endpoint of Microsoft Agent Framework, set up as in its documentation, with a scripted model."""

import os
import sys

import uvicorn
from agent_framework import Agent, Content, tool
from agent_framework.ag_ui import AgentFrameworkAgent, add_agent_framework_fastapi_endpoint, state_update
from agent_framework.openai import OpenAIChatCompletionClient
from fastapi import FastAPI
from openai import AsyncOpenAI

import script


@tool(approval_mode="always_require")
def delete_all(scope: str) -> str:
    """Deletes everything."""
    return f"deleted {scope}"


@tool(approval_mode="never_require")
def set_theme(theme: str) -> Content:
    """Sets the theme of the page."""
    return state_update(f"theme {theme}", state={"theme": theme})


client = OpenAIChatCompletionClient(
    model="scripted",
    async_client=AsyncOpenAI(base_url=os.environ["MODEL_URL"], api_key="none", max_retries=0),
)
own = [tool(approval_mode="never_require")(each) for each in (script.get_weather, script.add, script.break_down)]
agent = Agent(name="scripted", instructions="Follow the script.", client=client, tools=[*own, delete_all, set_theme])
wrapped = AgentFrameworkAgent(agent=agent, state_schema={"theme": {"type": "string"}}, require_confirmation=False)
app = FastAPI()
add_agent_framework_fastapi_endpoint(app, wrapped, "/", single_user=True)


@app.get("/status")
def status():
    return "available"


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
