"""The wheel as PyPI and pip see it."""

import os
import pathlib
import subprocess
import sys

WHEEL = pathlib.Path(os.environ["AGENTWIRE_WHEEL"])


def run(*command):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=600)


def test_auditwheel():
    """Its libraries are those of every Linux with this glibc, and its symbols are those of the stable ABI."""
    done = run(sys.executable, "-m", "auditwheel", "show", WHEEL)
    assert done.returncode == 0, done.stderr
    told = " ".join(done.stdout.split())
    assert 'is consistent with the following platform tag: "manylinux_2_' in told, done.stdout
    # None but those of the system; others would have to be in the wheel.
    assert "requires external shared libraries" not in told and "would be" not in told.split("This constrains")[0], told


def test_twine():
    done = run(sys.executable, "-m", "twine", "check", "--strict", WHEEL)
    assert done.returncode == 0 and "PASSED" in done.stdout, done.stdout + done.stderr

