"""What can be wrong with the store's file; these exceptions never leave the store."""

from __future__ import annotations


class UnusableError(Exception):
    """The file is not for this version to use."""


class DamageError(Exception):
    """The file is damaged in a way that SQLite does not notice."""
