"""A HAI agent with the server kit of agentwire. It is scripted, so that it needs no model.

`report` shows every block, `order` asks a person twice, `count` runs until it is stopped, `fail` fails.
"""

import asyncio
import json
import os

from agentwire.hai import Agent, HAIAgentRequest, hai_router
from fastapi import FastAPI

SALES = {"Paper": [120, 200, 150], "Ink": [60, 30, 90]}
FORM = {
    "type": "object",
    "title": "Order",
    "properties": {
        "item": {"type": "string", "title": "Item", "enum": list(SALES)},
        "amount": {"type": "integer", "title": "Amount", "minimum": 1},
        "express": {"type": "boolean", "title": "Express"},
    },
    "required": ["item", "amount"],
}
CHART = {
    "xAxis": {"data": ["Jan", "Feb", "Mar"]},
    "series": [{"name": name, "type": "bar", "data": data} for name, data in SALES.items()],
}
DOT = "data:image/svg+xml;base64,PHN2ZyB4bWxucz0iaHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmciIHdpZHRoPSIxNiIgaGVpZ2h0PSIxNiI+PGNpcmNsZSBjeD0iOCIgY3k9IjgiIHI9IjgiLz48L3N2Zz4="


class NoStock(Exception):
    """An error that is made for the person: its code and message reach the page."""

    code = "NO_STOCK"
    message = "the stock list cannot be read"


class Desk(Agent):
    async def run(self, body: HAIAgentRequest) -> None:
        async with self.stream(body) as stream:
            last = body.messages[-1]
            if last.role == "tool":
                await self.answered(stream, last)
                return
            said = body.user_text().strip().lower()
            work = {"report": self.report, "order": self.order, "count": self.count, "fail": self.fail}
            await work.get(said, self.hello)(stream)

    async def hello(self, stream):
        async with stream.message() as message:
            await message.text("Hello! Say **report**, **order**, **count** or **fail**.")
            for name in ("report", "order"):
                await message.output(self.outputer.build_button_output(name))

    async def report(self, stream):
        out = self.outputer
        await stream.send(out.build_state_snapshot({"workflowItems": []}))
        for number, (source, agent, task) in enumerate([("USER", "planner", "Plan the report"), ("planner", "clerk", "Count the sales")]):
            await stream.hand_over(source, agent, {"id": str(number), "name": task})
            await stream.state("add", f"/workflowItems/{number}", {"agent": agent, "name": task, "status": "running"})
        async with stream.step("Count"), stream.message() as message:
            await message.output(out.build_thinking_output("The person wants ", elapsed=1))
            await message.output(out.build_thinking_output("the sales of three months.", elapsed=2, thinking=False))
            for progress in (40, 100):
                page = {"title": "Sales list", "description": "three months", "data": [{"output": out.build_table_output(["Item", "Jan", "Feb", "Mar"], [[name, *data] for name, data in SALES.items()])}]}
                tool = out.build_tool("sales", "read_sales", "Reads the sales list", progress, page)
                await message.output(out.build_tool_call_show_output("tools", "Tools", "search", [tool]))
                await asyncio.sleep(0.05)
        async with stream.step("Report"), stream.message(out.new_id()) as message:
            for word in "Sales of the **first quarter**: ".split(" "):
                await message.text(f"{word} ")
            await message.output(out.build_table_output(["Item", "Sum"], [[name, sum(data)] for name, data in SALES.items()]), layout={"x": 0, "y": 0})
            await message.output(out.build_echarts_output(CHART), layout={"x": 1, "y": 0})
            await message.output(out.build_fold_output("Method", fold=True))
            await message.text("Each sum is that of three months.")
            await message.output(out.build_fold_output("Method", position="end"))
            await message.output(out.build_image_output("image/svg+xml", url=DOT, alt="a dot"), block_id="files", style={"background": True})
            await message.output(out.build_file_output("text/csv", url="https://example.org/sales.csv", name="sales.csv"), block_id="files")
            await message.output(out.build_icon_output("✔", "green"))
            await message.output({"type": "weather", "data": {"degrees": 21}})
            await message.output(out.build_button_output("order"))
        for number in range(2):
            await stream.state("replace", f"/workflowItems/{number}/status", "done")
        # A front-end tool without an answer of a person: the page opens the side page of a tool.
        await stream.tool_call("openToolSidePage", {"id": "sales"})

    async def order(self, stream):
        await stream.tool_call("fillForm", FORM, tool_call_id=self.outputer.new_id("form"))

    async def answered(self, stream, result):
        given = json.loads(result.text())
        call = result.toolCallId or ""
        if call.startswith("form") and given:
            action = f"Order {given['amount']} × {given['item']}{', express' if given.get('express') else ''}"
            await stream.tool_call("confirmAction", {"action": action, "importance": "high"}, tool_call_id=self.outputer.new_id("confirm"))
        elif call.startswith(("form", "confirm")):
            async with stream.message() as message:
                await message.text("It is ordered." if given else "Nothing is ordered.")

    async def count(self, stream):
        async with stream.message() as message:
            for number in range(1, 100_000):
                await message.text(f"{number} ")
                await asyncio.sleep(0.02)

    async def fail(self, stream):
        async with stream.message() as message:
            await message.text("Reading the stock list")
            raise NoStock()


app = FastAPI()
app.include_router(hai_router(Desk))

if __name__ == "__main__":
    import uvicorn

    uvicorn.run(app, host="127.0.0.1", port=int(os.environ.get("PORT", "8000")), log_level="warning")
