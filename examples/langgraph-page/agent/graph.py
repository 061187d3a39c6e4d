"""A LangGraph agent with a tool. Its model is scripted, so no API key is needed; replace it with your own."""

import asyncio
import json
import re
from uuid import uuid4

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition


@tool
async def get_weather(city: str) -> str:
    """Tells the weather of a city."""
    return f"21 °C in {city}"


class Scripted(BaseChatModel):
    """Calls the tool for questions about the weather, and reports the result."""

    @property
    def _llm_type(self):
        return "scripted"

    def _deltas(self, messages):
        last = messages[-1]
        if last.type == "tool":
            words = f"It is {last.text}. Take a walk!"
        elif found := re.search(r"weather in (\w+)", last.text):
            call = {"name": "get_weather", "args": json.dumps({"city": found[1]}), "id": f"call-{uuid4()}", "index": 0}
            return [AIMessageChunk("Let me look. "), AIMessageChunk("", tool_call_chunks=[call])]
        else:
            words = f"You said: {last.text}. Ask me about the weather in some city."
        return [AIMessageChunk(word) for word in re.findall(r"\S+\s*", words)]

    async def _astream(self, messages, stop=None, run_manager=None, **_):
        for delta in self._deltas(messages):
            await asyncio.sleep(0.03)
            yield ChatGenerationChunk(message=delta)

    def _generate(self, messages, stop=None, run_manager=None, **_):
        whole = sum(self._deltas(messages)[1:], self._deltas(messages)[0])
        message = AIMessage(whole.content, tool_calls=whole.tool_calls)
        return ChatResult(generations=[ChatGeneration(message=message)])


async def chatbot(state: MessagesState):
    return {"messages": [await Scripted().ainvoke(state["messages"])]}


builder = StateGraph(MessagesState)
builder.add_node("chatbot", chatbot)
builder.add_node("tools", ToolNode([get_weather]))
builder.add_edge(START, "chatbot")
builder.add_conditional_edges("chatbot", tools_condition)
builder.add_edge("tools", "chatbot")
graph = builder.compile()
