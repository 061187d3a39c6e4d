"""A gateway with a run, for the checks of the dashboard, the alert rules and the manifests."""

import json
import os
import pathlib
import re
import select
import subprocess
import sys
import time
import urllib.request

sys.dont_write_bytecode = True
ROOT = pathlib.Path(os.environ.get("AGENTWIRE_ROOT", pathlib.Path(__file__).resolve().parents[2]))
AGENTWIRE = os.environ.get("AGENTWIRE", str(ROOT / "target" / "debug" / "agentwire"))
VERSION = re.search(r'^version = "(.*)"$', (ROOT / "Cargo.toml").read_text(), re.M).group(1)
# For a machine that is ten times slower than usual.
PATIENCE = 120


class Serving:
    """A gateway with the demo agent."""

    def __init__(self, folder):
        command = [AGENTWIRE, "serve", "--store", f"sqlite:{folder}/agentwire.db", "--listen", "127.0.0.1:0"]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
        said, deadline = "", time.monotonic() + PATIENCE
        while not (found := re.search(r"listening\s+(?:\x1b\[1m)?(http://[\d.]+:\d+)", said)):
            ready, _, _ = select.select([self.process.stderr], [], [], max(0, deadline - time.monotonic()))
            piece = os.read(self.process.stderr.fileno(), 65536).decode() if ready else ""
            if not piece:
                self.end()
                raise AssertionError(f"the gateway does not listen:\n{said}")
            said += piece
        self.url = found.group(1)

    def end(self):
        self.process.terminate()
        try:
            self.process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()


def ask(url):
    """Runs the demo agent once, to the end."""
    message = {"id": "m", "role": "user", "content": "hello"}
    body = {"threadId": "t", "runId": "r", "messages": [message], "tools": [], "context": [], "state": {}}
    body["forwardedProps"] = {}
    headers = {"content-type": "application/json", "accept": "text/event-stream"}
    request = urllib.request.Request(f"{url}/", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=PATIENCE) as response:
        text = response.read().decode()
    assert '"type":"RUN_FINISHED"' in text, text
