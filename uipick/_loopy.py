"""loopy, imported when one of its names is first used: that takes seconds. ``from uipick import _loopy as lp``."""

from typing import Any


# Any: mypy skips loopy. No `importlib.util.LazyLoader`: before Python 3.11.9 threads could see a module half loaded.
def __getattr__(name: str) -> Any:
    import loopy

    return getattr(loopy, name)
