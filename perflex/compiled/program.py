"""A kernel as it was compiled, and what is known of its arguments before a launch."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perflex.compiled.values import Pointer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perflex.compiled.amd import AmdCode
    from perflex.compiled.elf import Function
    from perflex.compiled.nvidia.cubin import GpuCode
    from perflex.compiled.values import Place, Value

# Of Intel's runtime: what follows a kernel's arguments; local sizes are so far behind the first byte of it.
_INTEL_LOCAL_SIZES = 168
_VECTOR_NAME = re.compile(r"_ZGV[a-e]([NM])(\d+)[^_]*_(.+)")
# Of PoCL's context: numbers of groups, global offsets, local sizes.
_POCL_OFFSETS, _POCL_LOCAL_SIZES = 24, 48


@dataclass(frozen=True)
class Argument:
    """An argument of a kernel: its name, its bytes, and whether it points to an array."""

    name: str
    size: int
    is_array: bool


@dataclass(frozen=True)
class CompiledProgram:
    """Machine code of one device program."""

    name: str
    # ``"intel"`` or ``"pocl"``: who calls it; ``"cuda"`` or ``"hip"`` for a GPU.
    runtime: str
    functions: tuple[Function, ...]
    arguments: tuple[Argument, ...]
    # Its code for a GPU; None for a CPU.
    gpu: GpuCode | AmdCode | None = None

    @property
    def digest(self) -> str:
        """Equal for programs of the same machine code; of those for a GPU, launched alike, whatever their names."""
        if self.gpu is not None:
            return self.gpu.digest
        return hashlib.sha256(repr(self.functions).encode()).hexdigest()

    def parts(self, local_size: Sequence[int]) -> list[tuple[Function, float]]:
        """Return the functions that a work-group runs, and which share of its work-items each of them does."""
        if self.runtime == "pocl":
            named = [one for one in self.functions if one.name == f"_pocl_kernel_{self.name}_workgroup"]
            return [(one, 1.0) for one in named]
        scalar = next((one for one in self.functions if one.name == self.name), None)
        vectors = [(int(match[2]), one) for one, match in self._vectors() if match[1] == "N"]
        lanes, vector = max(vectors, key=lambda pair: pair[0], default=(0, None))
        width = int(local_size[0]) if local_size else 1
        if vector is None or width < lanes:
            return [] if scalar is None else [(scalar, 1.0)]
        share = width // lanes * lanes / width
        return [(vector, share), *([(scalar, 1 - share)] if share < 1 and scalar is not None else [])]

    def _vectors(self) -> list[tuple[Function, re.Match[str]]]:
        matched = [(one, _VECTOR_NAME.fullmatch(one.name)) for one in self.functions]
        return [(one, match) for one, match in matched if match is not None and match[3] == self.name]

    def entry(
        self, sizes: Mapping[str, int], local_size: Sequence[int]
    ) -> tuple[dict[Place, Value], dict[tuple[str, int], int | Pointer]]:
        """Return the values of registers and memory when a function of it begins."""
        sides = [*map(int, local_size), 1, 1, 1][:3]
        registers: dict[Place, Value] = {"rsp": Pointer("frame", 0)}
        memory: dict[tuple[str, int], int | Pointer] = {}
        if self.runtime == "pocl":
            registers |= {"rdi": Pointer("arguments"), "rsi": Pointer("context")}
            for number, argument in enumerate(self.arguments):
                cell = f"argument {number}"
                memory["arguments", 8 * number] = Pointer(cell)
                _put(memory, (cell, 0), argument, sizes)
            # Arrays in local memory come after the arguments.
            for number in range(len(self.arguments), len(self.arguments) + 16):
                memory["arguments", 8 * number] = Pointer(f"local {number}")
                memory[f"local {number}", 0] = Pointer(f"local array {number}")
            for axis, side in enumerate(sides):
                memory["context", _POCL_LOCAL_SIZES + 8 * axis] = side
                memory["context", _POCL_OFFSETS + 8 * axis] = 0
            return registers, memory
        registers |= {"rdi": Pointer("arguments"), "rsi": Pointer("group")}
        place = 0
        for argument in self.arguments:
            place = -(-place // argument.size) * argument.size
            _put(memory, ("arguments", place), argument, sizes)
            place += argument.size
        place = -(-place // 8) * 8
        for axis, side in enumerate(sides):
            memory["arguments", place + _INTEL_LOCAL_SIZES + 8 * axis] = side
        memory["group", 24] = Pointer("local memory")
        return registers, memory


def _put(
    memory: dict[tuple[str, int], int | Pointer], place: tuple[str, int], argument: Argument, sizes: Mapping[str, int]
) -> None:
    if argument.is_array:
        memory[place] = Pointer(f"global {argument.name}")
    elif argument.name in sizes:
        memory[place] = int(sizes[argument.name]) & ((1 << 8 * argument.size) - 1)
