"""The wheel of this tree, installed beside the original: adk-agui-middleware with google-adk 1.x and AG-UI 0.1."""

import pathlib
import sys

E2E = pathlib.Path(__file__).resolve().parents[1]
sys.dont_write_bytecode = True
sys.path[:0] = [str(E2E / "adk" / "apps"), str(E2E / "python")]

import own_wheel  # noqa: E402

ROOT = own_wheel.ROOT


def pytest_configure(config):
    own_wheel.install("adk-middleware")
