"""An app whose agent transfers to another agent, which uses a tool."""

from demo.scripted import ScriptedLlm, call, chunk, words
from google.adk.agents import LlmAgent


def count_words(text: str) -> dict:
    """Counts."""
    return {"count": len(text.split())}


def answers(request):
    parts = request.contents[-1].parts if request.contents else []
    return [part.function_response for part in parts if part.function_response]


def lead(request):
    return [chunk("I hand this over. "), chunk(call("transfer_to_agent", agent_name="writer"), finish="STOP")]


def write(request):
    done = [answer for answer in answers(request) if answer.name == "count_words"]
    if done:
        return words(f"The writer counted {done[0].response['count']} words.")
    return [chunk(call("count_words", text="one two three"), finish="STOP")]


writer = LlmAgent(
    name="writer",
    description="Writes.",
    model=ScriptedLlm(script=write),
    tools=[count_words],
    disallow_transfer_to_parent=True,
)
root_agent = LlmAgent(name="lead", model=ScriptedLlm(script=lead), sub_agents=[writer])
