#!/usr/bin/env python3
"""The server side of the HTTP hooks: sanitizes inputs and keeps a record. No dependencies.

    python3 pipeline.py [PORT] [RECORD]
"""
import json
import re
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock

PORT = int(sys.argv[1]) if len(sys.argv) > 1 else 7118
RECORD = sys.argv[2] if len(sys.argv) > 2 else "record.jsonl"
LONGEST = 4000
MAIL = re.compile(r"[\w.+-]+@[\w-]+(\.[\w-]+)+")
CARD = re.compile(r"\b(?:\d[ -]?){13,19}\b")
writing = Lock()


def record(entry: dict) -> None:
    with writing, open(RECORD, "a", encoding="utf-8") as file:
        file.write(json.dumps(entry, ensure_ascii=False) + "\n")


def made_safe(text: str) -> str:
    text = "".join(c for c in text if c.isprintable() or c in "\n\t")
    return CARD.sub("[card]", MAIL.sub("[mail]", text))


def on_input(call: dict) -> dict:
    """Rejects messages that are too long or without words, and redacts data that no model needs."""
    run = call["input"]
    asked = [message for message in run["messages"] if message["role"] == "user"]
    record({"what": "input", "thread": call["threadId"], "run": call["runId"], "messages": len(run["messages"])})
    for message in asked:
        if not isinstance(message["content"], str):
            return {"refuse": "only text is taken here"}
        if len(message["content"]) > LONGEST:
            return {"refuse": f"a message may have {LONGEST} characters"}
        message["content"] = made_safe(message["content"])
    if asked and not asked[-1]["content"].strip():
        return {"refuse": "the message is empty"}
    # Properties sent by the page are not meant for the model.
    run["forwardedProps"] = {}
    return {"input": run}


def on_output_record(call: dict) -> dict:
    for event in call["events"]:
        record({"what": "output", "thread": call["threadId"], "run": call["runId"], "event": event})
    if call.get("lost"):
        record({"what": "lost", "run": call["runId"], "events": call["lost"]})
    return {}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        hook = {"/input": on_input, "/output_record": on_output_record}.get(self.path)
        status, answer = (200, hook(json.loads(body))) if hook else (404, {"error": "no such hook"})
        text = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_) -> None:
        pass


server = ThreadingHTTPServer(("127.0.0.1", PORT), Handler)
print(f"the pipeline listens on http://127.0.0.1:{server.server_address[1]}, its record is {RECORD}", flush=True)
try:
    server.serve_forever()
except KeyboardInterrupt:
    pass
