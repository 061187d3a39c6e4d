"""`agentwire serve MODULE:ATTRIBUTE` without uvicorn: the gateway's own server, and Python's loop in the main thread."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys

import httpx
import pytest
from servers import events_of, post, run_input, status, text_of, wait_for

MODULE = """
import asyncio, os
import agentwire

@agentwire.agent
async def echo(request):
    words = request.user_text()
    if words == "wait":
        yield "waiting"
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            with open("notes", "a") as file:
                file.write("cancelled")
            raise
    info = request.info
    yield f"{words} for {request.caller.user} by {info.method} {info.path} {request.headers.get('x-word')}"

async def who(info):
    if info.headers.get("x-user") == "body":
        return info.input["forwardedProps"]["user"]
    if info.headers.get("x-user") == "refused":
        raise agentwire.Refused("not today", code="NOT_TODAY", status=418)
    return info.headers.get("x-user")

class Loud(agentwire.Hooks):
    def event(self, event):
        return {**event, "delta": event["delta"].upper()} if event["type"] == "TEXT_MESSAGE_CONTENT" else event

gateway = agentwire.Gateway(
    {"echo": echo, "loud": agentwire.agent(echo.function, hooks=Loud)},
    store="sqlite:a.db", default="echo", identity=who, drain={"grace": "300ms"},
)
open_door = agentwire.Gateway({"echo": echo}, store="memory:")
"""
#: Python without uvicorn, whatever is installed.
WITHOUT = "import sys; sys.modules['uvicorn'] = None; from agentwire.__main__ import main; sys.exit(main())"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "mine.py").write_text(MODULE)
    return tmp_path


def command(*arguments):
    return [sys.executable, "-c", WITHOUT, "serve", *arguments]


@contextlib.contextmanager
def serving(folder, *arguments):
    log = folder / "log"
    with open(log, "wb") as out:
        process = subprocess.Popen(command(*arguments), cwd=folder, stdout=out, stderr=out)
    try:
        found = wait_for(
            lambda: process.poll() is not None or re.search(r"listening  (http://\S+)", log.read_text()), "the address"
        )
        assert process.poll() is None, log.read_text()
        process.url, process.log = found.group(1), log.read_text
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def test_an_agent(folder):
    with serving(folder, "mine:echo", "--listen", "127.0.0.1:0", "--store", "memory:") as server:
        response, events = post(server.url, "hello", headers={"x-word": "w"})
        assert response.headers["content-type"] == "text/event-stream"
        assert text_of(events) == "hello for default-user by POST / w"
        assert text_of(post(server.url, "again", path="/agents/echo", run="r2")[1]).startswith("again")
        assert httpx.get(server.url + "/nowhere").json()["error"]["code"] == "UNKNOWN_ROUTE"
        chat = {"id": "c", "messages": [{"id": "1", "role": "user", "parts": [{"type": "text", "text": "hey"}]}]}
        assert "hey for default-user" in httpx.post(server.url + "/api/chat", json=chat, timeout=60).text
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0, server.log()


def test_identity_and_hooks(folder):
    with serving(folder, "mine:gateway", "--listen", "127.0.0.1:0") as server:

        def told(user, path="/", **more):
            headers = {"x-user": user} if user else {}
            response, events = post(server.url, "hi", path=path, headers=headers, run=f"r-{user}-{len(path)}", **more)
            if response.status_code != 200:
                return response.status_code, response.json()["error"]["code"]
            return text_of(events)

        assert told("ann").startswith("hi for ann")
        assert told("body", forwardedProps={"user": "bob"}).startswith("hi for bob")
        assert told("eve", path="/agents/loud").startswith("HI FOR EVE")
        assert told("") == (401, "NO_IDENTITY")
        assert told("refused") == (418, "NOT_TODAY")
        assert httpx.get(server.url + "/thread/list", headers={"x-user": "ann"}).json() == [{"threadId": "t"}]
        assert httpx.get(server.url + "/runs/r-ann-1", headers={"x-user": "eve"}).status_code == 404


def test_a_signal_ends_live_runs_and_a_successor_has_them(folder):
    head = {"x-user": "ann"}
    with serving(folder, "mine:gateway", "--listen", "127.0.0.1:0") as server:
        body = run_input("wait")
        with httpx.stream("POST", server.url + "/", json=body, headers=head, timeout=60) as response:
            lines = response.iter_lines()
            wait_for(lambda: "waiting" in next(lines), "the first words")
            server.send_signal(signal.SIGTERM)
            assert any("GATEWAY_SHUTDOWN" in line for line in lines)
        assert server.wait(60) == 0, server.log()
        assert (folder / "notes").read_text() == "cancelled"
    with serving(folder, "mine:gateway", "--listen", "127.0.0.1:0") as server:
        again = httpx.get(server.url + "/runs/r/stream", headers=head, timeout=60)
        assert text_of(events_of(again.text)) == "waiting"
        # A second signal does not wait.
        with httpx.stream("POST", server.url + "/", json=run_input("wait", run="r2"), headers=head, timeout=60) as response:
            lines = response.iter_lines()
            wait_for(lambda: "waiting" in next(lines), "the first words")
            server.send_signal(signal.SIGINT)
            server.send_signal(signal.SIGTERM)
            server.wait(60)


def failed(folder, *arguments):
    return subprocess.run(command(*arguments), cwd=folder, capture_output=True, text=True, timeout=120)


def test_mistakes(folder):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = failed(folder, "mine:echo", "--listen", f"127.0.0.1:{port}", "--store", "memory:")
        assert done.returncode == 4 and "cannot listen" in done.stderr, done.stderr
    done = failed(folder, "mine:echo", "--listen", "127.0.0.1:0", "--store", f"sqlite:{folder}/none/a.db")
    assert done.returncode == 4 and "store" in done.stderr, done.stderr
    # As `agentwire serve`: others could reach it.
    done = failed(folder, "mine:open_door", "--listen", "0.0.0.0:0")
    assert done.returncode == 2 and "nobody has to show who they are" in done.stderr, done.stderr
    done = failed(folder, "mine:gateway", "--listen", "127.0.0.1:0", "--store", "memory:")
    assert done.returncode == 2 and "is a Gateway" in done.stderr, done.stderr
    for wrong in (["mine:nobody"], ["none:echo"], ["mine:echo", "--listen", "nowhere"], ["mine:echo", "--listen", "x:99999"]):
        done = failed(folder, *wrong)
        assert done.returncode in (2, 4) and "error: " in done.stderr and "Traceback" not in done.stderr, (wrong, done.stderr)


def test_in_an_environment_with_nothing_but_the_wheel(folder):
    """No FastAPI, no Starlette, no uvicorn."""
    where = folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", where], check=True)
    install = [sys.executable, "-m", "pip", "--python", where / "bin" / "python", "install", "--no-index", "--quiet"]
    subprocess.run([*install, os.environ["AGENTWIRE_WHEEL"]], check=True)
    log = folder / "log"
    start = [where / "bin" / "agentwire", "serve", "mine:echo", "--listen", "127.0.0.1:0", "--store", "memory:"]
    with open(log, "wb") as out:
        process = subprocess.Popen(start, cwd=folder, stdout=out, stderr=out)
    try:
        found = wait_for(lambda: re.search(r"listening  (http://\S+)", log.read_text()), "the address")
        assert text_of(post(found.group(1), "hello")[1]).startswith("hello for default-user")
        assert status(found.group(1), "r") == "finished"
        assert httpx.get(found.group(1) + "/thread/list").json() == [{"threadId": "t"}]
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def test_by_uvicorn_with_options_before_the_object(folder):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        taken = [sys.executable, "-m", "agentwire", "serve", "-l", f"127.0.0.1:{port}", "-s", "memory:", "mine:echo"]
        probe.listen()
        assert subprocess.run(taken, cwd=folder, capture_output=True, timeout=120).returncode == 4
    url = f"http://127.0.0.1:{port}"
    process = subprocess.Popen(taken, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:

        def is_up():
            with contextlib.suppress(httpx.HTTPError):
                return httpx.get(url + "/livez").status_code == 200

        wait_for(lambda: process.poll() is not None or is_up(), "uvicorn")
        assert text_of(post(url, "hello")[1]).startswith("hello for default-user")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["--listen", "0.0.0.0:0", "--store", "memory:", "mine:echo"], 2, "can be reached by others"),
        (["mine:open_door", "--listen", "0.0.0.0:0"], 2, "can be reached by others"),
        (["--listen", "127.0.0.1:0", "--store", "sqlite:none/a.db", "mine:echo"], 4, "none"),
        (["mine:open_door", "--insecure"], 2, "--insecure"),
    ],
)
def test_refusals_by_uvicorn(folder, arguments, code, told):
    command = [sys.executable, "-m", "agentwire", "serve", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, timeout=120, text=True)
    assert done.returncode == code and told in done.stderr, done.stderr
