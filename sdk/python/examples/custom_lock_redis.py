"""A lock in Redis around every run: REDIS_URL=redis://127.0.0.1:6379 uvicorn custom_lock_redis:app

The gateway's own lease allows one run per thread in all gateways on one store. This lock is for programs that use the
same threads without a gateway.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from typing import Optional

import agentwire
from redis.asyncio import Redis

#: A lock whose holder has died is free after this time.
SECONDS = 300
#: Deletes a lock only if it is still this run's.
RELEASE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end"


class RedisLock(agentwire.SessionLock):
    """One run per user and thread."""

    def __init__(self, url: str) -> None:
        self.redis: Redis = Redis.from_url(url)

    def key(self, run: agentwire.RunContext) -> str:
        return f"lock:{run.caller.tenant}:{run.caller.user}:{run.thread_id}"

    async def lock(self, run: agentwire.RunContext) -> Optional[bool]:
        return bool(await self.redis.set(self.key(run), run.run_id, nx=True, ex=SECONDS))

    async def unlock(self, run: agentwire.RunContext) -> None:
        await self.redis.eval(RELEASE, 1, self.key(run), run.run_id)


@agentwire.agent
async def echo(request: agentwire.RunRequest) -> AsyncIterator[str]:
    """Repeats the question."""
    yield f"You said {request.user_text()}"


app = agentwire.Gateway({"echo": echo}, store="memory:", lock=RedisLock(os.environ["REDIS_URL"]))
