"""The same agents and requests through adk-agui-middleware and through `agentwire.adk.compat`."""

import json
from importlib import import_module

from fastapi import FastAPI
from fastapi.testclient import TestClient
from google.adk.agents import BaseAgent
from google.adk.events import Event, EventActions
from google.genai import types
from servers import events_of, run_input

ORIGINAL, OURS = "adk_agui_middleware", "agentwire.adk.compat"


class Names:
    """The names of one of the packages, wherever they are in it."""

    MODULES = (
        "base_abc.handler data_model.common data_model.config data_model.context data_model.event endpoint "
        "event.error_event service.history_service service.sse_service service.state_service tools.frontend_tool"
    ).split()

    def __init__(self, package):
        self.package = package
        self.is_ours = package == OURS
        self.modules = [import_module(f"{package}.{name}") for name in self.MODULES]

    def __getattr__(self, name):
        return next(getattr(module, name) for module in self.modules if hasattr(module, name))


class Scripted(BaseAgent):
    """An agent that gives these events; an exception is raised."""

    script: list = []

    async def _run_async_impl(self, ctx):
        for item in self.script:
            if isinstance(item, BaseException):
                raise item
            yield item.model_copy(update={"invocation_id": ctx.invocation_id})


def text(words, *, partial=None, author="demo", **more):
    content = types.Content(role="model", parts=[types.Part(text=words)])
    return Event(author=author, content=content, partial=partial, **more)


def call(name, id, waits=False, **args):
    part = types.Part(function_call=types.FunctionCall(id=id, name=name, args=args))
    ids = {id} if waits else None
    return Event(author="demo", content=types.Content(role="model", parts=[part]), long_running_tool_ids=ids)


def result(name, id, **response):
    part = types.Part(function_response=types.FunctionResponse(id=id, name=name, response=response))
    return Event(author="demo", content=types.Content(role="user", parts=[part]))


def state(**delta):
    return Event(author="demo", actions=EventActions(state_delta=delta))


async def thread_of(content, request):
    return content.thread_id


async def path_thread(request):
    return request.path_params["thread_id"]


class Served:
    """An app with a service, its history and its state."""

    def __init__(self, package, agent, handlers=None, **config):
        self.names = names = Names(package)
        self.app = FastAPI()
        context = names.ConfigContext(app_name="shop", user_id="u", session_id=thread_of, **config)
        runner = names.RunnerConfig()
        made = names.HandlerContext(**(handlers(names) if handlers else {}))
        self.service = names.SSEService(agent=agent, config_context=context, runner_config=runner, handler_context=made)
        self.sessions = runner.session_service
        names.register_agui_endpoint(self.app, self.service, names.PathConfig(agui_main_path="/agui"))
        of_session = {"app_name": "shop", "user_id": "u", "session_id": path_thread, "session_service": self.sessions}
        names.register_agui_history_endpoint(self.app, names.HistoryService(names.HistoryConfig(**of_session)))
        names.register_state_endpoint(self.app, names.StateService(names.StateConfig(**of_session)))
        self.client = TestClient(self.app)

    def __enter__(self):
        self.client.__enter__()
        return self

    def __exit__(self, *error):
        self.client.__exit__(*error)

    def post(self, given):
        response = self.client.post("/agui", json=given, headers={"accept": "text/event-stream"})
        assert response.status_code == 200, response.text
        return response

    def say(self, words, thread="t", run="r", **more):
        return events_of(self.post(run_input(words, thread, run, **more)).text)

    def answer(self, call_id, content, thread="t", run="r2", **more):
        """The result of a call that waits, as the last message."""
        message = {"id": f"tool-{run}", "role": "tool", "toolCallId": call_id, "content": content}
        return events_of(self.post({**run_input("x", thread, run, **more), "messages": [message]}).text)

    def session(self, thread="t"):
        async def found():
            return await self.sessions.get_session(app_name="shop", user_id="u", session_id=thread)

        return self.client.portal.call(found)


#: Members that only one side has, or that differ each time.
LEFT_OUT = ("timestamp", "name", "parentMessageId", "role", "usage", "outcome", "rawEvent", "thinkingId")


def canonical(events):
    """Events without what may differ: new ids by their order, JSON texts as values, the additions of agentwire left out."""
    ids = {}
    found = []
    for event in events:
        kind = event["type"]
        if kind.startswith("STEP_") or (kind == "CUSTOM" and event["name"] == "on_interrupt"):
            continue
        if kind == "CUSTOM" and event["name"].startswith("adk."):
            continue
        if kind == "STATE_SNAPSHOT":
            if found and found[-1]["type"] == "RUN_STARTED" and event is not events[-2]:
                # The gateway's own: the client has an old state.
                continue
            kept = {key: value for key, value in event["snapshot"].items() if (key, value) != ("pending_tool_calls", {})}
            event = {**event, "snapshot": kept}
        left_out = [key for key in LEFT_OUT if not (key == "name" and kind == "CUSTOM")]
        event = {key: value for key, value in event.items() if key not in left_out}
        for key in ("messageId", "toolCallId"):
            if key in event:
                event[key] = ids.setdefault(event[key], f"id-{len(ids)}")
        for key in ("delta", "content"):
            if kind.startswith("TOOL_CALL_") and isinstance(event.get(key), str) and event[key]:
                event[key] = json.loads(event[key])
        found.append(event)
    return found


def improved(events):
    """The original's events with the documented improvements: docs/migrate/adk-agui-middleware.md lists them."""
    found, open_texts = [], []
    for event in events:
        kind = event["type"]
        if kind == "RUN_FINISHED" and any(before["type"] == "RUN_ERROR" for before in found):
            continue
        if kind in ("TOOL_CALL_START", "RUN_FINISHED", "RUN_ERROR"):
            # A message is closed before a call and at the end.
            found += [{"type": "TEXT_MESSAGE_END", "messageId": id} for id in open_texts]
            open_texts = []
        if kind == "TOOL_CALL_END" and found[-1]["type"] == "TOOL_CALL_START":
            # A call without arguments has an empty object.
            found.append({"type": "TOOL_CALL_ARGS", "toolCallId": event["toolCallId"], "delta": "{}"})
        if kind == "TEXT_MESSAGE_START":
            open_texts.append(event["messageId"])
        if kind == "TEXT_MESSAGE_END":
            open_texts = [id for id in open_texts if id != event["messageId"]]
        if kind == "RUN_ERROR" and event["code"] == "EXECUTION_ERROR":
            event = {**event, "message": "Agent execution failed"}
        if kind == "STATE_DELTA":
            delta = [{**change, "path": "/" + _escaped(change["path"][1:])} for change in event["delta"]]
            event = {**event, "delta": delta}
        found.append(event)
    return found


def _escaped(key):
    return key.replace("~", "~0").replace("/", "~1")
