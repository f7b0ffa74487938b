"""Classes of instructions of NVIDIA's GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perflex.compiled.nvidia.cubin import GpuInstruction

CLASSES = (
    "float32",
    "float64",
    "integer",
    "special",
    "conversions",
    "global_loads",
    "global_stores",
    "local_loads",
    "local_stores",
    "branches",
    "barriers",
)
"""What instructions are counted by, beside loads, stores and spills."""

# fmt: off
_BY_CLASS = {
    "float32": "FADD FFMA FMUL FMNMX FMNMX3 FSEL FSET FSETP FCHK FSWZADD FADD2 FFMA2 FMUL2 FADD32I FFMA32I FMUL32I",
    "float64": "DADD DFMA DMUL DSETP",
    "special": "MUFU",
    "conversions": "F2F F2I I2F I2I I2IP I2FP F2FP F2IP FRND",
    "integer":
        "BMSK BREV FLO IABS IADD IADD3 IADD32I IADD64 IDP IDP4A IMAD IMMA IMNMX IMUL IMUL32I ISCADD ISCADD32I ISETP "
        "LEA LOP LOP3 LOP32I POPC SHF SHL SHR VABSDIFF VABSDIFF4 VIADD VIADDMNMX VIMNMX VIMNMX3 VHMNMX "
        "UBMSK UBREV UFLO UIADD3 UIADD64 UIMAD UIMNMX UISETP ULEA ULOP ULOP3 ULOP32I UPOPC USHF USHL USHR UVIADD "
        "UVIMNMX",
    "branches": "BRA BRX BRXU JMP JMX JMXU CALL RET",
    "barriers": "BAR",
}
# fmt: on
_CLASS = {name: kind for kind, names in _BY_CLASS.items() for name in names.split()}
# fmt: off
# By the unit that carries them out (Nsight Compute, Kernel Profiling Guide, pipelines; CUDA C++ Programming Guide,
# throughputs, by which comparisons of floats take the unit of integers). XMAD is one part of a product of integers.
_BY_UNIT = {
    "unit_fma": "FADD FFMA FMUL FSWZADD FADD2 FFMA2 FMUL2 FADD32I FFMA32I FMUL32I HADD2 HFMA2 HMUL2 XMAD",
    "unit_imad": "IMAD IMUL IMUL32I IDP IDP4A",
    "unit_alu":
        "BMSK F2FP F2IP FMNMX FMNMX3 FSEL FSET FSETP I2FP I2IP IABS IADD IADD3 IADD32I IADD64 IMNMX ISCADD ISCADD32I "
        "ISETP LEA LOP LOP3 LOP32I MOV MOV32I P2R PLOP3 PRMT R2P SEL SHF SHL SHR VABSDIFF VABSDIFF4 VHMNMX VIADD "
        "VIADDMNMX VIMNMX VIMNMX3",
    "unit_special": "BREV F2F F2I FCHK FLO FRND I2F I2I MUFU POPC",
}
# fmt: on
_UNIT = {name: unit for unit, names in _BY_UNIT.items() for name in names.split()}
# Of each access: names of `CLASSES` and of the family that it counts for.
_ACCESSES = {
    "LDG": ("loads", "global_loads"),
    "LD": ("loads", "global_loads"),
    "STG": ("stores", "global_stores"),
    "ST": ("stores", "global_stores"),
    "RED": ("stores", "global_stores"),
    "REDG": ("stores", "global_stores"),
    "ATOM": ("loads", "stores", "global_loads", "global_stores"),
    "ATOMG": ("loads", "stores", "global_loads", "global_stores"),
    "LDS": ("loads", "local_loads"),
    "LDSM": ("loads", "local_loads"),
    "STS": ("stores", "local_stores"),
    "STSM": ("stores", "local_stores"),
    "ATOMS": ("loads", "stores", "local_loads", "local_stores"),
    "LDGSTS": ("loads", "stores", "global_loads", "local_stores"),
    "LDL": ("loads", "spills"),
    "STL": ("stores", "spills"),
}
# By what else accesses of work-items' own memory are counted: words of four bytes.
_PRIVATE_WORDS = {"LDL": "private_words_loaded", "STL": "private_words_stored"}
OF_ACCESSES = frozenset([name for names in _ACCESSES.values() for name in names] + [*_PRIVATE_WORDS.values()])
"""What accesses are counted by."""
# They only copy or join registers, whatever unit does it.
_MOVES = {"MOV", "MOV32I"}


def classes_of(one: GpuInstruction) -> tuple[str, ...]:
    """Return the names that an instruction counts for; none for moves and the like."""
    if one.name in _ACCESSES:
        return _ACCESSES[one.name]
    if one.name in {"IMAD", "UIMAD"} and _MOVES & set(one.modifiers):
        return ()
    kind = _CLASS.get(one.name)
    return () if kind is None else (kind,)


def unit_of(one: GpuInstruction) -> str | None:
    """Return by what name an instruction counts for the unit that carries it out; None for others than arithmetic."""
    return _UNIT.get(one.name)


def private_words(one: GpuInstruction) -> tuple[str, int] | None:
    """Return by what name words count that an instruction moves of work-items' own memory, and how many it moves."""
    if one.name not in _PRIVATE_WORDS:
        return None
    return _PRIVATE_WORDS[one.name], 4 if "128" in one.modifiers else 2 if "64" in one.modifiers else 1


def touches_memory(one: GpuInstruction) -> bool:
    """Return whether an instruction accesses memory that other work-items see, or waits for them."""
    names = classes_of(one)
    return (one.name in _ACCESSES and "spills" not in names) or "barriers" in names


def keeps_private(one: GpuInstruction) -> bool:
    """Return whether an instruction accesses a work-item's own memory, or waits for others."""
    return one.name in _PRIVATE_WORDS or "barriers" in classes_of(one)


def is_access(one: GpuInstruction) -> bool:
    """Return whether an instruction accesses memory."""
    return one.name in _ACCESSES
