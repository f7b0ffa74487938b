"""Building kernels with sizes on a backend, as measuring does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perflex.features import SizedKernel
from perflex.timing.launch.request import request_for

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["built"]


def built(backend: Any, kernel: Any, sizes: Mapping[str, Any], label: str) -> Any:
    """Return a kernel with sizes, ready to run on the backend's device."""
    return backend.build(request_for(SizedKernel(kernel, sizes, label), backend.device))
