"""Default extractors."""

from ..names import default_extract_initial_state, default_session_id

__all__ = ["default_extract_initial_state", "default_session_id"]
