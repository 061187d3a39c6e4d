from collections.abc import Callable
from typing import Any, Optional, final

__all__ = [
    "__version__",
    "MAX_FRAME",
    "Stream",
    "main",
    "formats",
    "to_line",
    "to_json",
    "normal_input",
    "langchain",
    "graph_input",
    "adk_content",
    "fold",
    "apply_patch",
    "diff",
    "langgraph_events",
]

__version__: str
MAX_FRAME: int

@final
class Stream:
    def __new__(
        cls,
        from_: str,
        to: str,
        thread: str,
        run: str,
        request: Optional[str],
        options: list[str],
        framing: Optional[str],
        strict: bool,
        max_frame: int,
        now: Optional[int],
        on_unknown: Optional[Callable[[str, str, str], None]],
    ) -> Stream: ...
    def push(self, data: Any) -> bytes: ...
    def finish(self, code: Optional[str] = None, message: Optional[str] = None, frame: Any = None) -> bytes: ...
    def report(self) -> tuple[str, str]: ...
    @property
    def content_type(self) -> str: ...
    @property
    def headers(self) -> dict[str, str]: ...

def main(args: list[str]) -> int: ...
def formats() -> str: ...
def to_line(event: Any) -> str: ...
def to_json(value: Any) -> str: ...
def normal_input(input: str) -> str: ...
def langchain(input: str) -> str: ...
def graph_input(input: str, state: Optional[str] = None) -> str: ...
def adk_content(input: str) -> str: ...
def fold(events: str, messages: str, state: Optional[str]) -> tuple[str, str]: ...
def apply_patch(document: str, patch: str) -> str: ...
def diff(old: str, new: str) -> str: ...
def langgraph_events() -> list[str]: ...
