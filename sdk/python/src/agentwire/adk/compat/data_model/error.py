"""Error responses."""

from __future__ import annotations

import time
from typing import Any, Union

from pydantic import BaseModel, Field

__all__ = ["ErrorModel", "ErrorResponseModel"]


class ErrorModel(BaseModel):
    """An error."""

    error: str
    error_description: Union[dict[str, Any], str]
    timestamp: int = Field(default_factory=lambda: int(time.time()))
    trace_id: str = ""


class ErrorResponseModel(BaseModel):
    """The body of an error response."""

    detail: ErrorModel
