"""The toolset for front-end tools, in a real ADK runner."""

import asyncio

from google.adk.agents import LlmAgent
from google.adk.agents.invocation_context import InvocationContext
from google.adk.agents.readonly_context import ReadonlyContext
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.base_toolset import BaseToolset
from google.genai import types

from agentwire.adk import CONTEXT_KEY, MAX_TOOLS, TOOLS_KEY, FrontendTools, frontend_context
from demo.scripted import ScriptedLlm, call, chunk, words


def tool(name, **parameters):
    return {"name": name, "description": f"Does {name}.", "parameters": {"type": "object", "properties": parameters}}


def get_weather(city: str) -> dict:
    """Weather of a city."""
    return {"city": city}


class Bench:
    """One agent shared by many sessions, as on a server."""

    def __init__(self, script, toolset=None):
        self.requests = []

        def remember(request):
            self.requests.append(request)
            return script(request)

        self.agent = LlmAgent(
            name="demo",
            model=ScriptedLlm(script=remember),
            instruction=lambda context: f"Be brief.\n{frontend_context(context)}",
            tools=[get_weather, toolset or FrontendTools()],
        )
        self.sessions = InMemorySessionService()
        self.runner = Runner(agent=self.agent, app_name="app", session_service=self.sessions)

    async def run(self, session, parts, state=None):
        if await self.sessions.get_session(app_name="app", user_id="u", session_id=session) is None:
            await self.sessions.create_session(app_name="app", user_id="u", session_id=session)
        message = types.Content(role="user", parts=parts)
        stream = self.runner.run_async(user_id="u", session_id=session, new_message=message, state_delta=state)
        return [event async for event in stream]

    def offered(self):
        """The tools offered by each request to the model."""
        return [
            sorted(f.name for tool in request.config.tools or [] for f in tool.function_declarations or [])
            for request in self.requests
        ]


def say(text):
    return [types.Part(text=text)]


def answer(event, response):
    function = event.get_function_calls()[0]
    return [types.Part(function_response=types.FunctionResponse(id=function.id, name=function.name, response=response))]


def test_a_front_end_tool_is_called_and_gets_a_result():
    def script(request):
        last = request.contents[-1].parts[-1]
        if last.function_response:
            return words(f"Picked {last.function_response.response['result']}")
        return [chunk(call("pick_colour", of=["red", "blue"]), finish="STOP")]

    bench = Bench(script)
    tools = [tool("pick_colour", of={"type": "array", "items": {"type": "string"}})]

    async def scenario():
        asked = await bench.run("s1", say("pick"), {TOOLS_KEY: tools})
        calls = [event for event in asked if event.get_function_calls()]
        assert calls[-1].long_running_tool_ids == {calls[-1].get_function_calls()[0].id}
        assert not any(event.get_function_responses() for event in asked), "no answer before there is one"
        assert asked[-1] is calls[-1], "the model waits"
        return await bench.run("s1", answer(calls[-1], {"result": "blue"}), {TOOLS_KEY: tools})

    answered = asyncio.run(scenario())
    assert "".join(part.text for part in answered[-1].content.parts) == "Picked blue"
    declaration = bench.requests[0].config.tools[0].function_declarations[-1]
    assert declaration.name == "pick_colour"
    assert declaration.description == "Does pick_colour."
    assert declaration.parameters_json_schema["properties"]["of"]["type"] == "array"


def test_each_run_has_its_own_tools_and_the_agent_is_unchanged():
    bench = Bench(lambda request: words("ok"))
    before = list(bench.agent.tools)

    async def scenario():
        await asyncio.gather(
            *(bench.run(f"s{n}", say(f"run {n}"), {TOOLS_KEY: [tool(f"tool_{n}")]}) for n in range(8))
        )
        await bench.run("s0", say("again"), {TOOLS_KEY: []})
        await bench.run("s1", say("again"))

    asyncio.run(scenario())
    offered = bench.offered()
    assert sorted(offered[:8]) == [["get_weather", f"tool_{n}"] for n in range(8)]
    for request, names in zip(bench.requests[:8], offered[:8]):
        said = request.contents[-1].parts[0].text
        assert names == ["get_weather", f"tool_{said.split()[-1]}"], "no run sees the tools of another"
    assert offered[8] == ["get_weather"], "tools that were taken back are gone"
    assert offered[9] == ["get_weather", "tool_1"], "the state holds until the gateway changes it"
    assert bench.agent.tools == before


def test_tools_may_change_while_a_call_is_pending():
    def script(request):
        if request.contents[-1].parts[-1].function_response:
            return words("thanks")
        return [chunk(call("first"), finish="STOP")]

    bench = Bench(script)

    async def scenario():
        asked = await bench.run("s1", say("go"), {TOOLS_KEY: [tool("first")]})
        await bench.run("s1", answer(asked[-1], {"result": 1}), {TOOLS_KEY: [tool("first"), tool("second")]})

    asyncio.run(scenario())
    assert bench.offered() == [["first", "get_weather"], ["first", "get_weather", "second"]]


