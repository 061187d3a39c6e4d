"""The wheel of this tree, installed beside LangGraph 0.6 and AG-UI 0.1."""

import pathlib
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))

import own_wheel  # noqa: E402

ROOT = own_wheel.ROOT


def pytest_configure(config):
    own_wheel.install("python-langgraph-0")
