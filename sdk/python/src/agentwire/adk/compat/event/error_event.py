"""The error events of the middleware."""

from __future__ import annotations

from ag_ui.core import EventType, RunErrorEvent

__all__ = ["AGUIErrorEvent"]


def _error(code: str, message: str) -> RunErrorEvent:
    return RunErrorEvent(type=EventType.RUN_ERROR, code=code, message=message)


class AGUIErrorEvent:
    """Makes RUN_ERROR events."""

    @staticmethod
    def create_encoding_error_event(e: Exception) -> RunErrorEvent:
        """An event cannot be written."""
        return _error("ENCODING_ERROR", f"Event encoding failed: {e!r}")

    @staticmethod
    def create_agent_error_event(e: Exception) -> RunErrorEvent:
        """The run failed outside of the agent."""
        return _error("AGENT_ERROR", f"Agent execution failed: {e!r}")

    @staticmethod
    def create_execution_error_event(e: Exception) -> RunErrorEvent:
        """The agent or a handler of its events failed."""
        return _error("EXECUTION_ERROR", repr(e))

    @staticmethod
    def create_no_tool_results_error(thread_id: str) -> RunErrorEvent:
        """A tool message answers no call that waits."""
        return _error("NO_TOOL_RESULTS", "No tool results found in submission")

    @staticmethod
    def create_no_input_message_error(thread_id: str) -> RunErrorEvent:
        """The input has no message."""
        return _error("NO_INPUT_MESSAGE", "Input message is missing")

    @staticmethod
    def create_tool_processing_error_event(e: Exception) -> RunErrorEvent:
        """A tool message cannot be read."""
        return _error("TOOL_RESULT_PROCESSING_ERROR", f"Failed to process tool results: {e!r}")

    @staticmethod
    def create_is_locked_error(thread_id: str) -> RunErrorEvent:
        """Another run has the session."""
        return _error("THREAD_IS_LOCKED", "Thread is currently locked")
