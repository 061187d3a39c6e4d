"""CPU time per source event of translators on objects, in one process: prints a JSON object of rows.

The rounds of all rows take turns, so that a change of the machine's load reaches all of them; the best round counts.
"""

import asyncio
import json
import logging
import pathlib
import sys
import time

logging.disable(logging.CRITICAL)
HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "upstreams"), str(HERE)]

from agents import adk_events, langgraph_events, replaying_graph, run_input  # noqa: E402

from ag_ui.core import RunAgentInput  # noqa: E402
from ag_ui.encoder import EventEncoder  # noqa: E402
from ag_ui_adk.event_translator import EventTranslator  # noqa: E402
from ag_ui_langgraph import LangGraphAgent  # noqa: E402
from agentwire import AGUIAdapter, Translator  # noqa: E402

ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 8
LANGGRAPH, ADK = langgraph_events(), adk_events()


async def stream(events):
    for event in events:
        yield event


async def nothing(events):
    async for _ in stream(events):
        pass


async def ours(format, events):
    translator = Translator(format, "ag-ui")
    size = 0
    async for event in stream(events):
        size += len(translator.push(event))
    return size + len(translator.finish())


async def our_objects(events):
    count = 0
    async for _ in AGUIAdapter(object(), events="ag_ui").translate(stream(events), run_input()):
        count += 1
    return count


async def peer_langgraph(encode, raw):
    agent = LangGraphAgent(name="bench", graph=replaying_graph(LANGGRAPH), emit_raw_events=raw)
    encoder, size = EventEncoder(), 0
    async for event in agent.run(RunAgentInput.model_validate(run_input())):
        size += len(encoder.encode(event)) if encode else 1
    return size


async def peer_adk():
    translator, encoder, size = EventTranslator(), EventEncoder(), 0
    async for source in stream(ADK):
        async for event in translator.translate(source, "t", "r"):
            size += len(encoder.encode(event))
    async for event in translator.force_close_streaming_message():
        size += len(encoder.encode(event))
    return size


ROWS = {
    "langgraph: `async for` alone": (lambda: nothing(LANGGRAPH), LANGGRAPH),
    "langgraph: agentwire, SSE": (lambda: ours("langgraph", LANGGRAPH), LANGGRAPH),
    "langgraph: agentwire, objects": (lambda: our_objects(LANGGRAPH), LANGGRAPH),
    "langgraph: ag-ui-langgraph, RAW off, SSE": (lambda: peer_langgraph(True, False), LANGGRAPH),
    "langgraph: ag-ui-langgraph, RAW off, objects": (lambda: peer_langgraph(False, False), LANGGRAPH),
    "langgraph: ag-ui-langgraph, default, SSE": (lambda: peer_langgraph(True, True), LANGGRAPH),
    "adk: agentwire, SSE": (lambda: ours("adk", ADK), ADK),
    "adk: ag_ui_adk, SSE": (peer_adk, ADK),
}

best = dict.fromkeys(ROWS, float("inf"))
for _ in range(ROUNDS):
    for name, (work, events) in ROWS.items():
        begun = time.process_time()
        made = asyncio.run(work())
        spent = time.process_time() - begun
        if made == 0:
            sys.exit(f"error: {name} gave nothing")
        best[name] = min(best[name], spent / len(events) * 1e6)
print(json.dumps(best))
