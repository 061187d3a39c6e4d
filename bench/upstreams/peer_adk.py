"""The FastAPI endpoint of `ag_ui_adk` with an agent that replays the recording. peer_adk.py RATE"""

import logging
import socket
import sys
import warnings

warnings.simplefilter("ignore")

import uvicorn  # noqa: E402
from ag_ui_adk import ADKAgent, add_adk_fastapi_endpoint  # noqa: E402
from fastapi import FastAPI  # noqa: E402
from google.adk.agents import BaseAgent  # noqa: E402
from google.adk.events import Event  # noqa: E402
from recording import Times, lines  # noqa: E402

logging.disable(logging.CRITICAL)
rate = float(sys.argv[1])
times = Times()
recorded = [Event.model_validate_json(line) for line in lines("adk")]


class Replay(BaseAgent):
    async def _run_async_impl(self, context):
        # The package gives its sessions other ids.
        thread = context.session.state.get("_ag_ui_thread_id", context.session.id)
        async for number in times.paced(thread, len(recorded), rate):
            yield recorded[number].model_copy(update={"invocation_id": context.invocation_id, "author": self.name})


app = FastAPI()
agent = ADKAgent(adk_agent=Replay(name="assistant"), app_name="bench", user_id="u", use_in_memory_services=True)
add_adk_fastapi_endpoint(app, agent, path="/")


@app.get("/times/{run}")
def sent(run: str):
    return times.of[run]


listening = socket.create_server(("127.0.0.1", 0))
print(listening.getsockname()[1], flush=True)
uvicorn.Server(uvicorn.Config(app, log_level="error", access_log=False)).run(sockets=[listening])
