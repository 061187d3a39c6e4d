"""Graphs for a real `langgraph dev`. Their models are scripted; no provider is contacted."""
from __future__ import annotations

import asyncio
import operator
import os
import pathlib
import sys
from typing import Annotated

from typing_extensions import TypedDict

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
# The Python helpers of this repository; the agent itself runs in a copy of its folder.
sys.path.insert(0, str(pathlib.Path(os.environ["AGENTWIRE_SDK"])))

from langchain_core.callbacks import adispatch_custom_event  # noqa: E402
from langchain_core.messages import AIMessage, AIMessageChunk  # noqa: E402
from langchain_core.runnables import RunnableConfig  # noqa: E402
from langchain_core.tools import tool  # noqa: E402
from langgraph.config import get_stream_writer  # noqa: E402
from langgraph.graph import END, START, StateGraph  # noqa: E402
from langgraph.graph.message import add_messages  # noqa: E402
from langgraph.prebuilt import ToolNode, tools_condition  # noqa: E402
from langgraph.types import Send, interrupt  # noqa: E402

from agentwire import EventEmitter  # noqa: E402
from copilotkit.langgraph import (  # noqa: E402
    copilotkit_customize_config, copilotkit_emit_message, copilotkit_emit_state, copilotkit_emit_tool_call, copilotkit_exit,
)
from fakes import ScriptedChatModel, anthropic_turn, calls, long_text, say, usage  # noqa: E402


class S(TypedDict, total=False):
    messages: Annotated[list, add_messages]
    stage: str
    notes: Annotated[list, operator.add]


@tool
async def get_weather(city: str) -> str:
    """Weather."""
    await asyncio.sleep(0.01)
    return f"21 C in {city}"


def _chat(script, node="chatbot", delay=0.0):
    m = ScriptedChatModel(script=script, by_turn=True, delay=delay)

    async def f(s, config: RunnableConfig):
        return {"messages": [await m.ainvoke(s["messages"], config)], "stage": node}
    return f


def _one(node, fn):
    g = StateGraph(S)
    g.add_node(node, fn)
    g.add_edge(START, node)
    g.add_edge(node, END)
    return g


plain = _one("chatbot", _chat([say("Hello from the server.", "chatcmpl-S1", u=usage(5, 5))])).compile()
slow = _one("chatbot", _chat([say("", "chatcmpl-SL", pieces=long_text(60))], delay=0.05)).compile()
think = _one("chatbot", _chat([anthropic_turn("Two plus two.", "Four.", "msg_th")])).compile()

slow_think = _one("chatbot", _chat([anthropic_turn(" ".join(long_text(40)), "Four.", "msg_st")], delay=0.05)).compile()

_tools = StateGraph(S)
_tools.add_node("agent", _chat([calls([("call_s1", "get_weather", {"city": "Paris"}), ("call_s2", "get_weather", {"city": "Rome"})], "chatcmpl-S2"),
                                say("Both are 21 C.", "chatcmpl-S3", u=usage(30, 6))], "agent"))
_tools.add_node("tools", ToolNode([get_weather]))
_tools.add_edge(START, "agent")
_tools.add_conditional_edges("agent", tools_condition)
_tools.add_edge("tools", "agent")
tools = _tools.compile()


async def _custom(s, config: RunnableConfig):
    w = get_stream_writer()
    w({"type": "progress", "pct": 50})
    await adispatch_custom_event("agent_custom_event", {"name": "display_chart", "payload": {"points": [1, 5, 3]}}, config=config)
    w("plain text")
    return {"messages": [AIMessage("done", id="cu-1")], "notes": ["n1"]}


custom = _one("work", _custom).compile()


def _approve(s):
    a = interrupt({"question": "Delete 3 files?", "options": ["yes", "no"]})
    return {"notes": [f"answer={a}"], "stage": "approved"}


_hitl = StateGraph(S)
_hitl.add_node("propose", _chat([say("I want to delete 3 files.", "chatcmpl-H1")], "propose"))
_hitl.add_node("approve", _approve)
_hitl.add_node("finish", lambda s: {"messages": [AIMessage("Finished: " + s["notes"][-1], id="hf-1")]})
_hitl.add_edge(START, "propose")
_hitl.add_edge("propose", "approve")
_hitl.add_edge("approve", "finish")
hitl = _hitl.compile()

_sub = StateGraph(S)
_sub.add_node("research", tools)
_sub.add_node("writer", _chat([say("x", "x"), say("x", "x"), say("Summary written.", "chatcmpl-W")], "writer"))
_sub.add_edge(START, "research")
_sub.add_edge("research", "writer")
sub = _sub.compile()


def _bad(s):
    raise ValueError("node failed on purpose")


def _bad_custom(s):
    class VendorError(Exception):
        pass
    raise VendorError("secret detail that the server hides")


