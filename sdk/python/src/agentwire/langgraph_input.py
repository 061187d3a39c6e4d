"""Inputs of AG-UI as inputs of graphs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Optional, Union

from . import _native
from .translator import input_text, renamed

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage
    from langgraph.types import Command, StateSnapshot

    from .translator import Input

__all__ = ["to_command", "to_graph_input", "to_langchain"]


def to_langchain(input: Input) -> list[BaseMessage]:
    """The messages of an input as LangChain messages."""
    return messages_of(json.loads(_native.langchain(input_text(input))))


def to_graph_input(
    input: Input, state: Optional[StateSnapshot] = None
) -> Union[dict[str, Any], Command[Any], None]:
    """The input of a graph: its new messages and values, or the answer to its interrupt.

    With the `state` of the thread (`await graph.aget_state(config)`) messages that the thread has are left out.
    `None` continues a graph that stands at a breakpoint.
    """
    known = None if state is None else _native.to_line(state_of(state))
    body = json.loads(_native.graph_input(input_text(input), known))
    if "command" in body:
        return command_of(body["command"])
    values = body["input"]
    if values is None:
        return None
    return {**values, "messages": messages_of(values["messages"])}


def to_command(resume: Any) -> Command[Any]:
    """The command that resumes a graph: from the `resume` of an input (a list, or the object of the draft), from an input
    with `resume` or `forwardedProps.command`, or with any other value as the answer."""
    from langgraph.types import Command

    given: Any = resume
    if isinstance(resume, (str, bytes)):
        try:
            given = json.loads(resume)
        except ValueError:
            return Command(resume=resume)
    is_answer = _is_entry(given)
    is_input = not is_answer and _is_input(given)
    is_list = isinstance(given, (list, tuple)) and len(given) > 0 and all(_is_entry(item) for item in given)
    whole: Any = given
    if is_input:
        text = input_text(whole)
    elif is_list or is_answer:
        # The object of the draft has no status.
        is_draft = isinstance(given, Mapping) and "status" not in given
        text = input_text({"resume": list(given) if is_list else renamed(given) if is_draft else [given]})
    else:
        return Command(resume=resume)
    body = json.loads(_native.graph_input(text))
    return command_of(body["command"]) if "command" in body else Command()


#: The members by which an input is known.
_OF_INPUT = frozenset(("threadId", "thread_id", "messages", "forwardedProps", "forwarded_props", "resume"))


def _is_input(value: Any) -> bool:
    if isinstance(value, Mapping):
        return not _OF_INPUT.isdisjoint(value)
    # A model of the program is an answer.
    return hasattr(value, "model_dump_json") and hasattr(value, "thread_id") and hasattr(value, "messages")


def _is_entry(item: Any) -> bool:
    return hasattr(item, "interrupt_id") or isinstance(item, Mapping) and bool({"interruptId", "interrupt_id"} & set(item))


def command_of(body: Any) -> Command[Any]:
    from langgraph.types import Command

    update = body.get("update")
    if isinstance(update, dict) and isinstance(update.get("messages"), list):
        update = {**update, "messages": messages_of(update["messages"])}
    members: dict[str, Any] = {"resume": body.get("resume"), "update": update}
    if body.get("goto"):
        members["goto"] = body["goto"]
    return Command(**{key: value for key, value in members.items() if value is not None or key == "resume"})


def state_of(state: StateSnapshot) -> dict[str, Any]:
    """A snapshot as LangGraph Server writes it."""
    tasks = [
        {"id": task.id, "name": task.name, "interrupts": list(task.interrupts), "error": None} for task in state.tasks
    ]
    return {"values": state.values, "next": list(state.next), "tasks": tasks}


def messages_of(messages: list[dict[str, Any]]) -> list[BaseMessage]:
    """Dicts with roles as LangChain messages."""
    from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

    made: list[BaseMessage] = []
    for message in messages:
        members = {key: value for key, value in message.items() if key != "role" and value is not None}
        role = message["role"]
        if role == "assistant":
            made.append(AIMessage(**members))
        elif role == "tool":
            made.append(ToolMessage(**members))
        elif role == "user":
            made.append(HumanMessage(**members))
        elif role == "developer":
            made.append(SystemMessage(**members, additional_kwargs={"__openai_role__": "developer"}))
        else:
            made.append(SystemMessage(**members))
    return made
