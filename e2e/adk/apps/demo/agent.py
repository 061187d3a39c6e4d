"""An app for `adk api_server` with a scripted model: the last keyword of the user message selects the response."""

import re
from pathlib import Path

from fastapi.openapi.models import APIKey, APIKeyIn, OAuth2, OAuthFlowAuthorizationCode, OAuthFlows
from google.adk.agents import LlmAgent
from google.adk.auth.auth_credential import AuthCredential, AuthCredentialTypes, OAuth2Auth
from google.adk.auth.auth_tool import AuthConfig
from google.adk.models.llm_response import LlmResponse
from google.adk.tools import FunctionTool, LongRunningFunctionTool, ToolContext
from google.genai import types

from agentwire.adk import FrontendTools, frontend_context

from .scripted import ScriptedLlm, call, chunk, image, thought, words


def get_weather(city: str) -> dict:
    """Weather of a city."""
    return {"city": city, "tempC": 21.5}


def slow_add(a: int, b: int) -> dict:
    """Adds."""
    return {"sum": a + b}


def ask_for_approval(purpose: str) -> dict:
    """Asks a person, and says so at once."""
    return {"status": "pending", "ticketId": "T-1"}


def ask_silently(question: str) -> None:
    """Asks a person without a word."""


def delete_all(scope: str) -> dict:
    """Dangerous."""
    return {"deleted": scope}


def book(row: int, tool_context: ToolContext) -> dict:
    """Books the seat that a person names."""
    answer = tool_context.tool_confirmation
    if answer is None:
        tool_context.request_confirmation(hint=f"Which seat in row {row}?", payload={"seat": ""})
        return {"status": "asked"}
    if not answer.confirmed:
        return {"status": "refused"}
    return {"booked": row, "seat": (answer.payload or {}).get("seat", "any")}


CALENDAR = AuthConfig(
    auth_scheme=APIKey(**{"in": APIKeyIn.header, "name": "x-key"}),
    raw_auth_credential=AuthCredential(auth_type=AuthCredentialTypes.API_KEY),
)
# A client without a secret: no token exchange takes place, so no server is contacted.
MAILBOX = AuthConfig(
    auth_scheme=OAuth2(
        flows=OAuthFlows(
            authorizationCode=OAuthFlowAuthorizationCode(
                authorizationUrl="https://auth.invalid/authorize", tokenUrl="https://auth.invalid/token", scopes={"read": "Reads."}
            )
        )
    ),
    raw_auth_credential=AuthCredential(auth_type=AuthCredentialTypes.OAUTH2, oauth2=OAuth2Auth(client_id="client-1")),
)


def private_calendar(day: str, tool_context: ToolContext) -> dict:
    """Needs a key of the person."""
    found = tool_context.get_auth_response(CALENDAR)
    if found is None:
        tool_context.request_credential(CALENDAR)
        return {"pending": "authorization"}
    return {"day": day, "key": found.api_key}


def private_mailbox(box: str, tool_context: ToolContext) -> dict:
    """Needs the person to have been sent to somewhere and back."""
    found = tool_context.get_auth_response(MAILBOX)
    if found is None:
        tool_context.request_credential(MAILBOX)
        return {"pending": "authorization"}
    return {"box": box, "back": found.oauth2.auth_response_uri}


def raises(path: str) -> dict:
    """Always fails."""
    raise FileNotFoundError(f"no such file: {path}")


async def save_report(name: str, text: str, tool_context: ToolContext) -> dict:
    """Saves an artifact."""
    part = types.Part(inline_data=types.Blob(mime_type="text/plain", data=text.encode()))
    return {"version": await tool_context.save_artifact(name, part)}


def set_theme(theme: str, tool_context: ToolContext) -> dict:
    """Writes state."""
    tool_context.state["theme"] = theme
    tool_context.state["a/b~c"] = [theme]
    tool_context.state["temp:secret"] = 1
    return {"ok": True}


def slowly(pieces, text, file):
    """Pauses in the middle until the file exists, or forever."""
    pieces = [chunk(piece) for piece in pieces]
    if "endlessly" in text:
        return [step for piece in pieces * 200 for step in (piece, 0.05)]
    return [*pieces[:20], *([Path(file)] if file else []), *pieces[20:], chunk("end.", finish="STOP")]


