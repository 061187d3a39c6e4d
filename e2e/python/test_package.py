"""The wheel as users install it: contents, version, command, imports and types."""

import ast
import inspect
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import zipfile

import pytest

import agentwire
from conftest import ROOT

WHEEL = pathlib.Path(os.environ["AGENTWIRE_WHEEL"])
BIN = pathlib.Path(sys.executable).parent
#: A program with types, as users write them. The other tests give wrong types on purpose.
TYPED = pathlib.Path(__file__).resolve().parent / "typed_use.py"


def run(*command, **options):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=600, **options)


@pytest.fixture(scope="module")
def empty(tmp_path_factory):
    """An environment with nothing but the wheel."""
    path = tmp_path_factory.mktemp("venv")
    assert run(sys.executable, "-m", "venv", path).returncode == 0
    done = run(path / "bin" / "python", "-m", "pip", "install", "--no-index", WHEEL)
    assert done.returncode == 0, done.stderr
    return path / "bin"


def test_contents():
    names = set(zipfile.ZipFile(WHEEL).namelist())
    assert {"agentwire/py.typed", "agentwire/_native.pyi", "agentwire/_native.abi3.so", "agentwire/hai/output.py"} <= names
    assert re.match(r"agentwire_gateway-[\d.]+-cp310-abi3-", WHEEL.name)
    metadata = next(name for name in names if name.endswith("METADATA"))
    text = zipfile.ZipFile(WHEEL).read(metadata).decode()
    assert "Requires-Dist: langgraph>=0.6 ; extra == 'langgraph'" in text
    assert not [line for line in text.splitlines() if line.startswith("Requires-Dist") and "extra ==" not in line]


def test_versions_agree(empty):
    workspace = re.search(r'^version = "(.*)"$', (ROOT / "Cargo.toml").read_text(), re.MULTILINE).group(1)
    assert agentwire.__version__ == workspace
    assert f"agentwire {workspace}" in run(empty / "agentwire", "--version").stdout
    assert WHEEL.name.split("-")[1] == workspace


#: A program that needs nothing but the wheel: a translation of objects, and a run of a Python agent through the gateway.
PLAIN_USE = """
import asyncio, sys
import agentwire

async def agent(request):
    yield {"type": "TEXT_MESSAGE_CHUNK", "messageId": "m", "delta": "hi"}

async def main():
    gateway = agentwire.Gateway({"one": agent}, store="memory:")
    given = {"threadId": "t", "runId": "r", "messages": [{"id": "u", "role": "user", "content": "x"}]}
    async with gateway.lifespan():
        return [event["type"] async for event in gateway.run(given)]

event = {"event": "on_chat_model_stream", "run_id": "1", "data": {"chunk": {"content": "hi"}}, "metadata": {}}
translator = agentwire.Translator("langgraph", "ai-sdk@5")
assert b'"hi"' in translator.push(event) + translator.finish()
print(sys.version_info[:2], *asyncio.run(main()))
"""


def interpreters():
    """One Python of each supported version that this machine has: on the path, or of pyenv."""
    versions = pathlib.Path(os.environ.get("PYENV_ROOT", pathlib.Path.home() / ".pyenv")) / "versions"
    found = {sys.version_info[:2]: pathlib.Path(sys.executable)}
    for minor in range(10, 20):
        candidates = sorted(versions.glob(f"3.{minor}.*/bin/python"))
        candidates += [pathlib.Path(path) for path in [shutil.which(f"python3.{minor}")] if path]
        works = (path for path in candidates if run(path, "-c", "import ensurepip, ssl").returncode == 0)
        found.setdefault((3, minor), next(works, None))
    return {version: path for version, path in found.items() if path}


def test_other_versions_of_python(tmp_path):
    """The one wheel works on every supported version that is installed here."""
    for (major, minor), python in interpreters().items():
        venv = tmp_path / f"{major}.{minor}"
        assert run(python, "-m", "venv", venv).returncode == 0, python
        done = run(venv / "bin" / "python", "-m", "pip", "install", "--no-index", WHEEL)
        assert done.returncode == 0, done.stderr
        used = run(venv / "bin" / "python", "-W", "error", "-c", PLAIN_USE)
        types = "RUN_STARTED TEXT_MESSAGE_START TEXT_MESSAGE_CONTENT TEXT_MESSAGE_END RUN_FINISHED"
        assert used.stdout.strip() == f"({major}, {minor}) {types}", used.stderr


