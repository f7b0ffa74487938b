"""Which machine features that need one are computed for."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perflex.errors import MachineError
from perflex.machines.lookup import load_machine, machine_names

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from perflex.machines.machine import Machine

__all__ = ["Choice", "chosen_machine", "current_choice", "current_machine", "else_machine", "using_machine"]


@dataclass(frozen=True)
class Choice:
    """A machine, and what is known of the kernels on it.

    Attributes
    ----------
    machine
        The machine.
    registers
        32-bit registers per work-item; None where they limit nothing.
    """

    machine: Machine
    registers: int | None = None


_chosen: ContextVar[Choice | None] = ContextVar("perflex_machine", default=None)
_otherwise: ContextVar[str] = ContextVar("perflex_machine_otherwise", default="")


@contextmanager
def using_machine(
    place: str | Path | Machine | Choice | None, *, registers: int | None = None
) -> Iterator[Machine | None]:
    """Compute features that need a machine for this one, in the block and this thread.

    Parameters
    ----------
    place
        A machine, its name, or its file; None leaves things as they are.
    registers
        32-bit registers per work-item of the kernels; by default they limit nothing.

    Raises
    ------
    MachineError, FileFormatError
        There is no such machine, or its file is wrong.
    """
    if place is None:
        yield None
        return
    choice = place if isinstance(place, Choice) else Choice(load_machine(place), registers)
    token = _chosen.set(choice)
    try:
        yield choice.machine
    finally:
        _chosen.reset(token)


@contextmanager
def else_machine(name: str) -> Iterator[None]:
    """Use the machine of that name, in the block, where none is chosen; it is looked up when a feature needs it.

    Parameters
    ----------
    name
        As `load_machine` takes it; empty leaves things as they are.
    """
    if not name:
        yield
        return
    token = _otherwise.set(name)
    try:
        yield
    finally:
        _otherwise.reset(token)


def chosen_machine() -> Choice | None:
    """Return what is chosen, None if no machine is."""
    chosen = _chosen.get()
    if chosen is None and _otherwise.get():
        return Choice(load_machine(_otherwise.get()))
    return chosen


def current_choice(feature: str = "") -> Choice:
    """Return what is chosen.

    Parameters
    ----------
    feature
        What needs it, for the message.

    Raises
    ------
    MachineError
        No machine is chosen; the message says how to choose one.
    """
    choice = chosen_machine()
    if choice is None:
        what = f"feature {feature} needs" if feature else "this needs"
        names = ", ".join(machine_names())
        msg = f"{what} a machine; pass machine=NAME (--machine NAME on the command line): {names}, or a YAML file"
        raise MachineError(msg, feature=feature)
    return choice


def current_machine(feature: str = "") -> Machine:
    """Return the machine that is chosen; arguments and errors as `current_choice`."""
    return current_choice(feature).machine