def test_agent_tools_take_precedence_and_malformed_entries_are_ignored():
    bench = Bench(lambda request: words("ok"))
    reserved = [tool("transfer_to_agent"), tool("set_model_response"), tool("finish_task")]
    nonsense = [tool("get_weather"), *reserved, {"name": ""}, {"name": 7}, "x", None, tool("a"), tool("a")]
    asyncio.run(bench.run("s1", say("hi"), {TOOLS_KEY: [*nonsense, {"name": "bare"}]}))
    asyncio.run(bench.run("s2", say("hi"), {TOOLS_KEY: "nonsense"}))
    assert bench.offered() == [["a", "bare", "get_weather"], ["get_weather"]]


def test_only_allowed_tools_are_offered_up_to_the_limit():
    bench = Bench(lambda request: words("ok"), FrontendTools(only={"a"}))
    asyncio.run(bench.run("s1", say("hi"), {TOOLS_KEY: [tool("a"), tool("b")]}))
    assert bench.offered() == [["a", "get_weather"]]
    many = Bench(lambda request: words("ok"))
    asyncio.run(many.run("s1", say("hi"), {TOOLS_KEY: [tool(f"t{n}") for n in range(MAX_TOOLS + 5)]}))
    assert len(many.offered()[0]) == MAX_TOOLS + 1


def test_an_agent_used_as_a_tool_gets_no_front_end_tools():
    """It must finish in one turn, so it could not wait for a result."""
    toolset, seen = FrontendTools(), {}

    def script(name, *turns):
        turns = iter(turns)

        def remember(request):
            tools = [f.name for tool in request.config.tools or [] for f in tool.function_declarations or []]
            seen.setdefault(name, []).append(sorted(tools))
            return next(turns)

        return ScriptedLlm(script=remember)

    inner = LlmAgent(name="inner", description="Helps.", model=script("inner", words("helped")), tools=[toolset])
    asks = [chunk(call("inner", request="help"), finish="STOP")]
    outer = LlmAgent(name="outer", model=script("outer", asks, words("ok")), tools=[AgentTool(inner), toolset])

    async def scenario():
        sessions = InMemorySessionService()
        await sessions.create_session(app_name="app", user_id="u", session_id="s", state={TOOLS_KEY: [tool("pick")]})
        runner = Runner(agent=outer, app_name="app", session_service=sessions)
        message = types.Content(role="user", parts=say("go"))
        return [event async for event in runner.run_async(user_id="u", session_id="s", new_message=message)]

    asyncio.run(scenario())
    assert seen == {"outer": [["inner", "pick"]] * 2, "inner": [[]]}


def test_a_failing_toolset_does_not_affect_the_others():
    class Broken(BaseToolset):
        async def get_tools(self, readonly_context=None):
            raise ConnectionError("nobody there")

        async def close(self):
            pass

    async def scenario():
        agent = LlmAgent(name="demo", model=ScriptedLlm(script=lambda request: words("ok")), tools=[Broken()])
        session = await InMemorySessionService().create_session(app_name="app", user_id="u", state={TOOLS_KEY: [tool("a")]})
        sessions = InMemorySessionService()
        context = InvocationContext(invocation_id="i", agent=agent, session=session, session_service=sessions)
        return await FrontendTools().get_tools(ReadonlyContext(context))

    assert [tool.name for tool in asyncio.run(scenario())] == ["a"]


def test_the_schema_in_the_state_is_not_modified():
    state = {TOOLS_KEY: [tool("a", x={"type": "string"})]}

    async def scenario():
        agent = LlmAgent(name="demo", model=ScriptedLlm(script=lambda request: words("ok")))
        session = await InMemorySessionService().create_session(app_name="app", user_id="u", state=state)
        sessions = InMemorySessionService()
        context = InvocationContext(invocation_id="i", agent=agent, session=session, session_service=sessions)
        [offered] = await FrontendTools().get_tools(ReadonlyContext(context))
        offered._get_declaration().parameters_json_schema["properties"]["x"]["type"] = "STRING"
        return session.state[TOOLS_KEY][0]["parameters"]["properties"]["x"]["type"]

    assert asyncio.run(scenario()) == "string"


def test_context_reaches_the_instruction():
    bench = Bench(lambda request: words("ok"))
    context = [{"description": "page", "value": "/cart"}, "nonsense"]
    asyncio.run(bench.run("s1", say("hi"), {CONTEXT_KEY: context}))
    assert "page: /cart" in bench.requests[0].config.system_instruction
