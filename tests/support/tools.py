"""Whether programs of others that some tests need are installed."""

from __future__ import annotations

import shutil


def has_llvm_mca() -> bool:
    """Return whether there is an llvm-mca of any version, as Debian names them."""
    return any(map(shutil.which, ("llvm-mca", *(f"llvm-mca-{version}" for version in range(14, 31)))))