boom = _one("bad", _bad).compile()
boom_custom = _one("bad", _bad_custom).compile()


@tool
def wire_money(amount: int, to: str) -> str:
    """Sends money once a person has agreed."""
    answer = interrupt({"message": f"Send {amount} to {to}?"})
    if not answer.get("approved"):
        return "refused"
    sent = {"amount": amount, "to": to} | answer.get("editedArgs", {})
    return f"sent {sent['amount']} to {sent['to']}"


@tool
def explode(code: int) -> str:
    """Fails."""
    raise ValueError(f"code {code}")


def _agent(script, tools, delay=0.0, **options):
    g = StateGraph(S)
    g.add_node("agent", _chat(script, "agent", delay))
    g.add_node("tools", ToolNode(tools, **options))
    g.add_edge(START, "agent")
    g.add_conditional_edges("agent", tools_condition)
    g.add_edge("tools", "agent")
    return g.compile()


# Every call is a separate task, so that each can wait for its answer.
_pay = StateGraph(S)
_pay.add_node("agent", _chat([calls([("call_p1", "wire_money", {"amount": 1, "to": "Ana"}), ("call_p2", "wire_money", {"amount": 2, "to": "Bob"})], "chatcmpl-P1"),
                              say("Paid.", "chatcmpl-P2")], "agent"))
_pay.add_node("tools", ToolNode([wire_money]))
_pay.add_edge(START, "agent")
_pay.add_conditional_edges("agent", lambda s: [Send("tools", [call]) for call in s["messages"][-1].tool_calls] or END, ["tools", END])
_pay.add_edge("tools", "agent")
pay = _pay.compile()
pay_one = _agent([calls([("call_o1", "wire_money", {"amount": 3, "to": "Cleo"})], "chatcmpl-O1"), say("Done.", "chatcmpl-O2")], [wire_money])
slow_args = _agent([calls([("call_l1", "get_weather", {"city": "".join(long_text(60))})], "chatcmpl-L1", n=6), say("Long.", "chatcmpl-L2")],
                   [get_weather], delay=0.05)


def _ask(s):
    answer = interrupt({"message": "Which colour?"})
    return {"notes": [f"colour={answer}"]}


_painter = StateGraph(S)
_painter.add_node("paint", _chat([say("I paint.", "chatcmpl-N1")], "paint"))
_painter.add_node("ask", _ask)
_painter.add_edge(START, "paint")
_painter.add_edge("paint", "ask")
_nested = StateGraph(S)
_nested.add_node("painter", _painter.compile())
_nested.add_node("report", lambda s: {"messages": [AIMessage("Painted: " + s["notes"][-1], id="nr-1")]})
_nested.add_edge(START, "painter")
_nested.add_edge("painter", "report")
nested = _nested.compile()
_guarded = StateGraph(S)
_guarded.add_node("draft", lambda s: {"messages": [AIMessage("A draft.", id="gd-1")]})
_guarded.add_node("publish", lambda s: {"messages": [AIMessage("Published.", id="gp-1")]})
_guarded.add_edge(START, "draft")
_guarded.add_edge("draft", "publish")
guarded = _guarded.compile(interrupt_before=["publish"])
faulty = _agent([calls([("call_f1", "explode", {"code": 7}), ("call_f2", "no_such_tool", {})], "chatcmpl-F1"),
                 say("It failed.", "chatcmpl-F2")], [explode], handle_tool_errors=True)


async def _branch(s, config: RunnableConfig):
    n = s["number"]
    m = ScriptedChatModel(script=[say(f"branch {n} has five words", f"chatcmpl-B{n}")], delay=0.01)
    return {"messages": [await m.ainvoke([], config)]}


_fan = StateGraph(S)
_fan.add_node("branch", _branch)
_fan.add_node("static", lambda s: {"messages": [AIMessage("nobody streamed this")]})
_fan.add_conditional_edges(START, lambda s: [Send("branch", {"number": n}) for n in (1, 2, 3)], ["branch"])
_fan.add_edge("branch", "static")
fan = _fan.compile()


def _first_chunk_named(name, pieces):
    """Streams like OpenAI's Responses API: the id is in the first chunk only, and LangChain adds its own to the rest."""
    return [AIMessageChunk(content=[], id=name)] + [
        AIMessageChunk(content=[{"type": "text", "text": piece, "index": 0}]) if isinstance(piece, str)
        else AIMessageChunk(content=[], tool_call_chunks=[{"type": "tool_call_chunk", "index": 0, **piece}])
        for piece in pieces
    ]


named_once = _agent([_first_chunk_named("resp_1", [{"id": "call_n1", "name": "get_weather", "args": ""}, {"id": None, "name": None, "args": '{"city":"Oslo"}'}]),
                     _first_chunk_named("resp_2", ["It is ", "21 C."])], [get_weather])


