"""Paths and services."""

from ..names import HistoryPathConfig, PathConfig, RunnerConfig, StatePathConfig
from ..services import HistoryConfig, StateConfig

__all__ = ["HistoryConfig", "HistoryPathConfig", "PathConfig", "RunnerConfig", "StateConfig", "StatePathConfig"]
