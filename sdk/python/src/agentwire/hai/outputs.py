"""The outputs of BUSINESS_DATA_CONTENT, and the messages of snapshots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Optional, Protocol, cast

from .frame import as_event, dumps, escape_brace_pairs


class _MediaBuilder(Protocol):
    def __call__(
        self,
        mime_type: str,
        url: Optional[str] = None,
        data: Optional[str] = None,
        name: Optional[str] = None,
        alt: Optional[str] = None,
        **kwargs: Any,
    ) -> dict[str, Any]: ...


def _media_builder(kind: str, doc: str) -> _MediaBuilder:
    def build(
        mime_type: str,
        url: Optional[str] = None,
        data: Optional[str] = None,
        name: Optional[str] = None,
        alt: Optional[str] = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        members = {"mimeType": mime_type, "url": url, "data": data, "name": name, "alt": alt}
        return {"type": kind, "data": {key: value for key, value in members.items() if value is not None}}

    build.__name__ = f"build_{kind}_output"
    build.__doc__ = doc
    return cast(_MediaBuilder, staticmethod(build))


class Outputs:
    """Builds outputs. Unknown keyword arguments are ignored, as in the standard."""

    _object_deltas = False

    def build_text_output(self, content: str, **kwargs: Any) -> dict[str, Any]:
        """Text, shown as Markdown. Consecutive texts are joined."""
        return {"type": "text", "content": content}

    def build_text(self, content: str, **kwargs: Any) -> dict[str, Any]:
        """The same, under its name in the standard's sample."""
        return self.build_text_output(content)

    def build_thinking_output(
        self, content: str, elapsed: int = 10, thinking: bool = True, collapse: bool = True, **kwargs: Any
    ) -> dict[str, Any]:
        """A part of the thinking box. `thinking` is false in the last one."""
        data = {"content": content, "elapsed": elapsed, "thinking": thinking, "collapse": collapse}
        return {"type": "thinking", "data": data}

    def build_fold_output(self, title: str, fold: bool = False, position: str = "start", **kwargs: Any) -> dict[str, Any]:
        """The start or the end of a section."""
        return {"type": "fold", "data": {"title": title, "fold": fold, "position": position}}

    def build_button_output(self, name: str, **kwargs: Any) -> dict[str, Any]:
        """A button; a click sends its name as a user message."""
        return {"type": "button", "data": {"name": name}}

    def build_icon_output(self, icon: str, color: str, **kwargs: Any) -> dict[str, Any]:
        """An icon."""
        return {"type": "icon", "data": {"icon": icon, "color": color}}

    def build_tool_call_show_output(
        self, id: str, title: str, icon: str, tools: Sequence[Mapping[str, Any]], **kwargs: Any
    ) -> dict[str, Any]:
        """A list of tool calls; updates the list of the same id, tool by tool."""
        return {"type": "toolCallShow", "id": id, "data": {"title": title, "icon": icon, "tools": list(tools)}}

    def build_tool(
        self, id: str, name: str, description: str, progress: Any, side_page: Optional[Mapping[str, Any]] = None, **kwargs: Any
    ) -> dict[str, Any]:
        """A tool of `build_tool_call_show_output`. The side page has a `title`, a `description` and `data`, a list of
        `{"output": …}`; the front-end tool `openToolSidePage` opens it."""
        tool: dict[str, Any] = {"id": id, "name": name, "description": description, "progress": progress}
        if side_page is not None:
            tool["data"] = side_page
        return tool

    def build_table_output(self, columns: Sequence[Any], rows: Sequence[Sequence[Any]], **kwargs: Any) -> dict[str, Any]:
        """A table."""
        return {"type": "table", "data": {"columns": list(columns), "rows": [list(row) for row in rows]}}

    def build_echarts_output(self, option: Mapping[str, Any], **kwargs: Any) -> dict[str, Any]:
        """A chart of Apache ECharts."""
        return {"type": "echarts", "data": {"option": option}}

    build_image_output = _media_builder("image", "An image, by its URL or as base64.")
    build_audio_output = _media_builder("audio", "Audio, by its URL or as base64.")
    build_video_output = _media_builder("video", "A video, by its URL or as base64.")
    build_file_output = _media_builder("file", "A file, by its URL or as base64.")

    def _json(self, value: Any) -> str:
        return dumps(value)

    def _message(self, message: Any) -> dict[str, Any]:
        """A message of a snapshot. The reference client parses the content of an assistant, so that text is wrapped
        in the document of an output."""
        shown = as_event(message)
        content = shown.get("content")
        if shown.get("role") != "assistant" or not content or self._object_deltas:
            return shown
        if isinstance(content, str) and not content.lstrip().startswith("{"):
            document = {"output": {"type": "text", "content": content}}
            shown["content"] = escape_brace_pairs(dumps(document))
        return shown
