"""An app for `uvicorn server:app`; KIND is the agent and the package in front of it, RECORDS the number of its events."""

import asyncio
import logging
import os
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
logging.disable(logging.WARNING)

from agents import adk_events, langgraph_events, replaying_agent, replaying_graph  # noqa: E402
from fastapi import FastAPI  # noqa: E402

package, agent, *words = os.environ["KIND"].split()
app = FastAPI()
if agent == "langgraph":
    events = langgraph_events()
    graph = replaying_graph(events, turn="turn" in words, pause=0.0005 if "pause" in words else None)
elif agent == "adk":
    events = adk_events()
else:
    events = []


@app.get("/events")
def count():
    return len(events)


if package == "agentwire":
    import agentwire

    class EachEvent(agentwire.Hooks):
        def event(self, event):
            return event

    @agentwire.agent(format="langgraph")
    async def replay(request):
        async for event in graph.astream_events():
            yield event

    @agentwire.agent
    async def idle(request):
        yield "waiting"
        await asyncio.sleep(3600)

    made = {"langgraph": replay, "idle": idle}.get(agent) or agentwire.adk(replaying_agent(events))
    store = f"sqlite:{tempfile.mkdtemp()}/a.db" if "sqlite" in words else "memory:"
    gateway = agentwire.Gateway({"a": made}, store=store, hooks=EachEvent if "hook" in words else None)
    app.router.lifespan_context = gateway.lifespan
    app.mount("/", gateway)
elif agent == "idle":
    from fastapi.responses import StreamingResponse

    async def stream():
        yield b"data: waiting\n\n"
        await asyncio.sleep(3600)

    @app.get("/idle")
    async def idle():
        return StreamingResponse(stream(), media_type="text/event-stream")

elif agent == "langgraph":
    from ag_ui_langgraph import LangGraphAgent, add_langgraph_fastapi_endpoint

    raw = "default" in words
    add_langgraph_fastapi_endpoint(app, LangGraphAgent(name="bench", graph=graph, emit_raw_events=raw), "/")
else:
    from ag_ui_adk import ADKAgent, add_adk_fastapi_endpoint

    add_adk_fastapi_endpoint(app, ADKAgent(replaying_agent(events), user_id="u"), "/")
