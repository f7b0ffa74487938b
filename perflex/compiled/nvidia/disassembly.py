"""Machine instructions of NVIDIA's GPUs (SASS), from the text that NVIDIA's disassembler gives of a cubin.

Source: NVIDIA, CUDA Binary Utilities, nvdisasm and Instruction Set Reference.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sysconfig
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING

from perflex.errors import MissingExtraError

if TYPE_CHECKING:
    from perflex.compiled.nvidia.cubin import GpuCode

_LIMIT_S = 120.0
# Bytes of an instruction from Volta on.
_BYTES = 16


@dataclass(frozen=True)
class GpuInstruction:
    """One instruction.

    Attributes
    ----------
    address
        Of its first byte in the kernel.
    name
        Without modifiers.
    modifiers
        What follows the name, between dots.
    operands
        As the disassembler writes them, the destination first.
    predicate
        The register that decides whether it is carried out, ``"P0"`` or ``"!P0"``; empty for always.
    """

    address: int
    name: str
    modifiers: tuple[str, ...]
    operands: tuple[str, ...]
    predicate: str = ""


@lru_cache(maxsize=64)
def disassembled(code: GpuCode) -> tuple[GpuInstruction, ...]:
    """Return the instructions of a kernel.

    Raises
    ------
    MissingExtraError
        The disassembler is not installed, or does not know the architecture.
    """
    tool = _tool()
    with NamedTemporaryFile(suffix=".cubin") as stream:
        stream.write(code.cubin)
        stream.flush()
        done = subprocess.run(  # noqa: S603 - NVIDIA's tool, on a file of our own
            [tool, "--emit-json", stream.name], capture_output=True, check=False, timeout=_LIMIT_S
        )
    if done.returncode:
        reason = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:] or ["no reason given"]
        msg = (
            f"nvdisasm cannot read code for {code.architecture} ({reason[0]}); "
            "install another version: pip install -U nvidia-cuda-nvdisasm"
        )
        raise MissingExtraError(msg, extra="cuda-code")
    for function in json.loads(done.stdout)[1]:
        if function["function-name"] == code.name:
            entries = function["sass-instructions"]
            return tuple(_instruction(number * _BYTES, entry) for number, entry in enumerate(entries))
    return ()


def _tool() -> str:
    for folder in ("purelib", "platlib"):
        for path in sorted(Path(sysconfig.get_path(folder), "nvidia").glob("*/bin/nvdisasm"), reverse=True):
            return str(path)
    found = shutil.which("nvdisasm")
    if found is None:
        msg = (
            "reading code for NVIDIA's GPUs needs the disassembler nvdisasm; "
            "install it with: pip install 'perflex[cuda-code]'"
        )
        raise MissingExtraError(msg, extra="cuda-code")
    return found


def _instruction(address: int, entry: dict[str, str]) -> GpuInstruction:
    name, *modifiers = entry["opcode"].split(".")
    operands = tuple(part.strip().removesuffix(".reuse") for part in entry.get("operands", "").split(",") if part)
    return GpuInstruction(address, name, tuple(modifiers), operands, entry.get("predicate", "").removeprefix("@"))
