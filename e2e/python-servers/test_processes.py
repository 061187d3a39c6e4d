"""Processes that ASGI servers fork, restart and reload."""

import os
import pathlib
import shutil
import signal
import subprocess
import sys

import httpx
import pytest
from servers import HERE, events_of, free_port, post, run_input, served, status, text_of, wait_for

APP = "gateway_app:app"


def test_gunicorn_with_preload(tmp_path):
    """The gateway is made before the fork and started after it."""
    port = free_port()
    command = [sys.executable, "-m", "gunicorn", APP, "--preload", "--workers", "2", "--bind", f"127.0.0.1:{port}"]
    env = {**os.environ, "STORE": f"sqlite:{tmp_path}/a.db", "NOTES": str(tmp_path / "notes")}
    with open(tmp_path / "log", "wb") as log:
        options = {"cwd": HERE, "env": env, "stdout": log, "stderr": log, "start_new_session": True}
        process = subprocess.Popen([*command, "--worker-class", "uvicorn_worker.UvicornWorker"], **options)
    url = f"http://127.0.0.1:{port}"
    try:
        wait_for(lambda: process.poll() is not None or is_up(url), "gunicorn")
        assert process.poll() is None, (tmp_path / "log").read_text()
        wait_for(lambda: len({httpx.get(f"{url}/mine").json()["mine"] for _ in range(20)}) == 2, "two workers")
        for number in range(8):
            assert text_of(post(url, "hello", run=f"r{number}", thread=f"t{number}")[1]) == "You said hello"
        # SIGTERM ends a live stream after the grace time, and then the processes.
        with httpx.stream("POST", f"{url}/", json=run_input("wait /none", "live", "live"), timeout=60) as response:
            lines = response.iter_lines()
            wait_for(lambda: "waiting" in next(lines), "the first words")
            process.send_signal(signal.SIGTERM)
            assert any("GATEWAY_SHUTDOWN" in line for line in lines)
        assert process.wait(60) == 0, (tmp_path / "log").read_text()
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def is_up(url):
    try:
        return httpx.get(f"{url}/mine").status_code == 200
    except httpx.HTTPError:
        return False


def test_reload(tmp_path):
    """A changed file restarts the app: the run that was live has its ending, and the next one works."""
    for name in ("gateway_app.py",):
        shutil.copy(pathlib.Path(HERE) / name, tmp_path / name)
    store, notes = f"sqlite:{tmp_path}/a.db", str(tmp_path / "notes")
    options = ["--reload", "--reload-dir", str(tmp_path)]
    with served("uvicorn", APP, *options, folder=tmp_path, STORE=store, NOTES=notes, DRAIN="200ms") as server:
        first = httpx.get(server.url + "/mine").json()["mine"]
        with httpx.stream("POST", server.url + "/", json=run_input("wait /none"), timeout=120) as response:
            lines = response.iter_lines()
            wait_for(lambda: "waiting" in next(lines), "the first words")
            (tmp_path / "gateway_app.py").open("a").write("\n# changed\n")
            assert any("GATEWAY_SHUTDOWN" in line for line in lines)

        def is_new():
            try:
                return httpx.get(server.url + "/mine").json()["mine"] != first
            except httpx.HTTPError:
                return False

        wait_for(is_new, "the new process")
        assert status(server.url, "r") == "failed"
        assert text_of(post(server.url, "hello", run="r2")[1]) == "You said hello"


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize("http", ["h11", "httptools"])
def test_loops_and_parsers_of_uvicorn(loop, http, tmp_path):
    options = ["--loop", loop, "--http", http]
    with served("uvicorn", APP, *options, NOTES=str(tmp_path / "n"), STORE=f"sqlite:{tmp_path}/a.db") as server:
        assert text_of(post(server.url, "hello")[1]) == "You said hello"
        with httpx.stream("POST", server.url + "/", json=run_input("wait /none", "s", "s"), timeout=60) as response:
            lines = response.iter_lines()
            wait_for(lambda: "waiting" in next(lines), "the first words")
            assert httpx.post(server.url + "/runs/s/stop", timeout=60).status_code == 200
            list(lines)
        assert status(server.url, "s") == "stopped"
        whole = httpx.get(server.url + "/runs/r/stream", timeout=60)
        assert text_of(events_of(whole.text)) == "You said hello"


def test_a_run_under_uvloop_without_http(tmp_path):
    """Also `asyncio.run` twice in one process."""
    code = """
import asyncio, uvloop, agentwire

@agentwire.agent
async def echo(request):
    await asyncio.sleep(0)
    yield "You said " + request.user_text()

async def main():
    gateway = agentwire.Gateway(echo, store="memory:")
    async with gateway.lifespan():
        body = {"messages": [{"id": "1", "role": "user", "content": "hi"}]}
        print("".join([e["delta"] async for e in gateway.run(body) if e["type"] == "TEXT_MESSAGE_CONTENT"]))

for run in (uvloop.run, asyncio.run, uvloop.run):
    run(main())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines() == ["You said hi"] * 3, done.stderr
