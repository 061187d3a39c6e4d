"""The names of ag-ui-langgraph: `LangGraphAgent` and `add_langgraph_fastapi_endpoint`."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from typing import Any, Optional

from .langgraph_local import LangGraphLocal

__all__ = ["LangGraphAgent", "add_langgraph_fastapi_endpoint"]

_log = logging.getLogger("agentwire.langgraph")


class LangGraphAgent(LangGraphLocal):
    """A graph with a name, as in ag-ui-langgraph. It is an agent of a gateway, and `run` gives events without HTTP."""

    def __init__(
        self,
        *,
        name: str,
        graph: Any,
        description: Optional[str] = None,
        config: Any = None,
        enable_legacy_on_interrupt_event: bool = True,
        emit_interrupt_outcome: Optional[bool] = None,
        emit_raw_events: bool = False,
        emit_subagent_events: Optional[bool] = None,
        subagent_visibility: Optional[str] = None,
        **settings: Any,
    ) -> None:
        options = dict(settings.pop("options", None) or {})
        if emit_raw_events:
            options.setdefault("raw", "on")
        if emit_subagent_events or subagent_visibility == "attributed":
            options.setdefault("subagents", "on")
        elif subagent_visibility not in (None, "inline"):
            _log.warning("LangGraphAgent(subagent_visibility=%r) has no effect: use hide_nodes", subagent_visibility)
        if emit_interrupt_outcome is False:
            _log.warning("LangGraphAgent(emit_interrupt_outcome=…) has no effect: AG-UI 1 always has the outcome")
        if not enable_legacy_on_interrupt_event:
            _log.warning("LangGraphAgent(enable_legacy_on_interrupt_event=…) has no effect: AG-UI 0 always has it")
        super().__init__(graph, config=config, options=options, **settings)
        self.name = name
        self.description = description

    def clone(self) -> LangGraphAgent:
        """The agent itself: it holds no state of a run."""
        return self

    def get_capabilities(self) -> dict[str, Any]:
        """Name, description and abilities."""
        about = {"name": self.name, "description": self.description, "type": "langgraph"}
        return {
            "identity": {key: value for key, value in about.items() if value is not None},
            "humanInTheLoop": {"supported": True, "interrupts": True, "approveWithEdits": True},
            "state": {"snapshots": True, "deltas": True, "persistentState": True},
            "transport": {"streaming": True},
        }

    def run(self, input: Any) -> AsyncGenerator[Any, None]:
        """The events of a run, as objects of `ag_ui.core`."""
        from .langgraph import AGUIAdapter

        config = None if callable(self._config) else self._config
        graph: Any = self.graph
        return AGUIAdapter(graph, config=config, options=self.options).run(input)


def add_langgraph_fastapi_endpoint(app: Any, agent: Any, path: str = "/", **kwargs: Any) -> None:
    """Adds a graph to a FastAPI app or router: `POST {path}`, and `GET {path}/health`.

    `agent` is a `LangGraphAgent` (also one of ag-ui-langgraph or CopilotKit) or a compiled graph. Further arguments are
    those of the route of `POST`, such as `dependencies` or `tags`.
    """
    from .fastapi import add_routes, gateway_of

    if isinstance(agent, LangGraphLocal):
        made: LangGraphLocal = agent
    elif hasattr(agent, "graph") and hasattr(agent, "name"):
        description, config = getattr(agent, "description", None), getattr(agent, "config", None)
        made = LangGraphAgent(name=agent.name, graph=agent.graph, description=description, config=config)
    else:
        made = LangGraphAgent(name="agent", graph=agent)
    name = str(getattr(made, "name", "agent"))
    gateway = gateway_of(app)
    known = _name_in(gateway.agents, name)
    add_routes(app, gateway, made, path, known, ("ag_ui",), kwargs)

    async def health() -> dict[str, Any]:
        return {"status": "ok", "agent": {"name": name}}

    app.add_api_route(f"{path.rstrip('/')}/health", health, methods=["GET"])


def _name_in(taken: list[str], name: str) -> str:
    """A name for a gateway: an agent may be at several paths, and its name may have any characters."""
    plain = "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in name) or "agent"
    number = 1
    while (found := plain if number == 1 else f"{plain}-{number}") in taken:
        number += 1
    return found
