"""Error responses."""

from ..names import ErrorModel, ErrorResponseModel

__all__ = ["ErrorModel", "ErrorResponseModel"]
