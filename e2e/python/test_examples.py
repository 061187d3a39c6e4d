"""Every file of sdk/python/examples runs as its first line says."""

import ast
import asyncio
import json
import os
import pathlib
import subprocess
import sys
import time

import httpx
import jwt
import pytest
from servers import events_of, free_port, post, run_input, served, text_of, wait_for

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "sdk" / "python" / "examples"
#: The examples that are an app, with the answer to "hello" and the path of their route.
APPS = {
    "own_agent": ("You said: hello ", "/"),
    "hooks": ("The secret is **.", "/"),
    "langgraph_fastapi": ("You have asked 1 times.", "/"),
    "adk_fastapi": ("ADK heard: hello", "/"),
    "middleware_quickstart": ("ADK heard: hello", "/agui"),
    "middleware_lifecycle": ("ADK HEARD: HELLO", "/"),
    "two_agents": ("ADK heard: hello", "/agents/shop"),
    "django_asgi": ("You said hello", "/ai"),
    "custom_lock_redis": ("You said hello", "/"),
    "identity_jwt": ("Hello ann of acme.", "/"),
}
#: Those that end by themselves, and those of other tests.
SCRIPTS = {"human_in_the_loop", "langgraph_events", "pipe_graph", "hai_agent"}


@pytest.fixture(scope="module")
def redis():
    """A Redis server of this test."""
    port = free_port()
    command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        import redis

        def answers():
            try:
                return redis.Redis(port=port).ping()
            except redis.ConnectionError:
                return False

        wait_for(answers, "redis-server")
        yield f"redis://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(60)


def test_all_examples_are_known():
    found = {path.stem for path in FOLDER.iterdir() if path.suffix in (".py", ".ipynb")}
    assert found == {*APPS, *SCRIPTS, "jupyter"}


@pytest.mark.parametrize("name", APPS)
def test_an_app(name, tmp_path, request):
    expected, path = APPS[name]
    env = {"NOTES": str(tmp_path / "n"), "JWT_SECRET": "s" * 32}
    headers = {}
    if name == "custom_lock_redis":
        env["REDIS_URL"] = request.getfixturevalue("redis")
    if name == "identity_jwt":
        claims = {"sub": "ann", "org": "acme", "exp": time.time() + 600}
        headers = {"authorization": f"Bearer {jwt.encode(claims, 's' * 32, 'HS256')}"}
    with served("uvicorn", f"{name}:app", folder=FOLDER, ready="/", **env) as server:
        response, events = post(server.url, "hello", path=path, headers=headers)
        assert response.status_code == 200, response.text
        assert text_of(events) == expected, server.log()
        CHECKS.get(name, lambda *_: None)(server, events)


def check_langgraph(server, events):
    assert httpx.get(f"{server.url}/mine").json() == {"hello": "from the app"}
    assert text_of(post(server.url, "again", run="r2")[1]) == "You have asked 2 times."
    assert httpx.get(f"{server.url}/thread/list").json() == [{"threadId": "t"}]


def check_quickstart(server, events):
    headers = {"X-User-Id": "ann"}
    text = httpx.post(f"{server.url}/agui", json=run_input("hi", "t2", "r2"), headers=headers, timeout=60).text
    assert "event: RUN_STARTED" in text and events_of(text)[-1]["type"] == "RUN_FINISHED"


def check_lifecycle(server, events):
    assert {"name": "author", "value": "greeter"}.items() <= events[[e["type"] for e in events].index("CUSTOM")].items()
    assert [event["snapshot"] for event in events if event["type"] == "STATE_SNAPSHOT"] == [{"seen": True}]


def check_two_agents(server, events):
    assert "<title>Two agents</title>" in httpx.get(server.url).text
    message = {"id": "m1", "role": "user", "parts": [{"type": "text", "text": "hello"}]}
    body = {"id": "c1", "messages": [message], "trigger": "submit-message"}
    chat = httpx.post(f"{server.url}/agents/support/api/chat", json=body, timeout=60)
    assert '"type":"text-delta"' in chat.text
    agents = httpx.get(f"{server.url}/copilotkit/info").json()["agents"]
    assert {"support", "shop"} <= set(agents)


def check_identity(server, events):
    for headers in ({}, {"authorization": "Bearer forged"}):
        response, _ = post(server.url, "hello", run="r2", headers=headers)
        assert response.status_code == 401


def check_redis(server, events):
    import redis as client

    connection = client.Redis.from_url(_environment(server)["REDIS_URL"])
    assert connection.keys() == []
    connection.set("lock:default:default-user:t", "another")
    assert post(server.url, "hello", run="r2")[1][-1]["code"] == "THREAD_IS_LOCKED"
    assert connection.get("lock:default:default-user:t") == b"another"


def _environment(server):
    text = pathlib.Path(f"/proc/{server.process.pid}/environ").read_bytes()
    return dict(entry.split("=", 1) for entry in text.decode().split("\0") if "=" in entry)


def check_django(server, events):
    assert httpx.get(f"{server.url}/hello").text == "hello from Django"
    assert httpx.get(f"{server.url}/nothing").status_code == 404


CHECKS = {
    "langgraph_fastapi": check_langgraph,
    "middleware_quickstart": check_quickstart,
    "middleware_lifecycle": check_lifecycle,
    "two_agents": check_two_agents,
    "identity_jwt": check_identity,
    "custom_lock_redis": check_redis,
    "django_asgi": check_django,
}


def test_a_person_is_asked():
    done = subprocess.run([sys.executable, FOLDER / "human_in_the_loop.py"], capture_output=True, text=True, timeout=300)
    assert "asked:" in done.stdout and "said: Paid." in done.stdout, done.stderr


def test_the_notebook(capsys):
    """Its code cells, as a notebook runs them: in one namespace, with `await` at the top level."""
    cells = json.loads((FOLDER / "jupyter.ipynb").read_text())["cells"]

    async def main():
        names = {"__name__": "notebook"}
        for cell in cells:
            if cell["cell_type"] == "code":
                flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
                code = compile("".join(cell["source"]), "jupyter.ipynb", "exec", flags=flags)
                waited = eval(code, names)
                if waited is not None:
                    await waited

    asyncio.run(main())
    out = capsys.readouterr().out
    assert "RUN_FINISHED" in out and "assistant Hello from a notebook." in out
