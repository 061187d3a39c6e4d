"""The reference server: the same graphs behind `ag-ui-langgraph`."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import dojo  # noqa: E402
import uvicorn  # noqa: E402
from ag_ui_langgraph import LangGraphAgent, add_langgraph_fastapi_endpoint  # noqa: E402
from fastapi import FastAPI  # noqa: E402
from langgraph.checkpoint.memory import MemorySaver  # noqa: E402

app = FastAPI()
for name in ["agentic_chat", "human_in_the_loop", "interrupting", "tool_based_generative_ui", "agentic_generative_ui", "shared_state",
             "predictive_state_updates", "subgraphs"]:
    graph = getattr(dojo, name).copy()
    graph.checkpointer = MemorySaver()
    add_langgraph_fastapi_endpoint(app, LangGraphAgent(name=name, graph=graph), f"/{name}")


@app.get("/ok")
async def ok():
    return {}


uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
