"""An ADK agent in process: the requests of the upstream `adk`, answered by a `Runner` and its services."""

from __future__ import annotations

import inspect
import json
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Optional, Union
from urllib.parse import unquote

from google.adk.agents import BaseAgent
from google.adk.agents.run_config import RunConfig, StreamingMode  # type: ignore[attr-defined]
from google.adk.artifacts import InMemoryArtifactService
from google.adk.auth.credential_service.in_memory_credential_service import InMemoryCredentialService
from google.adk.events import Event, EventActions
from google.adk.memory import InMemoryMemoryService
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.genai.types import Content

from ..agents import Agent, RunRequest, check_callable, maybe_await, pour
from ..errors import ConfigError

if TYPE_CHECKING:
    from ..bridge import Call

__all__ = ["AdkLocal", "adk_agent"]

AgentOrFactory = Union[BaseAgent, Any, Callable[[RunRequest], Union[BaseAgent, Awaitable[BaseAgent]]]]
#: The services of a runner, with their in-memory forms.
SERVICES: dict[str, Callable[[], Any]] = {
    "session_service": InMemorySessionService,
    "artifact_service": InMemoryArtifactService,
    "memory_service": InMemoryMemoryService,
    "credential_service": InMemoryCredentialService,
}


def is_agent(value: Any) -> bool:
    """True for an ADK agent, and for a node of ADK 2, such as a `Workflow`."""
    if isinstance(value, BaseAgent):
        return True
    try:
        from google.adk.workflow import BaseNode
    except ImportError:
        return False
    return isinstance(value, BaseNode)


def is_app(value: Any) -> bool:
    """True for an ADK `App`."""
    return not is_agent(value) and hasattr(value, "root_agent") and hasattr(value, "name")