def test_the_source_distribution(tmp_path):
    """It has the whole workspace of the wheel, with the same version."""
    target = pathlib.Path(os.environ.get("AGENTWIRE_TARGET", ROOT / "target"))
    maturin = target / "venv" / "maturin" / "bin" / "maturin"
    done = run(maturin, "sdist", "--manifest-path", ROOT / "sdk" / "python" / "Cargo.toml", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    (archive,) = tmp_path.glob("*.tar.gz")
    assert archive.name == f"agentwire_gateway-{agentwire.__version__}.tar.gz"
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path, filter="data")
    (folder,) = [path for path in tmp_path.iterdir() if path.is_dir()]
    described = run("cargo", "metadata", "--no-deps", "--offline", "--format-version", "1", cwd=folder)
    packages = json.loads(described.stdout)["packages"]
    assert {"agentwire-python", "agentwire", "agentwire-core", "agentwire-gateway", "agentwire-store"} <= {
        package["name"] for package in packages
    }
    assert (folder / "Cargo.lock").exists() and (folder / "src/agentwire/py.typed").exists()


def test_the_command_in_an_empty_environment(empty, tmp_path):
    stream = tmp_path / "run.jsonl"
    stream.write_text('{"type":"RUN_STARTED","threadId":"t","runId":"r"}\n{"type":"RUN_FINISHED","threadId":"t","runId":"r"}\n')
    for command in ([empty / "agentwire"], [empty / "python", "-m", "agentwire"]):
        assert run(*command, "check", stream).returncode == 0
        assert run(*command, "no-such-command").returncode == 2
        assert "langgraph" in run(*command, "formats").stdout
        assert run(*command, "convert", "--from", "ag-ui", "--to", "hai", tmp_path / "none").returncode == 4
    binary = run(os.environ["AGENTWIRE"], "convert", "--from", "ag-ui", "--to", "ai-sdk", stream)
    ours = run(empty / "agentwire", "convert", "--from", "ag-ui", "--to", "ai-sdk", stream)
    assert ours.stdout == binary.stdout and ours.stdout


def test_a_closed_pipe_ends_the_command_silently(empty):
    done = run("bash", "-c", f"{empty}/agentwire formats | head -1")
    assert done.stdout and not done.stderr


