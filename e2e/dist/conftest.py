"""The files of a release, built once for all tests of this suite."""

import os
import pathlib
import re
import select
import shutil
import subprocess
import sys
import time

import pytest

sys.dont_write_bytecode = True
ROOT = pathlib.Path(os.environ.get("AGENTWIRE_ROOT", pathlib.Path(__file__).resolve().parents[2]))
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
DIST = TARGET / "dist"
VERSION = re.search(r'^version = "(.*)"$', (ROOT / "Cargo.toml").read_text(), re.M).group(1)
# For a machine that is ten times slower than usual.
PATIENCE = 120
CHECK_JSONSCHEMA = pathlib.Path(sys.executable).with_name("check-jsonschema")


def as_root(*command):
    """A command that may change its root folder: by root itself, or by sudo without a password."""
    command = [str(part) for part in command]
    if os.geteuid() == 0:
        return command
    if shutil.which("sudo") and subprocess.run(["sudo", "-n", "true"], stderr=subprocess.DEVNULL).returncode == 0:
        return ["sudo", "-n", *command]
    pytest.fail("this test runs the binary in an empty root, which needs root or sudo without a password")


def output(*command, **options):
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          **options)
    assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}"
    return done.stdout


class Process:
    """A process that is ended with the test."""

    def __init__(self, command, env=None):
        self.process = subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, env=env)
        self.said = ""

    def wait_for(self, pattern):
        """Waits until the output matches, and returns the match."""
        deadline = time.monotonic() + PATIENCE
        while not (found := re.search(pattern, self.said)):
            ready, _, _ = select.select([self.process.stdout], [], [], max(0, deadline - time.monotonic()))
            piece = os.read(self.process.stdout.fileno(), 65536).decode() if ready else ""
            assert piece, f"`{pattern}` does not come:\n{self.said}"
            self.said += piece
        return found

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            rest, _ = self.process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            rest, _ = self.process.communicate()
        self.said += rest.decode()


LISTENING = r"listening\s+(?:\x1b\[1m)?(http://[\d.]+:\d+)"


@pytest.fixture(scope="session")
def dist():
    """The folder of the release."""
    output(ROOT / "scripts/dist")
    return DIST


@pytest.fixture(scope="session")
def binary(dist):
    return dist / "agentwire"


@pytest.fixture(scope="session")
def image(dist):
    """The archive with the image."""
    output(ROOT / "scripts/image")
    return dist / f"agentwire-{VERSION}-oci.tar"


@pytest.fixture
def empty_root(tmp_path, binary):
    """A root folder with nothing but the binary."""
    root = tmp_path / "root"
    root.mkdir()
    shutil.copy(binary, root / "agentwire")
    return root
