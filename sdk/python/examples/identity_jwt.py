"""Users by a signed token: JWT_SECRET=… uvicorn identity_jwt:app

The gateway can check tokens itself (`[auth]` in agentwire.toml); a function of your own can do anything.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

import agentwire
import jwt

SECRET = os.environ["JWT_SECRET"]


def sender(request: agentwire.RequestInfo) -> agentwire.Caller:
    """The sender of a request: the subject of its token."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        raise agentwire.Refused("a token is needed", code="NO_IDENTITY", status=401)
    try:
        claims = jwt.decode(token, SECRET, algorithms=["HS256"], options={"require": ["sub", "exp"]})
    except jwt.InvalidTokenError as error:
        raise agentwire.Refused("the token is not valid", code="NO_IDENTITY", status=401) from error
    return agentwire.Caller(user=claims["sub"], tenant=claims.get("org", "default"))


@agentwire.agent
async def greeter(request: agentwire.RunRequest) -> AsyncIterator[str]:
    """Knows who asks."""
    yield f"Hello {request.caller.user} of {request.caller.tenant}."


app = agentwire.Gateway({"greeter": greeter}, store="memory:", identity=sender)
