"""A LangGraph graph and an ADK agent behind one gateway: uvicorn two_agents:app

AG-UI clients use `/agents/support` and `/agents/shop`, `useChat` uses `/agents/support/api/chat` and
`/agents/shop/api/chat`, and CopilotKit finds both at the `runtimeUrl` `/copilotkit`. The page at `/` talks to both.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import agentwire
from fastapi import FastAPI
from fastapi.responses import HTMLResponse
from google.adk.agents import BaseAgent
from google.adk.agents.invocation_context import InvocationContext
from google.adk.events import Event
from google.genai import types
from langgraph.graph import START, MessagesState, StateGraph


def answer(state: MessagesState) -> dict[str, Any]:
    """The graph's model is here."""
    return {"messages": [("ai", "LangGraph says hello.")]}


class Greeter(BaseAgent):
    """Your LlmAgent is here."""

    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncGenerator[Event, None]:
        parts = ctx.user_content.parts if ctx.user_content and ctx.user_content.parts else []
        text = f"ADK heard: {' '.join(part.text or '' for part in parts)}"
        content = types.Content(role="model", parts=[types.Part(text=text)])
        yield Event(author=self.name, invocation_id=ctx.invocation_id, content=content)


graph = StateGraph(MessagesState).add_node("answer", answer).add_edge(START, "answer")

gateway = agentwire.Gateway(
    {"support": agentwire.langgraph(graph.compile()), "shop": agentwire.adk(Greeter(name="greeter"))},
    store="memory:",
)
app = FastAPI(lifespan=gateway.lifespan)

PAGE = """<!doctype html><title>Two agents</title>
<button>support</button> <button>shop</button><pre></pre>
<script type="module">
const out = document.querySelector("pre");
for (const button of document.querySelectorAll("button")) button.onclick = async () => {
  const id = crypto.randomUUID(), messages = [{ id, role: "user", parts: [{ type: "text", text: "Hello!" }] }];
  const response = await fetch(`agents/${button.textContent}/api/chat`, {
    method: "POST", headers: { "content-type": "application/json" },
    body: JSON.stringify({ id, messages, trigger: "submit-message" }),
  });
  for (const line of (await response.text()).split("\\n")) {
    if (line.startsWith('data: {"type":"text-delta"')) out.append(JSON.parse(line.slice(6)).delta);
  }
  out.append("\\n");
};
</script>"""


@app.get("/", response_class=HTMLResponse)
def page() -> str:
    """The page."""
    return PAGE


app.mount("/", gateway)
