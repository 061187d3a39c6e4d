"""The script of the model of both servers: the last word of the question selects the reply.

A reply is a list of deltas: `("text", text)`, `("think", text)`, `("call", name, arguments)`, `("wait", file)`,
`("pause", seconds)`, `("raise", text)`. With `wait-for:FILE` in the question, a slow reply pauses in its middle until that
file exists.
"""

import asyncio
import itertools
import json
import os

_numbers = itertools.count(1)


def call_id():
    """A call id that is unique on this machine."""
    return f"call-{os.getpid()}-{next(_numbers)}"


def reply(questions, results, media):
    """`questions`: the user messages so far. `results`: name and text of each result since the last question.
    `media`: kind and size or URL of the attachments of the last question.
    """
    question = questions[-1] if questions else ""
    if results:
        return [("text", f"{name} said {text}. ") for name, text in results]
    match question.split()[-1:] or [""]:
        case ["weather"]:
            return [("text", "Let me "), ("text", "look."), ("call", "get_weather", {"city": "Oslo"})]
        case ["silently"]:
            return [("call", "get_weather", {"city": "Ålesund ☃"})]
        case ["both"]:
            return [("call", "get_weather", {"city": "Bergen"}), ("call", "add", {"a": 1, "b": 2})]
        case ["break"]:
            return [("call", "break_down", {})]
        case ["colour"]:
            return [("text", "You choose."), ("call", "pick_colour", {"of": ["red", "blue"]})]
        case ["colours"]:
            return [("call", "pick_colour", {"of": ["red"]}), ("call", "pick_colour", {"of": ["blue"]})]
        case ["mixed"]:
            return [("call", "add", {"a": 2, "b": 2}), ("call", "pick_colour", {"of": ["green"]})]
        case ["delete"]:
            return [("call", "delete_all", {"scope": "tmp"})]
        case ["dark"]:
            return [("call", "set_theme", {"theme": "dark"})]
        case ["picture"]:
            return [("text", "I see " + ", ".join(media) + ".")]
        case ["think"]:
            return [("think", "First this, "), ("think", "then that."), ("text", "I have thought.")]
        case ["fail"]:
            return [("text", "Half an "), ("text", "answ"), ("raise", "the model has fallen over")]
        case ["raise"]:
            return [("raise", "the model is not in")]
        case ["slowly"]:
            numbers = [("text", f"{at} ") for at in range(60)]
            waits = [("wait", word.removeprefix("wait-for:")) for word in question.split() if word.startswith("wait-for:")]
            return [*numbers[:20], *waits, *numbers[20:], ("text", "end.")]
        case ["endlessly"]:
            return [delta for at in range(10_000) for delta in (("text", f"{at} "), ("pause", 0.05))]
        case ["recall"]:
            return [("text", "I heard: " + " | ".join(questions))]
        case _:
            return [("text", "You said: "), ("text", question), ("text", " 🐻‍❄️ \u2028}{ \"'")]


async def play(deltas):
    """Yields the deltas at their pace; reports a cancellation by the reader."""
    try:
        for delta in deltas:
            match delta:
                case ("wait", file):
                    while not os.path.exists(file):
                        await asyncio.sleep(0.02)
                case ("pause", seconds):
                    await asyncio.sleep(seconds)
                case ("raise", text):
                    raise RuntimeError(text)
                case _:
                    yield delta
    except (asyncio.CancelledError, GeneratorExit):
        print("the model was not heard out", flush=True)
        raise


def pieces(arguments):
    """Arguments in the pieces in which a model streams them."""
    text = json.dumps(arguments, ensure_ascii=False)
    middle = len(text) // 2
    return [text[:middle], text[middle:]]


def get_weather(city: str) -> str:
    """Tells the weather."""
    return f"It rains in {city}"


def add(a: int, b: int) -> str:
    """Adds."""
    return str(a + b)


def break_down() -> str:
    """Fails."""
    raise RuntimeError("the tool has broken")