def respond(request):
    parts = request.contents[-1].parts if request.contents else []
    answers = [part.function_response for part in parts if part.function_response]
    if answers:
        return words(" ".join(f"{answer.name} said {answer.response}" for answer in answers))
    media = [part.inline_data for part in parts if part.inline_data]
    if media:
        return words(f"Got {media[0].mime_type} of {len(media[0].data)} bytes .")
    text = " ".join(part.text for part in parts if part.text)
    if waits := re.search(r"\s*wait-for:(\S+)", text):
        text = text.replace(waits[0], "")
    file = waits and waits[1]
    if number := re.search(r"long (\d+)", text):
        count = int(number.group(1))
        return [chunk(f"word{n:04d} ") for n in range(count - 1)] + [chunk("end.", finish="STOP")]
    if "tools?" in text:
        offered = [f.name for tool in request.config.tools or [] for f in tool.function_declarations or []]
        return words(f"Tools: {', '.join(sorted(offered))} | {request.config.system_instruction or ''}")
    replies = {
        "say nothing": lambda: [],
        "weather": lambda: [chunk("Let me "), chunk("check. "), chunk(call("get_weather", city="Paris"), finish="STOP")],
        "both": lambda: [chunk(call("get_weather", city="Rome"), call("slow_add", a=1, b=2), finish="STOP")],
        "approve": lambda: [chunk("I need approval. "), chunk(call("ask_for_approval", purpose="books"), finish="STOP")],
        "silent": lambda: [chunk(call("ask_silently", question="Which?"), finish="STOP")],
        "twice": lambda: [
            chunk(call("ask_silently", question="One?"), call("ask_for_approval", purpose="two"), finish="STOP")
        ],
        "confirm": lambda: [chunk(call("delete_all", scope="tmp"), finish="STOP")],
        "book": lambda: [chunk(call("book", row=4), finish="STOP")],
        "calendar": lambda: [chunk(call("private_calendar", day="Mon"), finish="STOP")],
        "mailbox": lambda: [chunk(call("private_mailbox", box="in"), finish="STOP")],
        "slowly": lambda: slowly([f"word{n:02d} " for n in range(60)], text, file),
        "ponder": lambda: slowly([thought(f"hmm{n:02d} ") for n in range(60)], text, file),
        "artifact": lambda: [chunk(call("save_report", name="report.txt", text="hello"), finish="STOP")],
        "state": lambda: [chunk(call("set_theme", theme="dark"), finish="STOP")],
        "think": lambda: [chunk(thought("Hmm, ")), chunk(thought("hi.", b"\xfb\xff")), chunk("Hello!", finish="STOP")],
        "draw": lambda: [chunk("Here: "), chunk(image(b"\xfb\xef\xbe"), finish="STOP")],
        "rewrite": lambda: words("the secret is 42"),
        "pick": lambda: [chunk(call("pick_colour", of=["red", "blue"]), finish="STOP")],
        "fail": lambda: [chunk("Half an "), chunk("answ"), RuntimeError("503 UNAVAILABLE: model overloaded")],
        "raise": lambda: [chunk(call("raises", path="/x"), finish="STOP")],
        "block": lambda: [chunk("I was "), chunk(finish="SAFETY", message="Blocked by safety filter")],
        "unknown": lambda: [chunk(call("no_such_tool"), finish="STOP")],
    }
    for keyword, reply in replies.items():
        if keyword in text:
            return reply()
    return words(f"You said : {text}")


def censor(callback_context, llm_response):
    """Rewrites a response after it was streamed, as guardrails do."""
    parts = llm_response.content.parts if llm_response.content and not llm_response.partial else None
    if parts and parts[0].text and "secret is" in parts[0].text:
        return LlmResponse(content=types.Content(role="model", parts=[types.Part(text="I will not say.")]))
    return None


root_agent = LlmAgent(
    name="demo",
    model=ScriptedLlm(script=respond),
    instruction=lambda context: f"Be brief. {frontend_context(context)}",
    tools=[
        get_weather,
        slow_add,
        LongRunningFunctionTool(ask_for_approval),
        LongRunningFunctionTool(ask_silently),
        FunctionTool(delete_all, require_confirmation=True),
        book,
        private_calendar,
        private_mailbox,
        raises,
        save_report,
        set_theme,
        FrontendTools(),
    ],
    after_model_callback=censor,
    output_key="last_answer",
)
