"""The warnings perflex gives."""

from __future__ import annotations

__all__ = ["PerflexWarning"]


class PerflexWarning(UserWarning):
    """Something the user should know before trusting a result; silence it by this class."""
