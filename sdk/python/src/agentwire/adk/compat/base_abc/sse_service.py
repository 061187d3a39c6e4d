"""The interface of services, for programs with a service of their own."""

from __future__ import annotations

from abc import ABCMeta, abstractmethod
from collections.abc import AsyncGenerator, Callable
from typing import Optional

from ag_ui.core import BaseEvent, RunAgentInput
from starlette.requests import Request
from starlette.responses import Response

from ..data_model.common import InputInfo
from .handler import BaseInOutHandler

__all__ = ["BaseSSEService", "EventRunner"]

#: A function that runs an agent and gives its AG-UI events.
EventRunner = Callable[[], AsyncGenerator[BaseEvent, None]]


class BaseSSEService(metaclass=ABCMeta):
    """Answers requests to the main route with a stream of events."""

    @abstractmethod
    async def get_runner(
        self, agui_content: RunAgentInput, request: Request
    ) -> tuple[EventRunner, InputInfo, Optional[BaseInOutHandler]]:
        """The run of a request, which has not begun."""

    @abstractmethod
    async def event_generator(
        self, runner: EventRunner, input_info: InputInfo, inout_handler: Optional[BaseInOutHandler] = None
    ) -> Response:
        """The response with the events of a run."""
