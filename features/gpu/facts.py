"""The machine facts that the estimators read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from perflex.errors import MachineError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["MachineFacts", "curve", "fact"]


class MachineFacts(Protocol):
    """What an estimator may ask of a machine; any number may be None (unknown). SI units, sizes in bytes."""

    @property
    def name(self) -> str:
        """The machine's name."""

    @property
    def curves(self) -> Mapping[str, tuple[float, float, float]]:
        """Coefficients (a, b, c) of capacity curves a exp(-b exp(-c O)) that replace a variant's own."""


def fact(machine: MachineFacts, name: str) -> int:
    """Return a number the estimate needs.

    Raises
    ------
    MachineError
        It is not known.
    """
    value = getattr(machine, name, None)
    if value is None:
        msg = f"machine {machine.name!r} has no {name}, which data volumes need; give it in a machine file"
        raise MachineError(msg, machine=machine.name, fact=name)
    return int(value)


def curve(machine: MachineFacts, name: str, default: tuple[float, float, float]) -> tuple[float, float, float]:
    """Return a capacity curve's coefficients: the machine's own, else those of the estimator."""
    return machine.curves.get(name, default)
