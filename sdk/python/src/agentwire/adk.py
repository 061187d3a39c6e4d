"""Tools of the user interface for Google ADK agents.

ADK's HTTP interface cannot be given tools for one run. The gateway therefore
puts the tools that a user interface offers into the session's state, and
``FrontendTools`` offers them to the model as long-running tools: the model
calls one, the run ends, the user interface runs the tool, and the next run
brings the result.

    from agentwire.adk import FrontendTools

    root_agent = LlmAgent(..., tools=[my_own_tool, FrontendTools()])

The agent itself is shared by all users and is never changed: each run sees
the tools in its own session, and only those.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Collection, Mapping
from typing import Any, Optional

from google.adk.agents.readonly_context import ReadonlyContext
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.base_toolset import BaseToolset
from google.adk.tools.tool_context import ToolContext
from google.genai import types

try:
    from google.adk.tools._forwarding_artifact_service import ForwardingArtifactService
except ImportError:  # It is not part of ADK's interface.
    ForwardingArtifactService = ()

__all__ = ["CONTEXT_KEY", "TOOLS_KEY", "FrontendTool", "FrontendTools", "frontend_context"]

TOOLS_KEY = "agentwire:tools"
"""Where in the session's state the gateway puts tools of the user interface."""

CONTEXT_KEY = "agentwire:context"
"""Where in the session's state the gateway puts context of the user interface."""

MAX_TOOLS = 128
"""More tools than this are not offered: the declarations go to the model with every turn, and model
providers refuse more (Gemini's own limit is 128 functions)."""

# Names that ADK answers itself.
_RESERVED = frozenset(
    {
        "transfer_to_agent",
        "set_model_response",
        "finish_task",
        "adk_request_confirmation",
        "adk_request_credential",
        "adk_request_input",
    }
)

_log = logging.getLogger(__name__)


class FrontendTool(BaseTool):
    """A tool that runs in the user interface. Calling it leaves the call open."""

    def __init__(self, name: str, description: str, parameters: Mapping[str, Any]) -> None:
        super().__init__(name=name, description=description, is_long_running=True)
        # ADK and its model adapters may rewrite a schema; the session's state stays as it is.
        self._parameters = copy.deepcopy(dict(parameters))

    def _get_declaration(self) -> types.FunctionDeclaration:
        return types.FunctionDeclaration(
            name=self.name,
            description=self.description,
            parameters_json_schema=self._parameters,
        )

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> None:
        # No provisional answer: the model must not speak before the result is there.
        return None


class FrontendTools(BaseToolset):
    """The tools that the user interface of the current run offers.

    Args:
        only: Names that may be offered; ``None`` allows all. Tools that the
            agent has itself always win over tools of the same name.
    """

    def __init__(self, only: Optional[Collection[str]] = None) -> None:
        super().__init__()
        self._only = None if only is None else frozenset(only)
        # A run that answers a call keeps its invocation id, but may come from a user interface with other
        # tools, and one toolset serves many sessions at once.
        self._use_invocation_cache = False

    async def get_tools(self, readonly_context: Optional[ReadonlyContext] = None) -> list[BaseTool]:
        if readonly_context is None or _is_tool_of_another(readonly_context):
            return []
        offered = readonly_context.state.get(TOOLS_KEY)
        if not offered:
            return []
        if not isinstance(offered, list):
            _log.warning("ignoring %s: expected a list, found %s", TOOLS_KEY, type(offered).__name__)
            return []
        taken = set(_RESERVED) | await self._own_names(readonly_context)
        tools: list[BaseTool] = []
        for entry in offered:
            tool = _tool(entry)
            if tool is None or (self._only is not None and tool.name not in self._only):
                continue
            if tool.name in taken:
                _log.warning("ignoring the tool %r of the user interface: the agent has one of that name", tool.name)
                continue
            if len(tools) >= MAX_TOOLS:
                _log.warning("offering only the first %d tools of the user interface", MAX_TOOLS)
                break
            taken.add(tool.name)
            tools.append(tool)
        return tools

    async def _own_names(self, readonly_context: ReadonlyContext) -> set[str]:
        """The names of the tools that the agent has without us."""
        agent = readonly_context._invocation_context.agent
        # ADK 2 offers some agents below this one as tools.
        names = {inner.name for inner in getattr(agent, "sub_agents", None) or []}
        for tool in getattr(agent, "tools", None) or []:
            if isinstance(tool, FrontendTools):
                continue
            if isinstance(tool, BaseToolset):
                try:
                    names.update(inner.name for inner in await tool.get_tools_with_prefix(readonly_context))
                except Exception as error:
                    # Whether the agent can do without it is for ADK to say.
                    _log.warning("cannot see the tools of %s: %s", type(tool).__name__, error)
            else:
                names.add(getattr(tool, "name", None) or getattr(tool, "__name__", ""))
        return names

    async def close(self) -> None:
        """Nothing is held open."""


def _is_tool_of_another(readonly_context: ReadonlyContext) -> bool:
    """Whether the agent runs as a tool (``AgentTool``): it must end in one go, so nobody could answer its calls."""
    return isinstance(readonly_context._invocation_context.artifact_service, ForwardingArtifactService)


def _tool(entry: Any) -> Optional[FrontendTool]:
    name = entry.get("name") if isinstance(entry, Mapping) else None
    if not isinstance(name, str) or not name:
        _log.warning("ignoring a tool of the user interface without a name")
        return None
    description = entry.get("description")
    parameters = entry.get("parameters")
    if not isinstance(parameters, Mapping):
        parameters = {"type": "object", "properties": {}}
    return FrontendTool(name, description if isinstance(description, str) else "", parameters)


def frontend_context(context: ReadonlyContext) -> str:
    """What the user interface wants the agent to know, one line each; empty if there is nothing.

    For use in an instruction provider:

        LlmAgent(..., instruction=lambda context: "Be brief.\\n" + frontend_context(context))
    """
    entries = context.state.get(CONTEXT_KEY)
    if not isinstance(entries, list):
        return ""
    lines = [
        f"{entry.get('description', '')}: {entry.get('value', '')}" for entry in entries if isinstance(entry, Mapping)
    ]
    return "\n".join(lines)
