"""Front-end tools for Google ADK agents.

ADK's HTTP interface accepts no tools for a single run. The gateway therefore
stores the front-end tools of a request in the session's state, and
``FrontendTools`` offers them to the model as long-running tools: the model
calls one, the run ends, the user interface runs the tool, and the next run
contains the result.

    from agentwire.adk import FrontendTools

    root_agent = LlmAgent(..., tools=[my_own_tool, FrontendTools()])

The agent itself is shared by all users and is never modified: each run sees
only the tools of its own session.
"""

from __future__ import annotations

import copy
import inspect
import logging
from collections.abc import Callable, Collection, Mapping
from typing import Any, Optional, Union

from google.adk.agents.readonly_context import ReadonlyContext
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.base_toolset import BaseToolset
from google.adk.tools.tool_context import ToolContext
from google.genai import types

try:
    from google.adk.tools._forwarding_artifact_service import ForwardingArtifactService
except ImportError:  # It is not part of ADK's interface.
    ForwardingArtifactService = ()  # type: ignore[assignment,misc]

__all__ = ["CONTEXT_KEY", "TOOLS_KEY", "AGUIToolset", "FrontendTool", "FrontendTools", "frontend_context"]

TOOLS_KEY = "agentwire:tools"
"""Key in the session's state under which the gateway stores the front-end tools."""

CONTEXT_KEY = "agentwire:context"
"""Key in the session's state under which the gateway stores the context of the user interface."""

MAX_TOOLS = 128
"""Maximum number of tools offered: the declarations are sent to the model with every turn, and model
providers reject more (Gemini's own limit is 128 functions)."""

# Tool names that ADK handles itself.
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
    """A tool that runs in the user interface. A call stays pending."""

    def __init__(self, name: str, description: str, parameters: Mapping[str, Any]) -> None:
        super().__init__(name=name, description=description, is_long_running=True)
        # A copy, because ADK and its model adapters may rewrite a schema, and the session's state must not change.
        self._parameters = copy.deepcopy(dict(parameters))

    def _get_declaration(self) -> types.FunctionDeclaration:
        return types.FunctionDeclaration(
            name=self.name,
            description=self.description,
            parameters_json_schema=self._parameters,
        )

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> None:
        # No provisional result: the model must not continue before the result arrives.
        return None


class FrontendTools(BaseToolset):
    """The front-end tools of the current run.

    Args:
        only: Names of allowed tools; ``None`` allows all. The agent's own
            tools always take precedence over tools of the same name.
        tool_filter: The same as a list, or a function of the tool (and of the
            context, if it takes two arguments).
        tool_name_prefix: The model and the client see ``PREFIX_NAME``.
    """

    def __init__(
        self,
        only: Optional[Collection[str]] = None,
        *,
        tool_filter: Union[Callable[..., bool], list[str], None] = None,
        tool_name_prefix: Optional[str] = None,
    ) -> None:
        super().__init__(tool_filter=tool_filter, tool_name_prefix=tool_name_prefix)
        self._only = None if only is None else frozenset(only)
        # No cache: a run that answers a call keeps its invocation id, but may come from a user interface with
        # other tools, and one toolset serves many sessions at once.
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
            if not self._is_selected(tool, readonly_context):
                continue
            if self._prefixed(tool.name) in taken:
                _log.warning("ignoring the tool %r of the user interface: the agent has one of that name", tool.name)
                continue
            if len(tools) >= MAX_TOOLS:
                _log.warning("offering only the first %d tools of the user interface", MAX_TOOLS)
                break
            taken.add(self._prefixed(tool.name))
            tools.append(tool)
        return tools

    def _prefixed(self, name: str) -> str:
        """The name that the model sees; ADK adds the prefix itself."""
        return f"{self.tool_name_prefix}_{name}" if self.tool_name_prefix else name

    def _is_selected(self, tool: BaseTool, context: Optional[ReadonlyContext]) -> bool:
        chosen: Any = self.tool_filter
        if not chosen:
            return True
        if callable(chosen):
            takes_context = len(inspect.signature(chosen).parameters) > 1
            return bool(chosen(tool, context) if takes_context else chosen(tool))
        return tool.name in chosen or self._prefixed(tool.name) in chosen

    async def _own_names(self, readonly_context: ReadonlyContext) -> set[str]:
        """The names of the agent's own tools."""
        agent = readonly_context._invocation_context.agent
        # ADK 2 offers some subagents as tools.
        names = {inner.name for inner in getattr(agent, "sub_agents", None) or []}
        for tool in getattr(agent, "tools", None) or []:
            if isinstance(tool, FrontendTools):
                continue
            if isinstance(tool, BaseToolset):
                try:
                    names.update(inner.name for inner in await tool.get_tools_with_prefix(readonly_context))
                except Exception as error:
                    # ADK decides whether the agent can run without it.
                    _log.warning("cannot see the tools of %s: %s", type(tool).__name__, error)
            else:
                names.add(getattr(tool, "name", None) or getattr(tool, "__name__", ""))
        return names

    async def close(self) -> None:
        """Does nothing: the toolset has no open resources."""


class AGUIToolset(FrontendTools):
    """`FrontendTools` under the name of ag_ui_adk."""

    def __init__(
        self,
        *,
        tool_filter: Union[Callable[..., bool], list[str], None] = None,
        tool_name_prefix: Optional[str] = None,
    ) -> None:
        super().__init__(tool_filter=tool_filter, tool_name_prefix=tool_name_prefix)


def _is_tool_of_another(readonly_context: ReadonlyContext) -> bool:
    """True if the agent runs as a tool (``AgentTool``): it must finish in one turn and cannot wait for results."""
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
    """The context entries of the user interface, one line each; empty if there are none.

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
