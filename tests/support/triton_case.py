"""A launch of a Triton kernel: what it is given, in words that need neither Triton nor a GPU."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

# Bytes of an element, by Triton's name of its type.
BYTES = {
    "i1": 1, "i8": 1, "u8": 1, "fp8e4nv": 1, "fp8e5": 1, "i16": 2, "fp16": 2, "bf16": 2, "i32": 4, "u32": 4,
    "fp32": 4, "i64": 8, "u64": 8, "fp64": 8,
}  # fmt: skip
ALIGNED = 16


@dataclass(frozen=True)
class Array:
    """An array in memory; its values matter only where they are given, since addresses or branches depend on them."""

    type: str
    size: int
    values: tuple[int, ...] = ()
    # Where the elements are addresses: of which array, and how many bytes behind its begin.
    points_to: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class Case:
    """A kernel with its arguments and its grid."""

    name: str
    kernel: Any
    grid: tuple[int, ...]
    # In the order of the kernel's parameters; constexprs come last.
    arguments: Mapping[str, Array | int | float]
    constexprs: Mapping[str, Any] = field(default_factory=dict)
    # Arrays that are reached by addresses in memory only.
    others: Mapping[str, Array] = field(default_factory=dict)
    capabilities: tuple[int, ...] = (80,)
    warps: int = 4
    stages: int = 3

    @property
    def arrays(self) -> dict[str, Array]:
        """All arrays, arguments first."""
        given = {name: value for name, value in self.arguments.items() if isinstance(value, Array)}
        return given | dict(self.others)


def type_of(value: Array | float) -> str:
    """Return the type that Triton gives an argument; an integer 1 becomes a constant."""
    if isinstance(value, Array):
        return f"*{value.type}"
    if isinstance(value, float):
        return "fp32"
    if value == 1:
        return "constexpr"
    return "i32" if -(2**31) <= value < 2**31 else "i64"


def divisibility(value: Array | float) -> int | None:
    """Return 16 where Triton knows that an argument, or the address of an array, is divisible by it."""
    if isinstance(value, Array):
        return ALIGNED
    return ALIGNED if isinstance(value, int) and value != 1 and value % ALIGNED == 0 else None


def array(kind: str, *shape: int) -> Array:
    """Return an array whose values decide nothing."""
    return Array(kind, int(np.prod(shape)))


def given(kind: str, values: Any) -> Array:
    """Return an array of given integers."""
    flat = tuple(int(value) for value in np.asarray(values).ravel())
    return Array(kind, len(flat), flat)


def randoms(name: str) -> np.random.Generator:
    """Return random numbers that are the same in each run."""
    return np.random.default_rng(list(name.encode()))


def up(size: int, block: int) -> int:
    """Return how many blocks cover a size."""
    return -(-size // block)
