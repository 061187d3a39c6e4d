"""Converts a recording with one of the packages and prints CPU time per source event, in microseconds."""

import asyncio
import logging
import sys
import time

logging.disable(logging.CRITICAL)
peer, recording, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])

from google.adk.events import Event  # noqa: E402

lines = open(recording, encoding="utf-8").read().splitlines()

if peer == "ag_ui_adk":
    from ag_ui.encoder import EventEncoder
    from ag_ui_adk.event_translator import EventTranslator

    async def translate():
        translator, encoder, size = EventTranslator(), EventEncoder(), 0
        for line in lines:
            async for event in translator.translate(Event.model_validate_json(line), "t", "r"):
                size += len(encoder.encode(event))
        async for event in translator.force_close_streaming_message():
            size += len(encoder.encode(event))
        return size

else:
    from adk_agui_middleware.event.event_translator import EventTranslator
    from adk_agui_middleware.utils.convert.agui_event_to_sse import convert_agui_event_to_sse

    async def translate():
        translator, size = EventTranslator(), 0
        for line in lines:
            async for event in translator.translate(Event.model_validate_json(line)):
                size += len(convert_agui_event_to_sse(event)["data"])
        async for event in translator.force_close_streaming_message():
            size += len(convert_agui_event_to_sse(event)["data"])
        return size


best = float("inf")
for _ in range(rounds):
    begun = time.process_time()
    size = asyncio.run(translate())
    best = min(best, time.process_time() - begun)
assert size > 0, "nothing was translated"
print(best / len(lines) * 1e6)
