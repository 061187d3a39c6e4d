"""LangGraph's Python client against a gateway; its address is the argument."""

import asyncio
import sys

from langgraph_sdk import get_client


async def main(url: str) -> None:
    client = get_client(url=url, api_key=None)
    thread = (await client.threads.create())["thread_id"]
    human = lambda text: {"messages": [{"role": "user", "content": text}]}
    parts = [part async for part in client.runs.stream(thread, "demo", input=human("hello"), stream_mode=["messages-tuple", "values"])]
    assert parts[0].event == "metadata", parts[0]
    last = [part.data for part in parts if part.event == "values"][-1]
    text = "".join(part.data[0]["content"] for part in parts if part.event == "messages")
    assert text == last["messages"][-1]["content"], (text, last)
    run = parts[0].data["run_id"]
    joined = [part async for part in client.runs.join_stream(thread, run, last_event_id="-1")]
    assert [part.data for part in joined if part.event == "values"][-1] == last
    asked = await client.runs.wait(thread, "demo", input=human("approve"))
    question = asked["__interrupt__"][0]["id"]
    state = await client.threads.get_state(thread)
    assert state["tasks"][0]["interrupts"][0]["id"] == question, state
    done = await client.runs.wait(thread, "demo", command={"resume": {question: {"approved": True}}})
    assert "__interrupt__" not in done, done
    assert len(await client.threads.get_history(thread, limit=3)) == 3
    assert [found["thread_id"] for found in await client.threads.search()] == [thread]
    assert (await client.assistants.search())[0]["graph_id"] == "demo"
    await client.threads.delete(thread)
    assert await client.threads.search() == []
    print("all good")


asyncio.run(main(sys.argv[1]))