class AdkLocal(Agent):
    """An ADK agent or app, or a function that makes an agent per run."""

    def __init__(
        self,
        agent: AgentOrFactory,
        *,
        app_name: Optional[str] = None,
        plugins: Sequence[Any] = (),
        run_config: Any = None,
        use_in_memory_services: bool = True,
        options: Optional[Mapping[str, str]] = None,
        services: Mapping[str, Any],
        **settings: Any,
    ) -> None:
        identity, hooks, lock = (settings.pop(key, None) for key in ("identity", "hooks", "lock"))
        super().__init__(kind="adk", settings=settings, identity=identity, hooks=hooks, lock=lock)
        if not is_agent(agent) and not is_app(agent) and not callable(agent):
            raise ConfigError(f"an ADK agent, an App or a function is needed, not {type(agent).__name__}", key="agent")
        if not is_agent(agent) and not is_app(agent):
            check_callable(agent, "agent", "a function that makes an agent")
        self.agent = agent
        self.app_name = app_name or getattr(agent, "name", None) or "agent"
        self.plugins = list(plugins)
        self.run_config = run_config
        self.options = dict(options or {})
        self.services = dict(services)
        for name, make in SERVICES.items():
            if self.services.get(name) is None:
                if not use_in_memory_services:
                    raise ConfigError(
                        f"there is no `{name}`", key=name, hint=f"give one, or set use_in_memory_services=True"
                    )
                with warnings.catch_warnings():
                    # The program has not chosen the class, and with `-W error` could make no agent.
                    warnings.filterwarnings("ignore", r"\[EXPERIMENTAL\]", UserWarning)
                    self.services[name] = make()
        self._runners: dict[str, Runner] = {}

    def about(self) -> dict[str, Any]:
        options = [f"{key}={value}" for key, value in self.options.items()]
        return {**super().about(), "app": self.app_name, "options": options}

    async def answer(self, call: Call) -> None:
        method = call.payload["method"]
        parts = [unquote(part) for part in call.payload["path"].split("?")[0].strip("/").split("/")]
        if parts[0] == "apps":
            parts[1], parts[3] = self.place(call, parts[1], parts[3])
            if len(parts) > 5:
                parts[5] = await self.session_id(parts[1], parts[3], parts[5])
        match (method, parts):
            case ("POST", ["run_sse"]):
                await self.answer_run(call, json.loads(call.payload["body"]))
            case ("POST", ["apps", app, "users", user, "sessions"]):
                await self._create(call, app, user, json.loads(call.payload["body"]))
            case ("GET", ["apps", app, "users", user, "sessions", session]):
                await self._respond(call, await self._session(app, user, session))
            case ("DELETE", ["apps", app, "users", user, "sessions", session]):
                sessions = self.services["session_service"]
                await sessions.delete_session(app_name=app, user_id=user, session_id=session)
                call.respond(200, None)
            case ("PATCH", ["apps", app, "users", user, "sessions", session]):
                await self._patch(call, app, user, session, json.loads(call.payload["body"]))
            case ("GET", ["apps", app, "users", user, "sessions", session, "artifacts"]):
                names = await self.services["artifact_service"].list_artifact_keys(
                    app_name=app, user_id=user, session_id=session
                )
                call.respond(200, names)
            case ("GET", ["apps", app, "users", user, "sessions", session, "artifacts", name]):
                await self._artifact(call, app, user, session, name, None)
            case ("GET", ["apps", app, "users", user, "sessions", session, "artifacts", name, "versions", version]):
                await self._artifact(call, app, user, session, name, int(version))
            case _:
                call.respond(404, {"detail": "Not Found"})

    def place(self, call: Call, app: str, user: str) -> tuple[str, str]:
        """The app and the user of a session."""
        return app, user

    async def session_id(self, app: str, user: str, session: str) -> str:
        """The id of the session of a thread."""
        return session

    # Sessions

    async def _session(self, app: str, user: str, session: str) -> Any:
        sessions = self.services["session_service"]
        return await sessions.get_session(app_name=app, user_id=user, session_id=session)

    async def _respond(self, call: Call, session: Any) -> None:
        if session is None:
            call.respond(404, {"detail": "Session not found"})
            return
        call.head(200, {"content-type": "application/json"})
        await call.send(session.model_dump_json(by_alias=True, exclude_none=True).encode())

    async def _create(self, call: Call, app: str, user: str, body: dict[str, Any]) -> None:
        sessions = self.services["session_service"]
        name = body.get("sessionId")
        if name is not None and await self._session(app, user, name) is not None:
            call.respond(409, {"detail": f"Session already exists: {name}"})
            return
        made = await sessions.create_session(app_name=app, user_id=user, session_id=name, state=body.get("state"))
        for event in body.get("events") or []:
            await sessions.append_event(session=made, event=Event.model_validate(event))
        await self._respond(call, made)

    async def _patch(self, call: Call, app: str, user: str, session: str, body: dict[str, Any]) -> None:
        found = await self._session(app, user, session)
        if found is not None:
            actions = EventActions(state_delta=body.get("stateDelta") or {})
            event = Event(invocation_id=f"p-{call.id}", author="user", actions=actions)
            await self.services["session_service"].append_event(session=found, event=event)
        await self._respond(call, found)

    async def _artifact(
        self, call: Call, app: str, user: str, session: str, name: str, version: Optional[int]
    ) -> None:
        part = await self.services["artifact_service"].load_artifact(
            app_name=app, user_id=user, session_id=session, filename=name, version=version
        )
        if part is None:
            call.respond(404, {"detail": "Artifact not found"})
            return
        call.head(200, {"content-type": "application/json"})
        await call.send(part.model_dump_json(by_alias=True, exclude_none=True).encode())

    # Runs

    def runner(self, agent: Any, app_name: str) -> Runner:
        """A runner for an agent or app, with the services."""
        if is_app(agent):
            return Runner(app=agent, app_name=app_name, **self.services)
        if self.plugins:
            from google.adk.apps import App

            app = App(name="app", root_agent=agent, plugins=self.plugins)
            return Runner(app=app, app_name=app_name, **self.services)
        kind = "agent" if isinstance(agent, BaseAgent) else "node"
        return Runner(app_name=app_name, **{kind: agent}, **self.services)

    async def _run_config(self, request: RunRequest, body: dict[str, Any]) -> RunConfig:
        given = self.run_config
        if given is not None and not isinstance(given, RunConfig) and callable(given):
            given = await maybe_await(given(request))
        if given is not None:
            found: RunConfig = given
            return found
        mode = StreamingMode.SSE if body.get("streaming") else StreamingMode.NONE
        return RunConfig(streaming_mode=mode)

    async def pour(self, call: Call, events: Any) -> None:
        """Passes the events of a run on."""
        await pour(call, events)

    async def answer_run(self, call: Call, body: dict[str, Any]) -> None:
        """Runs the agent and gives its events."""
        request = call.run_request()
        given: Any = self.agent
        is_made = False
        if not is_agent(given) and not is_app(given):
            given, is_made = await maybe_await(given(request)), True
        app_name, user = self.place(call, self.app_name, body["userId"])
        runner = self._runners.get(app_name)
        if is_made or runner is None:
            runner = self.runner(given, app_name)
            if not is_made:
                self._runners[app_name] = runner
        try:
            message = body.get("newMessage")
            more: dict[str, Any] = {"run_config": await self._run_config(request, body)}
            if body.get("stateDelta"):
                more["state_delta"] = body["stateDelta"]
            if body.get("invocationId"):
                more["invocation_id"] = body["invocationId"]
            call.head(200, {"content-type": "application/x-ndjson"})
            events = runner.run_async(
                user_id=user,
                session_id=await self.session_id(app_name, user, body["sessionId"]),
                new_message=None if message is None else Content.model_validate(message),
                **more,
            )
            await self.pour(call, _told(events, self.app_name))
        finally:
            if is_made:
                await _close(given)


