"""A HAI agent with the server kit. The last user message, or the last tool result, selects the answer.

It writes what it observes to files in the folder `WITNESS`, and waits for files there.
"""

import asyncio
import json
import os
import pathlib

from agentwire.hai import Agent, HAIAgentRequest, hai_router
from fastapi import FastAPI

WITNESS = pathlib.Path(os.environ["WITNESS"])

FORM = {
    "type": "object",
    "properties": {"amount": {"type": "integer"}, "paper": {"enum": ["A4", "A3"]}},
    "required": ["amount"],
}


class Refused(Exception):
    """An error that is made for users."""

    code = "OUT_OF_PAPER"
    message = "no paper is left"


async def file(name):
    while not (WITNESS / name).exists():
        await asyncio.sleep(0.01)


class Desk(Agent):
    async def run(self, body: HAIAgentRequest) -> None:
        with (WITNESS / "requests.jsonl").open("a") as requests:
            requests.write(body.model_dump_json() + "\n")
        last = body.messages[-1]
        async with self.stream(body) as stream:
            if last.role == "tool":
                await self.answer(stream, body, last)
            else:
                await getattr(self, body.user_text().split()[0])(stream, body)

    async def text(self, stream, body):
        async with stream.message() as message:
            await message.text("你好 ")
            # The rest follows when the page has shown the beginning.
            await file("seen")
            await message.text("a}{b ")
            await message.text("🙂")

    async def blocks(self, stream, body):
        out = self.outputer
        page = {"title": "Stock", "description": "by size", "data": [{"output": out.build_table_output(["size", "sheets"], [["A4", 500]])}]}
        await stream.hand_over("USER", "planner", {"id": "t1", "name": "Plan"})
        await stream.state("add", "/workflowItems", [])
        await stream.state("add", "/workflowItems/-", {"name": "Plan", "status": "running"})
        async with stream.step("Report"), stream.message() as message:
            await message.output(out.build_thinking_output("Counting", elapsed=1))
            await message.output(out.build_thinking_output(" sheets", elapsed=2, thinking=False))
            await message.output(out.build_fold_output("Details"))
            await message.output(out.build_tool_call_show_output("show", "Search", "search", [out.build_tool("s1", "stock", "looks", 50)]))
            await message.output(out.build_tool_call_show_output("show", "Search", "search", [out.build_tool("s1", "stock", "looked", 100, page)]))
            await message.output(out.build_fold_output("Details", position="end"))
            await message.output(out.build_table_output(["size", "sheets"], [["A4", 500], ["A3", 20]]), layout={"x": 0, "y": 1})
            await message.output(out.build_echarts_output({"series": [{"type": "bar", "data": [500, 20]}]}), layout={"x": 1, "y": 1})
            await message.output(out.build_image_output("image/gif", data="R0lGODlhAQABAAAAACw=", name="dot.gif"), block_id="b1", style={"background": True})
            await message.output(out.build_file_output("text/csv", url="https://example.org/stock.csv", name="stock.csv"), block_id="b1")
            await message.output(out.build_icon_output("warning", "#f00"))
            await message.output(out.build_button_output("order"))
            await message.output({"type": "weather", "data": {"degrees": 21}})
            await message.text("Done.")
        await stream.state("replace", "/workflowItems/0/status", "done")
        await stream.send(out.build_custom("stock.low", {"size": "A3"}))

    async def order(self, stream, body):
        await stream.tool_call("orderForm", {"title": "Order", "schema": FORM}, tool_call_id=self.outputer.new_id("form"))

    async def answer(self, stream, body, result):
        given = json.loads(result.text())
        if result.toolCallId.startswith("form"):
            await stream.tool_call("confirmAction", {"action": f"Order {given['amount']} × {given['paper']}", "importance": "high"}, tool_call_id=self.outputer.new_id("confirm"))
            return
        async with stream.message() as message:
            await message.text("Ordered." if given is True else "Nothing was ordered.")

    async def count(self, stream, body):
        try:
            async with stream.message() as message:
                for number in range(100_000):
                    await message.text(f"{number} ")
                    (WITNESS / "count").write_text(str(number))
                    await asyncio.sleep(0.002)
        except asyncio.CancelledError:
            (WITNESS / "cancelled").write_text("yes")
            raise

    async def some(self, stream, body):
        async with stream.step("Count"), stream.message() as message:
            for number in range(150):
                await message.text(f"{number} ")
                if number % 10 == 0:
                    await stream.state("add", "/number", number)
                    await asyncio.sleep(0)

    async def refuse(self, stream, body):
        async with stream.message() as message:
            await message.text("Looking")
            raise Refused()

    async def crash(self, stream, body):
        raise RuntimeError("the password is hunter2")

    async def die(self, stream, body):
        async with stream.message() as message:
            await message.text("Looking")
            await asyncio.sleep(0.2)
            os._exit(1)


app = FastAPI()
app.include_router(hai_router(Desk))
