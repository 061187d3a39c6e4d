"""The examples of the original's README, as printed, with only the import changed.

"As printed" with what google-adk itself accepts: its `MyAgent` has no name, `RunConfig` has no `max_iterations`, and four
of its service classes do not exist. Those are replaced here; everything else is the README's text.
"""

import os
import pathlib
import re
import subprocess
from importlib.metadata import distribution

import google.adk.agents
import google.adk.artifacts
import google.adk.auth.credential_service
import google.adk.memory
import google.adk.sessions
import pytest
from both import Scripted, text
from fastapi.testclient import TestClient
from google.adk.auth.credential_service.in_memory_credential_service import InMemoryCredentialService
from google.adk.plugins.base_plugin import BasePlugin
from servers import events_of, run_input

ROOT = pathlib.Path(os.environ["AGENTWIRE_ROOT"])
BLOCKS = re.findall(r"^```python\n(.*?)^```", str(distribution("adk-agui-middleware").read_text("METADATA")), re.DOTALL | re.MULTILINE)
MY_AGENT = re.compile(r"^class MyAgent\(BaseAgent\):\n(?:(?:[ ].*)?\n)+", re.MULTILINE)


def my_agent():
    return Scripted(name="my_agent", script=[text("Hel", partial=True), text("Hello")])


def changed(block):
    return MY_AGENT.sub("", block.replace("adk_agui_middleware", "agentwire.adk.compat"))


@pytest.fixture
def names(monkeypatch):
    """The names that the README's examples use and do not define."""

    def stand_in(module, name, make):
        monkeypatch.setattr(module, name, make, raising=False)

    run_config = google.adk.agents.RunConfig
    known = run_config.model_fields
    stand_in(google.adk.sessions, "FirestoreSessionService", lambda **_: google.adk.sessions.InMemorySessionService())
    stand_in(google.adk.artifacts, "GCSArtifactService", lambda **_: google.adk.artifacts.InMemoryArtifactService())
    stand_in(google.adk.memory, "RedisMemoryService", lambda **_: google.adk.memory.InMemoryMemoryService())
    stand_in(google.adk.auth.credential_service, "VaultCredentialService", lambda **_: InMemoryCredentialService())
    stand_in(
        google.adk.agents,
        "RunConfig",
        lambda **given: run_config(**{key: value for key, value in given.items() if key in known}),
    )

    async def extract_user_id(content, request):
        return "ann"

    async def extract_session_id(content, request):
        return content.thread_id

    return {
        "__name__": "example",
        "MyAgent": my_agent,
        "MyCustomPlugin": lambda: BasePlugin("one"),
        "AnotherPlugin": lambda: BasePlugin("two"),
        "extract_user_id": extract_user_id,
        "extract_session_id": extract_session_id,
    }


def test_there_are_examples():
    assert len(BLOCKS) >= 11


def test_every_block_runs(names):
    """In the order of the page, each with the names of those before it."""
    for block in BLOCKS:
        exec(compile(changed(block), "README.md", "exec"), names)


def app_of(part, names):
    """The app of the example that has `part`."""
    (block,) = [block for block in BLOCKS if part in block and "uvicorn.run" in block]
    exec(compile(changed(block), "README.md", "exec"), names)
    return names["app"]


def test_the_basic_implementation(names):
    with TestClient(app_of('agui_main_path="/agui"', names)) as client:
        response = client.post("/agui", json=run_input("hi"), headers={"X-User-Id": "ann"})
        events = events_of(response.text)
        assert [events[0]["type"], events[-1]["type"]] == ["RUN_STARTED", "RUN_FINISHED"]
        assert "event: RUN_STARTED" in response.text
        assert response.headers["content-type"].startswith("text/event-stream")


def test_the_advanced_configuration(names):
    with TestClient(app_of("class AGUIConfig", names)) as client:
        ann = {"x-user-id": "ann"}
        events = events_of(client.post("/", json=run_input("hi", "t1", state={"page": 1}), headers=ann).text)
        assert events[-1]["type"] == "RUN_FINISHED"
        assert client.get("/thread/list", headers=ann).json() == [{"threadId": "t1"}]
        assert client.get("/thread/list", headers={"x-user-id": "bob"}).json() == []
        messages = client.get("/message_snapshot/t1", headers=ann).json()["messages"]
        assert [message["content"] for message in messages] == ["hi", "Hello"]
        found = client.get("/state_snapshot/t1", headers=ann).json()["snapshot"]
        assert found["frontend_state"] == {"page": 1}


def test_the_custom_handlers(names):
    (block,) = [block for block in BLOCKS if "class MyTranslateHandler" in block]
    exec(compile(changed(block), "README.md", "exec"), names)
    from agentwire.adk.compat import ConfigContext, HandlerContext, SSEService, register_agui_endpoint
    from fastapi import FastAPI

    app = FastAPI()
    handlers = HandlerContext(
        adk_event_handler=names["MyADKEventHandler"],
        translate_handler=names["MyTranslateHandler"],
        agui_event_handler=names["MyAGUIEventHandler"],
        in_out_record_handler=names["MyInOutHandler"],
    )
    register_agui_endpoint(app, SSEService(my_agent(), ConfigContext(user_id="u"), handler_context=handlers))
    with TestClient(app) as client:
        events = events_of(client.post("/", json=run_input("hi")).text)
        words = [event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT"]
        assert words == ["Hel", "lo"] and events[-1]["type"] == "RUN_FINISHED"


def test_the_command_of_the_migration_page(names, tmp_path):
    """`sed` is the whole migration of the README's first example."""
    page = (ROOT / "docs" / "migrate" / "adk-agui-middleware.md").read_text()
    (command,) = re.findall(r"^sed .*$", page, re.MULTILINE)
    (block,) = [block for block in BLOCKS if 'agui_main_path="/agui"' in block]
    (tmp_path / "app.py").write_text(block)
    subprocess.run(["bash", "-c", command], cwd=tmp_path, check=True)
    assert MY_AGENT.sub("", (tmp_path / "app.py").read_text()) == changed(block)
