"""A scripted model, so that a real ADK can be tested without an API key.

Its chunks pass through ADK's own ``StreamingResponseAggregator``, the class used for Gemini, so partial events,
closing events and finish reasons are those of a real run.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, AsyncGenerator, Callable

from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.utils.streaming_utils import StreamingResponseAggregator
from google.genai import types


def call(name: str, /, **args: Any) -> types.Part:
    return types.Part(function_call=types.FunctionCall(name=name, args=args))


def thought(text: str, signature: bytes | None = None) -> types.Part:
    return types.Part(text=text, thought=True, thought_signature=signature)


def image(data: bytes) -> types.Part:
    return types.Part(inline_data=types.Blob(mime_type="image/png", data=data))


def chunk(*parts: types.Part | str, finish: str | None = None, message: str | None = None) -> types.GenerateContentResponse:
    """One chunk of a model's response; the chunk with a finish reason is the last."""
    parts = [types.Part(text=part) if isinstance(part, str) else part for part in parts]
    usage = types.GenerateContentResponseUsageMetadata(
        prompt_token_count=12, candidates_token_count=8, total_token_count=20
    )
    candidate = types.Candidate(
        index=0,
        content=types.Content(role="model", parts=parts) if parts else None,
        finish_reason=finish,
        finish_message=message,
    )
    return types.GenerateContentResponse(
        candidates=[candidate], usage_metadata=usage if finish else None, model_version="scripted-1"
    )


def words(text: str) -> list[types.GenerateContentResponse]:
    """A text as one chunk per word."""
    pieces = [word + " " for word in text.split(" ")]
    pieces[-1] = pieces[-1].rstrip(" ")
    return [chunk(piece) for piece in pieces[:-1]] + [chunk(pieces[-1], finish="STOP")]


class ScriptedLlm(BaseLlm):
    """Asks ``script`` for the chunks of each turn. An exception among them is raised in its turn, a path is waited
    for, and a number is a pause in seconds. Reports a cancellation by the reader."""

    model: str = "scripted-1"
    script: Callable[[LlmRequest], list[Any]]

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        try:
            async for response in self._play(llm_request, stream):
                yield response
        except (asyncio.CancelledError, GeneratorExit):
            parts = llm_request.contents[-1].parts if llm_request.contents else []
            print("not heard out:", *(part.text for part in parts if part.text), flush=True)
            raise

    async def _play(self, llm_request: LlmRequest, stream: bool) -> AsyncGenerator[LlmResponse, None]:
        aggregator = StreamingResponseAggregator()
        whole = []
        for piece in self.script(llm_request):
            if isinstance(piece, Exception):
                raise piece
            if isinstance(piece, float):
                await asyncio.sleep(piece)
                continue
            if isinstance(piece, Path):
                while not piece.exists():
                    await asyncio.sleep(0.02)
                continue
            if not stream:
                whole.append(piece)
                continue
            async for response in aggregator.process_response(piece):
                yield response
        if not stream:
            last = whole[-1]
            parts = [part for piece in whole for part in (piece.candidates[0].content or types.Content()).parts or []]
            last.candidates[0].content = types.Content(role="model", parts=parts) if parts else None
            yield LlmResponse.create(last)
        elif (last := aggregator.close()) is not None:
            yield last
