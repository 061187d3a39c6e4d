"""`ag-ui-langgraph`'s endpoint with its default settings: interrupts are CUSTOM `on_interrupt` events."""

import json
import operator
import sys
from typing import Annotated

import uvicorn
from ag_ui_langgraph import LangGraphAgent, add_langgraph_fastapi_endpoint
from fastapi import FastAPI
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import interrupt


class State(MessagesState):
    answers: Annotated[list, operator.add]


def question(name, value):
    def ask(_state):
        return {"answers": [[name, interrupt(value)]]}

    return ask


def route(state):
    text = state["messages"][-1].content
    if "two" in text:
        return ["colour", "size"]
    return "text" if "text" in text else "object" if "ask" in text else "reply"


def reply(state):
    answers = state.get("answers") or []
    text = json.dumps(sorted(answers, key=str)) if answers else "Nothing was asked."
    return {"messages": [AIMessage(content=text, id=f"ai-{len(state['messages'])}")]}


graph = StateGraph(State)
graph.add_node("object", question("object", {"question": "Which one?", "options": ["a", "b"]}))
graph.add_node("text", question("text", "Really?"))
graph.add_node("colour", question("colour", {"question": "Which colour?"}))
graph.add_node("size", question("size", {"question": "Which size?"}))
graph.add_node("reply", reply)
graph.add_conditional_edges(START, route, ["object", "text", "colour", "size", "reply"])
for name in ["object", "text", "colour", "size"]:
    graph.add_edge(name, "reply")
graph.add_edge("reply", END)

app = FastAPI()
agent = LangGraphAgent(name="asks", graph=graph.compile(checkpointer=InMemorySaver()))
add_langgraph_fastapi_endpoint(app, agent, "/")


@app.get("/status")
def status():
    return "ok"


uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
