"""A HAI back end: `uvicorn hai_agent:app`, then POST to `/awp` or `/chat`."""

from agentwire.hai import Agent, HAIAgentRequest, hai_router
from fastapi import FastAPI


class Echo(Agent):
    async def run(self, body: HAIAgentRequest) -> None:
        async with self.stream(body) as stream:
            await stream.hand_over("USER", self.agent_name, {"id": "1", "name": "Answer"})
            async with stream.step("Answer"), stream.message() as message:
                for word in f"You said {body.user_text()}".split():
                    await message.text(f"{word} ")


app = FastAPI()
app.include_router(hai_router(Echo))
