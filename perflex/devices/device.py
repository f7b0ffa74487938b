"""The interfaces that devices are reached through."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["API_NAMES", "Api"]

Api: TypeAlias = Literal["opencl", "cuda"]

API_NAMES: Mapping[Api, str] = {"opencl": "OpenCL", "cuda": "CUDA"}
