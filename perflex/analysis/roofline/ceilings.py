"""Ceilings of the instruction roofline: what a machine can do at most in a second, and who says so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from perflex.errors import MachineError
from perflex.features.gpu.transactions import require_gpu
from perflex.machines.ceilings import CEILING_LEVELS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perflex.calibration.calibration import Calibration
    from perflex.machines.machine import Machine

# What a second of a level is made of: facts that multiply to bytes (or instructions) per second.
_FACTS = {
    # Each scheduler issues one instruction per cycle (Section III-A: 80 x 4 x 1.53 GHz = 489.6 GIPS).
    "instructions": ("compute_units", "schedulers_per_unit", "clock_hz"),
    "l1": ("compute_units", "clock_hz", "l1_bytes_per_cycle"),
    "local": ("compute_units", "clock_hz", "local_banks", "local_bank_bytes"),
    "l2": ("l2_bandwidth",),
    "dram": ("dram_bandwidth",),
}
_FEATURES = {
    "instructions": ("f_inst_total",),
    "l1": ("f_txn_l1", "f_txn_global"),
    "local": ("f_txn_local",),
    "l2": ("f_txn_l2",),
    "dram": ("f_txn_dram",),
}


@dataclass(frozen=True)
class Ceiling:
    """The most that a machine does of something.

    Attributes
    ----------
    level
        ``"instructions"``, ``"l1"``, ``"local"``, ``"l2"`` or ``"dram"``.
    rate
        Instructions of sub-groups, or transactions, per second.
    transaction_bytes
        Bytes of one transaction; 0 for instructions.
    source
        Where the rate comes from.
    """

    level: str
    rate: float
    transaction_bytes: int
    source: str


@dataclass(frozen=True)
class Ceilings:
    """The ceilings of a machine.

    Attributes
    ----------
    machine
        Its name.
    known
        By level.
    absent
        Why a level has none.
    """

    machine: str
    known: Mapping[str, Ceiling]
    absent: Mapping[str, str]

    @property
    def peak(self) -> Ceiling:
        """Instructions per second.

        Raises
        ------
        MachineError
            They are not known.
        """
        found = self.known.get("instructions")
        if found is None:
            msg = f"machine {self.machine} has no peak of instructions: {self.absent['instructions']}"
            raise MachineError(msg, machine=self.machine)
        return found


def ceilings_of(machine: Machine, calibration: Calibration | None = None) -> Ceilings:
    """Return the ceilings of a machine (Section III-A, Equation 2).

    A level's rate is, in this order: the one published for the machine, the one that its facts give, or the inverse
    of what a calibrated model says one instruction or transaction takes. Without any, the level has no ceiling.

    Parameters
    ----------
    machine
        A GPU.
    calibration
        Of a model that is linear in ``f_inst_total`` or one of the features ``f_txn_...``.

    Raises
    ------
    MachineError
        The machine is no GPU, or the size of its transactions is not known.
    """
    require_gpu(machine)
    sizes = {
        "instructions": 0,
        **dict.fromkeys(("l1", "l2", "dram"), int(machine.need("sector_bytes"))),
        "local": int(machine.need("local_banks") * machine.need("local_bank_bytes")),
    }
    known, absent = {}, {}
    for level in CEILING_LEVELS:
        found = _published(machine, level) or _from_facts(machine, level)
        if found is not None:
            # Rates in bytes become rates of transactions; instructions are counted already.
            known[level] = Ceiling(level, found[0] / (sizes[level] or 1), sizes[level], found[1])
            continue
        calibrated = _calibrated(calibration, level)
        if calibrated is not None:
            known[level] = Ceiling(level, calibrated[0], sizes[level], calibrated[1])
        else:
            missing = [name for name in _FACTS[level] if getattr(machine, name) is None]
            absent[level] = f"machine {machine.name} has no fact {', '.join(missing)}"
    return Ceilings(machine.name, known, absent)


def _published(machine: Machine, level: str) -> tuple[float, str] | None:
    found = machine.ceilings.get(level)
    return None if found is None else (found.rate, f"{found.source.kind}: {found.source.text}")


def _from_facts(machine: Machine, level: str) -> tuple[float, str] | None:
    rate, texts = 1.0, []
    for name in _FACTS[level]:
        value = getattr(machine, name)
        if value is None:
            return None
        rate *= value
        origin = machine.sources.get(name)
        texts.append(f"{origin.kind}: {origin.text}" if origin else f"{name} of the machine")
    return rate, f"{' x '.join(_FACTS[level])}; {'; '.join(dict.fromkeys(texts))}"


def _calibrated(calibration: Calibration | None, level: str) -> tuple[float, str] | None:
    """Return the inverse of the seconds that one more of a feature takes, if that is the same for any number of it."""
    if calibration is None:
        return None
    inputs = calibration.model.input_features()
    for name in _FEATURES[level]:
        if name not in inputs:
            continue
        none = dict.fromkeys(inputs, 0.0)
        # A billion at a time: one takes too little time to tell it from rounding.
        first, second, third = (
            float(calibration.model.evaluate(calibration.params, {**none, name: amount})) for amount in (0.0, 1e9, 2e9)
        )
        step = (second - first) / 1e9
        # Second differences vanish where the cost is linear: with an overlap there is no single rate.
        if step > 0 and abs(third - 2 * second + first) <= 1e-6 * (third - first):
            return 1 / step, f"calibrated: {name} on {calibration.device.get('name', 'an unnamed device')}"
    return None
