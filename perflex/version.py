"""The version of perflex."""

__version__ = "0.1.0"
