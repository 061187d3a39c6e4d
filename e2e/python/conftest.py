"""Builds the wheel and installs it, so that the tests import what users install."""

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(os.environ.setdefault("AGENTWIRE_ROOT", str(pathlib.Path(__file__).resolve().parents[2])))
os.environ.setdefault("AGENTWIRE", str(ROOT / "target" / "debug" / "agentwire"))
sys.dont_write_bytecode = True


def pytest_configure(config):
    built = subprocess.run([ROOT / "scripts" / "wheel", "dev"], stdout=subprocess.PIPE, check=True, text=True)
    wheel = ROOT / built.stdout.strip().splitlines()[-1]
    os.environ["AGENTWIRE_WHEEL"] = str(wheel)
    install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--force-reinstall"]
    subprocess.run([sys.executable, *install, wheel], check=True)
