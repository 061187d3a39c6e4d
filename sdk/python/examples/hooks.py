"""Hooks around every run: uvicorn hooks:app"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import agentwire
from agentwire import Event


@agentwire.agent
async def teller(request: agentwire.RunRequest) -> AsyncIterator[str]:
    """Tells a secret."""
    yield "The secret is 42."


class Discreet(agentwire.Hooks):
    """Refuses questions that are too long, and hides numbers."""

    async def input(self, input: dict[str, Any]) -> dict[str, Any]:
        if len(str(input["messages"])) > 10_000:
            raise agentwire.Refused("the question is too long")
        return input

    async def event(self, event: Event) -> Event:
        if event.get("type") == "TEXT_MESSAGE_CONTENT":
            event["delta"] = "".join("*" if letter.isdigit() else letter for letter in event.get("delta", ""))
        return event


app = agentwire.Gateway({"teller": teller}, store="memory:", hooks=Discreet)
