"""The wheel of this tree, installed."""

import sys

import own_wheel

sys.dont_write_bytecode = True
ROOT = own_wheel.ROOT


def pytest_configure(config):
    own_wheel.install("python")
