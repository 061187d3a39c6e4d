"""An app for the tests of the gateway: `uvicorn gateway_app:app`, with settings from the environment."""

import asyncio
import contextvars
import logging
import os

import agentwire
from fastapi import FastAPI, Request

logging.basicConfig(level=logging.INFO)
NOTES = os.environ.get("NOTES", os.devnull)
language = contextvars.ContextVar("language", default="none")


def note(text):
    with open(NOTES, "a", encoding="utf-8") as file:
        file.write(f"{os.getpid()} {text}\n")


@agentwire.agent
async def echo(request):
    """Answers as the message says."""
    words = request.user_text().split()
    kind = words[0] if words else ""
    if kind == "long":
        note("begin")
        try:
            for _ in range(int(words[1])):
                yield {"type": "CUSTOM", "name": "tick", "value": "x" * int(words[2]) if len(words) > 2 else 1}
                await asyncio.sleep(0)
            note("end")
        except asyncio.CancelledError:
            note("cancelled")
            raise
    elif kind == "wait":
        note("begin")
        yield "waiting"
        try:
            while not os.path.exists(words[1]):
                await asyncio.sleep(0.02)
            yield " done"
            note("end")
        except asyncio.CancelledError:
            note("cancelled")
            raise
    elif kind == "fail":
        yield "before"
        raise agentwire.Failure("NO_CREDIT", "the account is empty") if words[1:] else RuntimeError("secret text")
    elif kind == "who":
        yield f"{request.caller.tenant}/{request.caller.user} {language.get()}"
    elif kind == "odd":
        yield None
        yield 42
        yield [1, 2, "text"]
        yield {"type": "TEXT_MESSAGE_CHUNK", "delta": "."}
    else:
        yield f"You said {request.user_text()}"


async def who(info):
    """The identity of the tests: a header, or what a word in it asks for."""
    user = info.headers.get("x-user")
    if user == "refused":
        raise agentwire.Refused("not today", code="NOT_TODAY", status=418)
    if user == "broken":
        raise RuntimeError("secret text")
    if user == "http":
        from fastapi import HTTPException

        raise HTTPException(403, "no entry")
    if user == "late":
        await asyncio.sleep(60)
    if user == "body":
        return agentwire.Caller(info.input["forwardedProps"]["user"], "acme")
    if user == "bad":
        return "line\nbreak"
    return user


settings = {"store": os.environ.get("STORE", "memory:"), "drain": {"grace": os.environ.get("DRAIN", "1s")}}
if "IDENTITY" in os.environ:
    settings |= {"identity": who, "identity_timeout": 0.5}
gateway = agentwire.Gateway({"echo": echo}, **settings)
alone = gateway
app = FastAPI(lifespan=gateway.lifespan if "NO_LIFESPAN" not in os.environ else None)


@app.middleware("http")
async def speak(request: Request, call_next):
    language.set(request.headers.get("accept-language", "none"))
    return await call_next(request)


@app.get("/mine")
async def mine():
    return {"mine": os.getpid()}


app.mount("/ai", gateway)
app.mount("/state-only", gateway.routes("state"))
app.mount("/", gateway)
