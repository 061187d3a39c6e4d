"""A typed program that uses the public interface: mypy --strict and pyright must accept it, and see these types."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any, Optional

import agentwire
from fastapi import FastAPI
from google.adk.agents import BaseAgent
from typing_extensions import assert_type


async def said(request: agentwire.RunRequest) -> AsyncIterator[Any]:
    assert_type(request.user_text(), str)
    assert_type(request.messages, list[dict[str, Any]])
    assert_type(request.caller, agentwire.Caller)
    yield "text"


class Loud(agentwire.Hooks):
    timeout = 5.0

    async def input(self, input: dict[str, Any]) -> dict[str, Any]:
        assert_type(self.run, agentwire.RunContext)
        return input

    async def translate(self, event: Any) -> agentwire.Translation:
        return agentwire.Translation.replace(event)

    async def event(self, event: agentwire.Event) -> AsyncIterator[agentwire.Event]:
        yield event

    def native(self, event: Any) -> Iterator[Any]:
        yield event

    def output(self, event: agentwire.Event) -> agentwire.Event:
        return event


class Lock(agentwire.SessionLock):
    async def lock(self, run: agentwire.RunContext) -> Optional[bool]:
        return run.thread_id != "taken"


async def who(info: agentwire.RequestInfo) -> Optional[agentwire.Caller]:
    user = info.headers.get("x-user")
    if user == "refused":
        raise agentwire.Refused("no", code="NOT_TODAY", status=403)
    return None if user is None else agentwire.Caller(user)


def made() -> agentwire.Gateway:
    agents: dict[str, Any] = {
        "said": agentwire.agent(said, hooks=Loud, lock=Lock()),
        "other": agentwire.upstream("ag-ui", url="http://127.0.0.1:9/"),
        "url": "http://127.0.0.1:9/",
    }
    return agentwire.Gateway(agents, store="memory:", identity=who, retention="1d", default="said")


async def use(gateway: agentwire.Gateway) -> None:
    async with gateway.lifespan():
        handle = gateway.run({"messages": []}, agent="said", caller=agentwire.Caller("ann"))
        assert_type(handle, agentwire.RunHandle)
        async for event in handle:
            assert_type(event, dict[str, Any])
        assert_type(await handle.result(), dict[str, Any])
        status, headers, body = await gateway.request("GET", "/livez")
        assert_type((status, headers, body), tuple[int, dict[str, str], bytes])
    await gateway.serve("127.0.0.1:0")


def translate() -> bytes:
    translator = agentwire.Translator("langgraph", "ai-sdk@5", strict=True)
    assert_type(translator.push({"event": "on_chain_start"}), bytes)
    assert_type(translator.report(), agentwire.Report)
    assert_type(translator.headers, dict[str, str])
    assert_type(agentwire.apply_patch({}, []), Any)
    assert_type(agentwire.diff({}, {"a": 1}), list[dict[str, Any]])
    return translator.finish()


def modules(agent: BaseAgent, graph: Any, app: FastAPI, named: agentwire.adk.ADKAgent) -> list[agentwire.Agent]:
    """`agentwire.adk` and `agentwire.langgraph` are functions, and have the names of the modules."""
    made = agentwire.adk.ADKAgent(agent, app_name="shop", user_id="ann")
    assert_type(made, agentwire.adk.ADKAgent)
    assert_type(agentwire.adk.create_adk_app(made), FastAPI)
    assert_type(agentwire.adk.add_adk_fastapi_endpoint(app, named, path="/shop"), None)
    config = agentwire.adk.ConfigContext(app_name="shop", user_id="ann")
    service = agentwire.adk.SSEService(agent=agent, config_context=config)
    assert_type(agentwire.adk.register_agui_endpoint(app, service), None)
    assert_type(agentwire.adk.adk_agent(agent), agentwire.Agent)
    adapter = agentwire.langgraph.AGUIAdapter(graph)
    assert_type(adapter.report(), Optional[agentwire.Report])
    other = agentwire.langgraph.LangGraphAgent(name="other", graph=graph)
    assert_type(agentwire.langgraph.add_langgraph_fastapi_endpoint(app, other, "/other"), None)
    return [agentwire.adk(agent, app_name="shop"), agentwire.langgraph(graph, state_keys=("plan",)), made, other]