async def _told(events: Any, author: str) -> AsyncIterator[Event]:
    """The events of a run; an empty one for an agent that says nothing, which a broken stream does not have.

    ADK 2 describes an exception by events before it raises it. Its text is for the log, so they wait for what follows.
    """
    is_empty = True
    errors: list[Event] = []
    try:
        async for event in events:
            is_empty = False
            if event.error_code and event.content is None:
                errors.append(event)
                continue
            for error in errors:
                yield error
            errors.clear()
            yield event
    except Exception as raised:
        for error in errors:
            if not _describes(error, raised):
                yield error
        raise
    finally:
        await events.aclose()
    for error in errors:
        yield error
    if is_empty:
        yield Event(author=author, invocation_id="empty")


def _describes(event: Event, error: Exception) -> bool:
    """True if an event was made of an exception."""
    try:
        return event.error_code == type(error).__name__ or event.error_message == str(error)
    except Exception:
        # The text of the exception raises.
        return False


async def _close(agent: Any) -> None:
    for name in ("aclose", "close"):
        function = getattr(agent, name, None)
        if callable(function):
            done = function()
            if inspect.isawaitable(done):
                await done
            return


def adk_agent(
    agent: AgentOrFactory,
    *,
    app_name: Optional[str] = None,
    session_service: Any = None,
    artifact_service: Any = None,
    memory_service: Any = None,
    credential_service: Any = None,
    plugins: Sequence[Any] = (),
    run_config: Any = None,
    use_in_memory_services: bool = True,
    options: Optional[Mapping[str, str]] = None,
    **settings: Any,
) -> Agent:
    """An agent that is an ADK agent or `App` in this process, or a function that makes an agent per run.

    It has what the ADK upstream has: sessions, state, long-running tools, confirmations and credentials as interrupts,
    artifacts, `FrontendTools`. Services that are absent are made in memory, or refused with
    `use_in_memory_services=False`. `run_config` may be a function of the `RunRequest`.
    """
    services = {
        "session_service": session_service,
        "artifact_service": artifact_service,
        "memory_service": memory_service,
        "credential_service": credential_service,
    }
    return AdkLocal(
        agent,
        app_name=app_name,
        plugins=plugins,
        run_config=run_config,
        use_in_memory_services=use_in_memory_services,
        options=options,
        services=services,
        **settings,
    )
