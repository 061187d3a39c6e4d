"""Builds the wheel and installs it into this environment, so that tests import what users install."""

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(os.environ.setdefault("AGENTWIRE_ROOT", str(pathlib.Path(__file__).resolve().parents[2])))
TARGET = pathlib.Path(os.environ.setdefault("AGENTWIRE_TARGET", str(ROOT / os.environ.get("CARGO_TARGET_DIR", "target"))))
os.environ.setdefault("AGENTWIRE", str(TARGET / "debug" / "agentwire"))


def install(suite):
    """Each suite has its own folder, so that two of them do not disturb each other."""
    build = [ROOT / "scripts" / "wheel", "dev", TARGET / "wheels" / suite]
    built = subprocess.run(build, stdout=subprocess.PIPE, check=True, text=True)
    wheel = ROOT / built.stdout.strip().splitlines()[-1]
    os.environ["AGENTWIRE_WHEEL"] = str(wheel)
    options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--force-reinstall"]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, wheel], check=True)
