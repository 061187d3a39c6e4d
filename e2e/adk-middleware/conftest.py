"""Builds the wheel and installs it beside the original, adk-agui-middleware with google-adk 1.x and AG-UI 0.1."""

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(os.environ.setdefault("AGENTWIRE_ROOT", str(pathlib.Path(__file__).resolve().parents[2])))
sys.dont_write_bytecode = True
sys.path[:0] = [str(ROOT / "e2e" / "adk" / "apps"), str(ROOT / "e2e" / "python")]


def pytest_configure(config):
    target = pathlib.Path(os.environ.get("AGENTWIRE_TARGET", ROOT / "target"))
    build = [ROOT / "scripts" / "wheel", "dev", target / "wheels" / "adk-middleware"]
    built = subprocess.run(build, stdout=subprocess.PIPE, check=True, text=True)
    wheel = ROOT / built.stdout.strip().splitlines()[-1]
    install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--force-reinstall"]
    subprocess.run([sys.executable, *install, wheel], check=True)
