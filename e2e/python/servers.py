"""Servers of the tests: started on a free port, ended by their number; and gateways without HTTP."""

import contextlib
import itertools
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

import agentwire
import httpx

HERE = pathlib.Path(__file__).resolve().parent
LIMIT = 120.0


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(condition, what):
    """Waits until a condition holds, and returns its value."""
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(f"{what}: not within {LIMIT} s")


@contextlib.contextmanager
def served(server, target, *arguments, folder=HERE, ready="/mine", **env):
    """Runs `uvicorn` or `hypercorn`; gives an object with `url`, `process` and `log()`."""
    port = free_port()
    where = ["--host", "127.0.0.1", "--port", str(port)] if server == "uvicorn" else ["--bind", f"127.0.0.1:{port}"]
    command = [sys.executable, "-m", server, target, *where, *arguments]
    log = pathlib.Path(env["NOTES"] + ".log") if "NOTES" in env else pathlib.Path(os.devnull)
    with open(log, "ab") as out:
        process = subprocess.Popen(
            command, cwd=folder, stdout=out, stderr=out, env={**os.environ, **env}, start_new_session=True
        )
        found = type("Server", (), {})()
        found.url, found.process, found.log = f"http://127.0.0.1:{port}", process, lambda: log.read_text(errors="replace")
        try:
            wait_for(lambda: process.poll() is not None or answers(found.url + ready), f"{server} {target}")
            if process.poll() is not None:
                raise AssertionError(found.log())
            yield found
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(20)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def answers(url):
    try:
        return httpx.get(url, timeout=10).status_code < 500
    except httpx.HTTPError:
        return False


def run_input(text, thread="t", run="r", **more):
    message = {"id": f"u-{run}", "role": "user", "content": text}
    return {
        "threadId": thread,
        "runId": run,
        "messages": [message],
        "state": {},
        "tools": [],
        "context": [],
        "forwardedProps": {},
        **more,
    }


def events_of(body):
    """The events of an SSE body."""
    frames = (line[5:] for line in body.splitlines() if line.startswith("data:"))
    return [json.loads(frame) for frame in frames]


def post(url, text, path="/", headers=None, timeout=LIMIT, **ids):
    """Starts a run and reads it to its end."""
    headers = {"accept": "text/event-stream", **(headers or {})}
    response = httpx.post(url + path, json=run_input(text, **ids), headers=headers, timeout=timeout)
    return response, events_of(response.text) if response.status_code == 200 else None


def text_of(events):
    return "".join(event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT")


def status(url, run, path=""):
    return httpx.get(f"{url}{path}/runs/{run}", timeout=LIMIT).json().get("status")


def kinds(events):
    return [event["type"] for event in events]


NUMBERS = itertools.count()


class Served:
    """A gateway for one test."""

    def __init__(self, agent, **settings):
        self.gateway = agentwire.Gateway({"a": agent}, store="memory:", signals=False, **settings)
        self._life = self.gateway.lifespan()

    async def __aenter__(self):
        await self._life.__aenter__()
        return self

    async def __aexit__(self, *error):
        await self._life.__aexit__(*error)

    async def say(self, text, thread="t", messages=None, caller=None, **more):
        given = run_input(text, thread, f"{thread}-{next(NUMBERS)}", **more)
        if messages is not None:
            given["messages"] = messages
        return [event async for event in self.gateway.run(given, caller=caller)]

    async def get(self, path, method="GET", body=None):
        status, _, found = await self.gateway.request(method, path, body=b"" if body is None else json.dumps(body).encode())
        return status, json.loads(found) if found[:1] in (b"{", b"[") else found
