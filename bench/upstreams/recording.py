"""The recorded streams: the same frames for the replaying servers, and the same events for the peers."""

import asyncio
import gzip
import json
import pathlib
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]


def lines(kind):
    """One event per line, as recorded."""
    if kind == "langgraph":
        text = gzip.decompress((ROOT / "bench/langgraph/long_answer_2000.jsonl.gz").read_bytes()).decode()
    else:
        text = (ROOT / "crates/agentwire-core/src/format/adk/fixtures/long_2000.jsonl").read_text()
    return text.splitlines()


def is_word(kind, event):
    """True if an event contains text that a client sees as one more piece of the message."""
    if kind == "langgraph":
        return event["event"] == "on_chat_model_stream" and bool(event["data"]["chunk"]["content"])
    return bool(event.get("partial")) and any(part.get("text") for part in event["content"]["parts"])


class Times:
    """The time at which each event of each run was handed over, by the clock that all processes of a machine share."""

    def __init__(self):
        self.of = {}

    async def paced(self, run, count, rate):
        """The numbers of events, each at its time; all at once without a rate."""
        sent = self.of[run] = []
        begun = time.monotonic()
        for number in range(count):
            if rate:
                wait = begun + number / rate - time.monotonic()
                if wait > 0:
                    await asyncio.sleep(wait)
            elif number % 16 == 0:
                # Yields to other tasks, as a real agent would while it waits for a model.
                await asyncio.sleep(0)
            sent.append(time.monotonic_ns())
            yield number
