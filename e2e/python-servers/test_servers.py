"""The tests of `e2e/gateway` a second time: the gateway inside a Python program, under each ASGI server and its own."""

import os
import pathlib
import re
import subprocess
import sys

import pytest
from conftest import ROOT

HERE = pathlib.Path(__file__).resolve().parent
GATEWAY = ROOT / "e2e" / "gateway"
SERVERS = ["uvicorn-h11", "uvicorn-httptools", "hypercorn", "granian", "plain", "own"]
#: The tests of clients.test.mjs.
CLIENTS = 22


def run_tests(server, tmp_path, file, *options):
    """Runs a file of the suite with a stand-in for the binary; gives the number of tests."""
    command = tmp_path / "agentwire"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{HERE / "serve.py"}" "$@"\n')
    command.chmod(0o755)
    env = {**os.environ, "AGENTWIRE": str(command), "SERVER": server}
    test = ["node", "--test", "--test-reporter=tap", *options, str(GATEWAY / file)]
    done = subprocess.run(test, cwd=GATEWAY, env=env, capture_output=True, text=True, timeout=1500)
    counts = {name: int(count) for name, count in re.findall(r"^# (\w+) (\d+)$", done.stdout, re.MULTILINE)}
    failures = [part for part in done.stdout.split("\nok ") if "not ok " in part]
    assert done.returncode == 0, "\n".join(failures)[:20000] or done.stdout[-5000:] + done.stderr[-5000:]
    assert counts["fail"] == counts["cancelled"] == counts["todo"] == 0, counts
    return counts["pass"]


@pytest.mark.parametrize("server", SERVERS)
def test_official_clients(server, tmp_path):
    assert run_tests(server, tmp_path, "clients.test.mjs") == CLIENTS


@pytest.mark.parametrize("server", ["uvicorn-httptools", "own"])
def test_a_kill_after_each_event_and_an_agent_that_is_cut_at_each_byte(server, tmp_path):
    pattern = "--test-name-pattern=kill -9|truncates text"
    assert run_tests(server, tmp_path, "life.test.mjs", pattern) >= 2


def test_sigterm_with_live_runs(tmp_path):
    """Of the gateway's own server: ASGI servers refuse connections while they wait for their streams."""
    assert run_tests("own", tmp_path, "life.test.mjs", "--test-name-pattern=SIGTERM") >= 1
