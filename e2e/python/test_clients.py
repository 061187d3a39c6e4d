"""The official JavaScript clients of AG-UI, the AI SDK and HAI against uvicorn with a `Gateway`."""

import json
import pathlib
import subprocess

from servers import served

HERE = pathlib.Path(__file__).resolve().parent


def test_official_clients(tmp_path):
    with served("uvicorn", "gateway_app:app", NOTES=str(tmp_path / "n")) as server:
        command = ["node", HERE / "clients.mjs", server.url, tmp_path]
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr + server.log()
        got = json.loads(done.stdout.splitlines()[-1])
    assert {name: found["text"] for name, found in got.items()} == dict.fromkeys(got, "You said hello")
    assert len(got) == 7
    assert got["@ag-ui/client"]["seen"] == ["RUN_STARTED", "RUN_FINISHED"]
    assert got["ai 7.0.169"]["status"] == "ready"
