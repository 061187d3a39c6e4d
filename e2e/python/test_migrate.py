"""The code of the migration pages runs as printed."""

import pathlib
import re

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from servers import text_of
from test_fastapi import say
from test_local import root_agent, talking

PAGES = pathlib.Path(__file__).resolve().parents[2] / "docs" / "migrate"
#: The apps of each page: name, path of the route, and more members of the input.
APPS = {
    "adk-agui-middleware": [("app", "/", {})],
    "ag-ui-langgraph": [("app", "/agent", {}), ("hooked", "/agent", {})],
    "ag_ui_adk": [("app", "/agent", {}), ("other", "/", {"forwardedProps": {"user": "ann"}}), ("predicting", "/", {})],
    "serve": [("app", "/agents/graph", {})],
}


def test_all_pages_with_python_are_known():
    assert {page.stem for page in PAGES.glob("*.md") if "```python" in page.read_text()} == set(APPS)


@pytest.mark.parametrize("page", APPS)
def test_a_page(page):
    text = (PAGES / f"{page}.md").read_text()
    names = {"agent": root_agent, "graph": talking().compile()}
    apps = []
    for block in re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        exec(compile(block, f"{page}.md", "exec"), names)
        apps.append(names.get("app"))
    for name, path, more in APPS[page]:
        assert isinstance(names[name], FastAPI)
        with TestClient(names[name]) as client:
            events = say(client, "hello", path, **more)
            assert events[-1]["type"] == "RUN_FINISHED" and text_of(events).strip(), (name, events)
    if page == "adk-agui-middleware":
        # The first app of the page, which the second one replaces.
        with TestClient(apps[0]) as client:
            assert "You said" in text_of(say(client, "hello"))
