"""The hook server of docs/hooks.md, as printed: a FastAPI app, its signature check, an agent and the configuration."""

import hashlib
import hmac
import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

ROOT = Path(os.environ.get("AGENTWIRE_ROOT", Path(__file__).resolve().parents[2]))
BINARY = os.environ.get("AGENTWIRE", str(ROOT / "target" / "debug" / "agentwire"))
LIMIT_SECONDS = 300


def blocks() -> dict[str, str]:
    """The code of the section, by its role."""
    page = (ROOT / "docs" / "hooks.md").read_text(encoding="utf-8")
    found = re.findall(r"^```(python|toml)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    roles = {
        "signature.py": "def is_signed(",
        "agent.py": "sys.stdin.readline()",
        "hooks.py": "app = FastAPI()",
        "agentwire.toml": "[agents.echo.hooks]",
    }
    return {role: next(text for _, text in found if mark in text) for role, mark in roles.items()}


def wait_for(condition, what: str):
    deadline = time.monotonic() + LIMIT_SECONDS
    while time.monotonic() < deadline:
        if (value := condition()) is not None:
            return value
        time.sleep(0.05)
    raise AssertionError(f"{what} did not happen within {LIMIT_SECONDS} s")


class Servers:
    """The gateway and its hook server."""

    def __init__(self, folder: Path, secret: str = "change-me") -> None:
        self.processes: list[subprocess.Popen] = []
        for name, text in blocks().items():
            (folder / name).write_text(text, encoding="utf-8")
        # Without a proxy and with the modules of the suite; the port belongs to this test alone.
        self.listener = socket.create_server(("127.0.0.1", 0))
        port = self.listener.getsockname()[1]
        env = {**os.environ, "HOOK_SECRET": "change-me", "PYTHONUNBUFFERED": "1"}
        uvicorn = [sys.executable, "-m", "uvicorn", "hooks:app", "--fd", str(self.listener.fileno())]
        hooks = subprocess.Popen(uvicorn, cwd=folder, env=env, pass_fds=[self.listener.fileno()])
        self.processes.append(hooks)
        config = folder / "agentwire.toml"
        text = config.read_text(encoding="utf-8").replace("127.0.0.1:9000", f"127.0.0.1:{port}")
        text = text.replace('"python3 agent.py"', json.dumps(f"{sys.executable} {folder / 'agent.py'}"))
        config.write_text(text.replace('after = "10s"', 'after = "2s"'), encoding="utf-8")
        self.log = folder / "gateway.log"
        with self.log.open("wb") as log:
            command = [BINARY, "serve", "--config", str(config), "--listen", "127.0.0.1:0"]
            gateway_env = {**env, "HOOK_SECRET": secret}
            gateway = subprocess.Popen(command, cwd=folder, env=gateway_env, stdout=log, stderr=log)
        self.processes.append(gateway)
        self.url = wait_for(self.listening, "the start of the gateway")

    def listening(self) -> str | None:
        text = self.log.read_text(encoding="utf-8", errors="replace")
        if self.processes[-1].poll() is not None:
            raise AssertionError(f"the gateway ended: {text}")
        found = re.search(r"http://127\.0\.0\.1:\d+", text)
        return found.group() if found else None

    def run(self, run: str, text: str, thread: str = "t") -> list[dict]:
        """The events of one run."""
        body = {
            "threadId": thread, "runId": run, "messages": [{"id": run, "role": "user", "content": text}],
            "tools": [], "context": [], "state": {}, "forwardedProps": {},
        }
        headers = {"content-type": "application/json", "accept": "text/event-stream"}
        request = urllib.request.Request(f"{self.url}/", json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=LIMIT_SECONDS) as response:
            lines = response.read().decode().splitlines()
        return [json.loads(line.removeprefix("data:")) for line in lines if line.startswith("data:")]

    def close(self) -> None:
        for process in reversed(self.processes):
            process.terminate()
            process.wait()
        self.listener.close()


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    servers = Servers(tmp_path_factory.mktemp("hooks"))
    yield servers
    servers.close()


def text_of(events: list[dict]) -> str:
    return "".join(event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT")


def test_every_hook_has_its_effect(servers):
    events = servers.run("r1", "write to me@example.org now!")
    assert text_of(events) == "YOU SAID WRITE TO [MAIL] NOW!! "
    types = [event["type"] for event in events]
    assert types[0] == "RUN_STARTED" and types[-1] == "RUN_FINISHED"
    assert [event["name"] for event in events if event["type"] == "CUSTOM"] == ["greeting"]
    states = [event["snapshot"] for event in events if event["type"] == "STATE_SNAPSHOT"]
    assert states[-1] == {"asked": "write to [mail] now!", "checked": True}
    assert types.index("CUSTOM") < types.index("STATE_SNAPSHOT")


def test_a_refusal_reaches_the_client_and_the_lock_is_free_again(servers):
    events = servers.run("r2", "a forbidden word")
    assert (events[-1]["code"], events[-1]["message"]) == ("HOOK_REFUSED", "this word is not allowed here")
    assert servers.run("r3", "next")[-1]["type"] == "RUN_FINISHED"


def test_the_fallback_replaces_a_silent_agent(servers):
    events = servers.run("r4", "sleep", thread="silent")
    assert text_of(events) == "SORRY, NO ANSWER"
    assert events[-1]["type"] == "RUN_FINISHED"


def test_requests_with_another_secret_are_refused(tmp_path):
    servers = Servers(tmp_path, secret="another")
    try:
        assert servers.run("r1", "hello")[-1]["code"] == "HOOK_FAILED"
    finally:
        servers.close()


def test_the_signature_check_as_printed():
    space: dict = {}
    exec(blocks()["signature.py"], space)  # noqa: S102
    is_signed, body = space["is_signed"], b'{"hook":"input"}'

    def sign(secret: bytes, seconds: int, signed: bytes) -> str:
        tag = hmac.new(secret, f"{seconds}.".encode() + signed, hashlib.sha256).hexdigest()
        return f"t={seconds},v1={tag}"

    now = int(time.time())
    assert is_signed(b"key", sign(b"key", now, body), body)
    assert not is_signed(b"key", sign(b"other", now, body), body)
    assert not is_signed(b"key", sign(b"key", now, b"{}"), body)
    assert not is_signed(b"key", sign(b"key", now - 3600, body), body)
    for header in ["", "t=,v1=", "nonsense", f"t={now}", "v1=abc", "t=ä,v1=ö"]:
        assert not is_signed(b"key", header, body), header
