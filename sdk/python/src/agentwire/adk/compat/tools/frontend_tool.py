"""The tools of the user interface, under the names of adk-agui-middleware."""

from __future__ import annotations

from collections.abc import Callable
from typing import Optional, Union

from ag_ui.core import Tool
from google.adk.agents.readonly_context import ReadonlyContext
from google.adk.tools.base_tool import BaseTool

from ...frontend import FrontendTool as _FrontendTool
from ...frontend import FrontendTools
from ..manager.queue import QueueManager

__all__ = ["FrontendTool", "FrontendToolset"]


class FrontendTool(_FrontendTool):
    """A tool that runs in the user interface. The client learns of a call from the agent's stream."""

    def __init__(self, agui_tool: Tool, agui_queue: Optional[QueueManager] = None) -> None:
        parameters = agui_tool.parameters
        if not isinstance(parameters, dict):
            parameters = {"type": "object", "properties": {}}
        super().__init__(agui_tool.name, agui_tool.description, parameters)
        self.parameters = parameters
        self.agui_queue = agui_queue


class FrontendToolset(FrontendTools):
    """The tools of the current run's user interface, with a filter and a prefix.

    One toolset serves all sessions: every run sees the tools of its own request.
    """

    def __init__(
        self,
        tool_filter: Union[Callable[..., bool], list[str], None] = None,
        tool_name_prefix: Optional[str] = None,
    ) -> None:
        super().__init__(tool_filter=tool_filter, tool_name_prefix=tool_name_prefix)
        self.frontend_tools: list[FrontendTool] = []

    def set_frontend_tools(self, agui_queue: QueueManager, agui_tools: list[Tool]) -> None:
        """The tools of `get_tools` without a session. A service does not call it."""
        self.frontend_tools = [FrontendTool(tool, agui_queue) for tool in agui_tools]

    async def get_tools(self, readonly_context: Optional[ReadonlyContext] = None) -> list[BaseTool]:
        if readonly_context is not None:
            return await super().get_tools(readonly_context)
        return [tool for tool in self.frontend_tools if self._is_selected(tool, None)]