# Everything that the code of a graph can send by hand: with our helper, with LangChain's callbacks, with the names of
# `ag-ui-langgraph` and with CopilotKit's own functions; from a node, from a tool and from a nested graph.
@tool
async def draw(points: list, config: RunnableConfig) -> str:
    """Draws."""
    EventEmitter(config).emit("from_tool", {"points": points})
    return "drawn"


async def _emit(s, config: RunnableConfig):
    EventEmitter(config).emit("display_chart", {"points": [1, 5, 3]})
    await adispatch_custom_event("callback", {"n": 1}, config=config)
    await adispatch_custom_event("manually_emit_message", {"message_id": "mm-1", "message": "By hand."}, config=config)
    await adispatch_custom_event("manually_emit_tool_call", {"id": "mc-1", "name": "show", "args": {"a": 1}}, config=config)
    await adispatch_custom_event("manually_emit_state", {"stage": "by hand"}, config=config)
    await copilotkit_emit_message(config, "By CopilotKit.")
    await copilotkit_emit_tool_call(config, name="show", args={"b": 2}, tool_call_id="mc-2")
    await copilotkit_emit_state(config, {"stage": "by CopilotKit"})
    get_stream_writer()({"type": "progress", "pct": 50})
    await copilotkit_exit(config)
    return {"stage": "emitted"}


async def _emit_inside(s, config: RunnableConfig):
    EventEmitter(config).emit("from_nested", None)
    return {"notes": ["inside"]}


_emitting = StateGraph(S)
_emitting.add_node("emit", _emit)
_emitting.add_node("inner", _one("inside", _emit_inside).compile())
_emitting.add_node("agent", _chat([calls([("call_d1", "draw", {"points": [2]})], "chatcmpl-E1"), say("Drawn.", "chatcmpl-E2")], "agent"))
_emitting.add_node("tools", ToolNode([draw]))
_emitting.add_edge(START, "emit")
_emitting.add_edge("emit", "inner")
_emitting.add_edge("inner", "agent")
_emitting.add_conditional_edges("agent", tools_condition)
_emitting.add_edge("tools", "agent")
emitting = _emitting.compile(name="Emitter")


# Output that the metadata of the model's run hides, and a tool whose arguments predict the state.
def _quiet(script, **metadata):
    m = ScriptedChatModel(script=[script])

    async def f(s, config: RunnableConfig):
        quiet = {**config, "metadata": {**config.get("metadata", {}), **metadata}}
        await m.ainvoke(s["messages"], quiet)
        return {"notes": ["quiet"]}
    return f


async def _by_copilotkit(s, config: RunnableConfig):
    quiet = copilotkit_customize_config(
        config, emit_messages=False, emit_tool_calls=False,
        emit_intermediate_state=[{"state_key": "stage", "tool": "plan", "tool_argument": "stage"}])
    m = ScriptedChatModel(script=[calls([("call_q2", "plan", {"stage": "two"})], "chatcmpl-Q2", text="Secret by CopilotKit.")])
    await m.ainvoke(s["messages"], quiet)
    return {}


async def _predicting(s, config: RunnableConfig):
    m = ScriptedChatModel(script=[calls([("call_q3", "plan", {"stage": "three"})], "chatcmpl-Q3", text="Planning.")])
    predict = [{"state_key": "stage", "tool": "plan", "tool_argument": "stage"}]
    await m.ainvoke(s["messages"], {**config, "metadata": {**config.get("metadata", {}), "predict_state": predict}})
    return {"stage": "planned"}


_conventions = StateGraph(S)
_conventions.add_node("text", _quiet(anthropic_turn("A thought.", "Secret text.", "msg_q0"), **{"emit-messages": False}))
_conventions.add_node("call", _quiet(calls([("call_q1", "plan", {"stage": "one"})], "chatcmpl-Q1", text="Spoken."), **{"emit-tool-calls": False}))
_conventions.add_node("copilotkit", _by_copilotkit)
_conventions.add_node("predict", _predicting)
_conventions.add_node("answer", _chat([say("Done.", "chatcmpl-Q4")], "answer"))
_conventions.add_edge(START, "text")
_conventions.add_edge("text", "call")
_conventions.add_edge("call", "copilotkit")
_conventions.add_edge("copilotkit", "predict")
_conventions.add_edge("predict", "answer")
conventions = _conventions.compile()

# A model with LangGraph's tag for models that are not streamed: its message appears when the node returns it.
_silent_model = ScriptedChatModel(script=[say("Said at once.", "chatcmpl-U1")]).with_config(tags=["nostream"])


async def _silent(s, config: RunnableConfig):
    return {"messages": [await _silent_model.ainvoke(s["messages"], config)]}


unstreamed = _one("silent", _silent).compile()
