"""The names of ag-ui-langgraph: `LangGraphAgent` and `add_langgraph_fastapi_endpoint`."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from typing import Any, Optional

from .langgraph_local import LangGraphLocal

__all__ = ["LangGraphAgent", "add_langgraph_fastapi_endpoint"]

_log = logging.getLogger("agentwire.langgraph")
#: Arguments of ag-ui-langgraph without a meaning here, with the reason.
IGNORED = {
    "enable_legacy_on_interrupt_event": "profile 0 has it, profile 1 has the outcome",
    "emit_interrupt_outcome": "profile 1 always has it",
    "emit_subagent_events": "options of the reader decide",
    "subagent_visibility": "options of the reader decide",
}


class LangGraphAgent(LangGraphLocal):
    """A graph with a name, as in ag-ui-langgraph."""

    def __init__(
        self,
        *,
        name: str,
        graph: Any,
        description: Optional[str] = None,
        config: Any = None,
        emit_raw_events: bool = False,
        **settings: Any,
    ) -> None:
        for key in [key for key in settings if key in IGNORED]:
            del settings[key]
            _log.warning("LangGraphAgent(%s=…) has no effect: %s", key, IGNORED[key])
        options = dict(settings.pop("options", None) or {})
        if emit_raw_events:
            options["raw"] = "on"
        super().__init__(graph, config=config, options=options, **settings)
        self.name = name
        self.description = description

    def clone(self) -> LangGraphAgent:
        """The agent itself: it holds no state of a run."""
        return self

    def get_capabilities(self) -> dict[str, Any]:
        """Name and description."""
        return {"identity": {"name": self.name, "description": self.description}}

    def run(self, input: Any) -> AsyncGenerator[Any, None]:
        """The events of a run, as objects of `ag_ui.core`."""
        from .langgraph import AGUIAdapter

        config = None if callable(self._config) else self._config
        graph: Any = self.graph
        return AGUIAdapter(graph, config=config, options=self.options).run(input)


def add_langgraph_fastapi_endpoint(app: Any, agent: Any, path: str = "/", **kwargs: Any) -> None:
    """Adds a graph to a FastAPI app or router: `POST {path}`, and `GET {path}/health`."""
    from .fastapi import add_agent

    if isinstance(agent, LangGraphLocal):
        made: LangGraphLocal = agent
    elif hasattr(agent, "graph") and hasattr(agent, "name"):
        # An agent of ag-ui-langgraph, or of CopilotKit.
        made = LangGraphAgent(
            name=agent.name,
            graph=agent.graph,
            description=getattr(agent, "description", None),
            config=getattr(agent, "config", None),
        )
    else:
        made = LangGraphAgent(name="agent", graph=agent)
    name = getattr(made, "name", "agent")
    add_agent(app, made, path, name=name, **kwargs)

    async def health() -> dict[str, Any]:
        return {"status": "ok", "agent": {"name": name}}

    app.add_api_route(f"{path.rstrip('/')}/health", health, methods=["GET"])
