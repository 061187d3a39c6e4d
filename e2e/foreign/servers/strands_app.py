"""The AG-UI endpoint of AWS Strands, set up as in its documentation, with a scripted model."""

import os
import sys

import uvicorn
from ag_ui_strands import StrandsAgent, StrandsAgentConfig, ToolBehavior, create_strands_app
from strands import Agent, tool
from strands.models.openai import OpenAIModel

import script


@tool
def delete_all(scope: str) -> str:
    """Deletes everything."""
    return f"deleted {scope}"


@tool
def set_theme(theme: str) -> str:
    """Sets the theme of the page."""
    return f"theme {theme}"


behaviors = {
    "delete_all": ToolBehavior(interrupt_on_call=True),
    "set_theme": ToolBehavior(state_from_args=lambda context: {"theme": context.tool_input["theme"]}),
}
model = OpenAIModel(
    client_args={"base_url": os.environ["MODEL_URL"], "api_key": "none", "max_retries": 0},
    model_id="scripted",
)
agent = Agent(
    model=model,
    tools=[tool(script.get_weather), tool(script.add), tool(script.break_down), delete_all, set_theme],
    callback_handler=None,
)
wrapped = StrandsAgent(agent=agent, name="scripted", config=StrandsAgentConfig(tool_behaviors=behaviors))
app = create_strands_app(wrapped, "/", "/status", cors_enabled=False)

if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
