"""An agent of your own behind the gateway: uvicorn own_agent:app"""

from __future__ import annotations

from collections.abc import AsyncIterator

import agentwire


@agentwire.agent
async def echo(request: agentwire.RunRequest) -> AsyncIterator[str]:
    """Repeats the question, word by word."""
    yield "You said: "
    for word in request.user_text().split():
        yield f"{word} "


app = agentwire.Gateway({"echo": echo}, store="memory:")