def test_ctrl_c_ends_the_command(empty):
    command = [empty / "agentwire", "convert", "--from", "openai", "--to", "ag-ui"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    process.stdin.write(b'data: {"choices":[{"delta":{"content":"Hi"}}]}\n\n')
    process.stdin.flush()
    # The command runs.
    assert b"RUN_STARTED" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == -signal.SIGINT
    process.stdin.close()
    process.stdout.close()


def test_the_import_is_fast_and_imports_no_framework(empty):
    code = """
import sys, time, json
begun = time.process_time(); import agentwire; took = time.process_time() - begun
import agentwire.hai
agentwire.Translator, agentwire.EventEmitter, agentwire.errors, agentwire.Translator("openai").push({})
names = {name.partition(".")[0] for name in sys.modules} - sys.stdlib_module_names
print(json.dumps([took, sorted(name for name in names if not name.startswith("_"))]))
"""
    took, names = min(json.loads(run(empty / "python", "-c", code).stdout) for _ in range(5))
    assert set(names) <= {"agentwire", "pip", "setuptools", "distutils-precedence"}, names
    assert took < 0.02


@pytest.mark.parametrize(
    ("code", "extra"),
    [
        ("import agentwire.adk", "agentwire-gateway[adk]"),
        ("from agentwire.hai import hai_router", "agentwire-gateway[fastapi]"),
        ("from agentwire import AGUIAdapter; AGUIAdapter(object(), events='ag_ui')", "agentwire-gateway[ag-ui]"),
    ],
)
def test_missing_extras_are_named(empty, code, extra):
    done = run(empty / "python", "-c", code)
    assert done.returncode == 1 and extra in done.stderr


def test_events_are_dicts_without_ag_ui(empty):
    code = """
import asyncio
from agentwire import AGUIAdapter
async def events():
    yield {"event": "on_chain_start", "name": "g", "run_id": "r", "data": {}, "metadata": {}}
async def main():
    async for event in AGUIAdapter(object()).translate(events()):
        print(event["type"])
asyncio.run(main())
"""
    done = run(empty / "python", "-c", code)
    assert done.stdout.split() == ["RUN_STARTED", "RUN_ERROR"], done.stderr


def package():
    return pathlib.Path(agentwire.__file__).parent


def test_mypy(tmp_path):
    examples = sorted((ROOT / "sdk" / "python" / "examples").glob("*.py"))
    done = run(BIN / "mypy", "--strict", "--cache-dir", tmp_path, "-p", "agentwire", cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    done = run(BIN / "mypy", "--strict", "--cache-dir", tmp_path, *examples, TYPED, cwd=tmp_path)
    assert done.returncode == 0, done.stdout


def test_pyright(tmp_path):
    examples = sorted((ROOT / "sdk" / "python" / "examples").glob("*.py"))
    done = run(BIN / "pyright", "--pythonpath", sys.executable, package(), *examples, TYPED, cwd=tmp_path)
    assert done.returncode == 0, done.stdout


def typed_modules():
    """The classes of `_modules.py`: the names of each, and the arguments of its constructor."""
    tree = ast.parse((package() / "_modules.py").read_text())
    for made in (node for node in tree.body if isinstance(node, ast.ClassDef)):
        names, arguments = set(), []
        for node in made.body:
            match node:
                case ast.ImportFrom():
                    names |= {alias.asname for alias in node.names}
                case ast.Assign(targets=[ast.Name(id=name)]):
                    names.add(name)
                case ast.FunctionDef(args=given):
                    arguments = [argument.arg for argument in [*given.args[1:], *given.kwonlyargs, given.kwarg]]
        yield made.name, names, arguments


def test_type_checkers_see_the_names_of_the_modules_that_are_functions():
    from agentwire import adk, langgraph

    seen = {name: (names, arguments) for name, names, arguments in typed_modules()}
    assert seen["adk"][0] == {*adk.__all__, *adk._COMPAT, *adk._ENDPOINT}
    assert seen["langgraph"][0] == set(langgraph.__all__)
    assert seen["adk"][1] == list(inspect.signature(agentwire.adk_agent).parameters)
    assert seen["langgraph"][1] == list(inspect.signature(agentwire.langgraph_agent).parameters)


def test_stubs_are_those_of_the_module(tmp_path):
    done = run(sys.executable, "-m", "mypy.stubtest", "agentwire._native", cwd=tmp_path)
    assert done.returncode == 0, done.stdout


EXAMPLES = ROOT / "sdk" / "python" / "examples"


def test_the_example_of_events():
    done = run(sys.executable, EXAMPLES / "langgraph_events.py")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert (events[0]["type"], events[-1]["type"]) == ("RUN_STARTED", "RUN_FINISHED"), done.stderr
    assert {"type": "CUSTOM", "name": "display_chart", "value": {"type": "line", "data": [1, 5, 3]}} in events


def test_the_example_of_a_hai_agent():
    code = """
import sys; sys.path.insert(0, sys.argv[1])
from fastapi.testclient import TestClient
import hai_agent
print(TestClient(hai_agent.app).post("/awp", json={"messages": [{"role": "user", "content": "hi"}]}).text)
"""
    done = run(sys.executable, "-c", code, EXAMPLES)
    assert "RUN_FINISHED" in done.stdout and "You " in done.stdout, done.stderr


def test_the_example_of_a_pipe():
    done = run("bash", "-c", f"{sys.executable} {EXAMPLES}/pipe_graph.py | {BIN}/agentwire convert --from langgraph --to ag-ui")
    assert "Hello from a graph." in done.stdout and "greeting" in done.stdout, done.stderr
