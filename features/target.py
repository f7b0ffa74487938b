"""The target of a count: sub-groups, machine and build, which a feature's value depends on beside kernel and sizes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING

from perflex.errors import MachineError
from perflex.machines.files import load_machine, machine_names
from perflex.machines.machine import Machine
from perflex.machines.residency import Resources, most_of

if TYPE_CHECKING:
    from perflex.compiled.program import CompiledProgram

# Work-items per sub-group where no device says otherwise: NVIDIA's warp, on which the paper counts.
DEFAULT_SUB_GROUP_SIZE = 32
CACHES = ("warm", "cold")
"""What a run finds in a GPU's L2 cache: what the same run before has left, or nothing."""


@dataclass(frozen=True)
class Target:
    """What a kernel runs on, and how it is built for that.

    Attributes
    ----------
    sub_group_size
        Work-items per sub-group.
    machine
        For features that need one; None where there is none.
    registers
        32-bit registers per work-item as the user states them; None for those of the build.
    resources
        What the built kernel takes; None where it was not built.
    code
        Machine code of the kernel's device programs; None where it was not read.
    lock_step
        Whether the work-items of a sub-group go through loops together. On PoCL each ends its loop before the next one
        begins it.
    caches
        One of `CACHES`.
    """

    sub_group_size: int = DEFAULT_SUB_GROUP_SIZE
    machine: Machine | None = None
    registers: int | None = None
    resources: Resources | None = None
    code: tuple[CompiledProgram, ...] | None = None
    lock_step: bool = True
    caches: str = CACHES[0]

    @property
    def registers_per_item(self) -> int | None:
        """32-bit registers per work-item, as stated, else as built; None where neither is known."""
        built = self.built
        return built.registers if self.registers is None and built is not None else self.registers

    @property
    def built(self) -> Resources | None:
        """What the built kernel takes, as the driver told, else as its code for a GPU says; None if unknown."""
        programs = [one.gpu for one in self.code or () if one.gpu is not None]
        if self.resources is not None or not programs:
            return self.resources
        facts = [(one.facts, one.spill_bytes) for one in programs]
        return most_of(Resources(one.registers, one.private_bytes, spilt, one.local_bytes) for one, spilt in facts)

    def need_machine(self, feature: str = "") -> Machine:
        """Return the machine, which there must be.

        Parameters
        ----------
        feature
            What needs it, for the message.

        Raises
        ------
        MachineError
            There is none; the message says how to choose one.
        """
        if self.machine is None:
            what = f"feature {feature} needs" if feature else "this needs"
            names = ", ".join(machine_names())
            msg = f"{what} a machine; pass machine=NAME (--machine NAME on the command line): {names}, or a YAML file"
            raise MachineError(msg, feature=feature)
        return self.machine


# A context variable, not a global: threads and asynchronous tasks of the user's do not change one another's machine.
_chosen: ContextVar[Target | None] = ContextVar("perflex_machine", default=None)


def using_machine(
    place: str | Path | Machine | None, *, registers: int | None = None
) -> AbstractContextManager[Machine | None]:
    """Compute features that need a machine for this one, in the block and this thread.

    Parameters
    ----------
    place
        A machine, its name, or its file; None leaves things as they are.
    registers
        32-bit registers per work-item of the kernels; by default they are estimated from private arrays.

    Raises
    ------
    MachineError, FileFormatError
        There is no such machine, or its file is wrong.
    """
    return _using(None if place is None else Target(machine=load_machine(place), registers=registers))


def using_code(code: tuple[CompiledProgram, ...] | None) -> AbstractContextManager[Machine | None]:
    """Compute features of machine code for this code, in the block and this thread; None leaves things as they are."""
    return _using(None if code is None else replace(_chosen.get() or Target(), code=code))


@contextmanager
def _using(target: Target | None) -> Iterator[Machine | None]:
    token = _chosen.set(target or _chosen.get())
    try:
        yield None if target is None else target.machine
    finally:
        _chosen.reset(token)


def machine_in_use() -> Machine | None:
    """Return the machine of `using_machine`; None outside of such a block."""
    return (_chosen.get() or Target()).machine


def resolve_target(
    sub_group_size: int | None = None, machine: str | Path | Machine | None = None, *, otherwise: str | Machine = ""
) -> Target:
    """Return the target that an entry point counts for; what it calls takes the target and looks nothing up.

    Sub-groups are the machine's by default, 32 work-items where it has none.
    """
    given: object = sub_group_size  # of callers without types
    if given is not None and not (isinstance(given, Integral) and int(given) >= 1):
        msg = f"a sub-group has a whole number of work-items above zero, such as 32, not {given!r}"
        raise MachineError(msg)
    chosen = _chosen.get()
    if machine is not None or chosen is None:
        machine = machine if machine is not None else otherwise or None
        # Registers stated for another machine say nothing about this one.
        chosen = Target(machine=None if machine is None else load_machine(machine))
    if sub_group_size is None:
        sub_group_size = chosen.machine.sub_group_size if chosen.machine is not None else None
    return replace(chosen, sub_group_size=int(sub_group_size or DEFAULT_SUB_GROUP_SIZE))
