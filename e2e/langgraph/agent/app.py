"""The graphs of this folder outside LangGraph Server.

    app.py PORT       an HTTP server: `ag-ui-langgraph` at /ag-ui/GRAPH, CopilotKit's agent at /copilotkit/GRAPH, and native
                      events as JSON lines at /events/GRAPH
    app.py --write GRAPH   one run as JSON lines on the standard output
"""
import asyncio
import sys

import graphs
from ag_ui_langgraph import LangGraphAgent, add_langgraph_fastapi_endpoint
from agentwire import record, to_line
from copilotkit import LangGraphAGUIAgent
from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from langgraph.checkpoint.memory import MemorySaver

QUESTION = {"messages": [("user", "go")]}
NAMES = ["emitting", "conventions"]


def app():
    made = FastAPI()
    for path, kind in [("ag-ui", LangGraphAgent), ("copilotkit", LangGraphAGUIAgent)]:
        for name in NAMES:
            # These agents read the thread's state, so they need a checkpointer.
            graph = getattr(graphs, name).copy()
            graph.checkpointer = MemorySaver()
            add_langgraph_fastapi_endpoint(made, kind(name=name, graph=graph), f"/{path}/{name}")

    @made.post("/events/{name}")
    async def events(name: str):
        async def lines():
            async for event in getattr(graphs, name).astream_events(QUESTION, version="v2"):
                yield to_line(event) + "\n"
        return StreamingResponse(lines(), media_type="application/x-ndjson")

    @made.get("/ok")
    async def ok():
        return {}
    return made


if __name__ == "__main__":
    if sys.argv[1] == "--write":
        asyncio.run(record(getattr(graphs, sys.argv[2]).astream_events(QUESTION, version="v2"), sys.stdout))
    else:
        import uvicorn
        uvicorn.run(app(), host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
