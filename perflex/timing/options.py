"""How kernels are timed."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import Literal

from perflex.errors import MeasurementError


@dataclass(frozen=True)
class TimingOptions:
    """How kernels are timed.

    Attributes
    ----------
    trials
        Most undisturbed timings of one kernel, disturbed ones included at most twice as many; 60 are the paper's
        (Section 6.1.4).
    min_trials
        Fewest timings of one kernel, whatever they cost.
    warmups
        Untimed launches before each timing: caches and worker threads are then in the state that repeated
        launches leave, whichever kernel ran before.
    precision
        A kernel is timed no further when half the width of its interval is at most this fraction of its time;
        0 for as many timings as the limits allow. It is looked at after 8, 12, 18, 27, 41 ... undisturbed timings, half
        as many more each time, and after `trials`.
    budget_s
        Device time for one kernel in seconds, warm-ups included; long kernels get fewer trials. Timings that others
        disturbed are taken again within it; up to twice that time while fewer than `min_trials` are undisturbed.
    limit_s
        A kernel one launch of which takes longer is given up.
    build_limit_s
        A kernel whose build takes longer is given up; only in a process of its own.
    isolate
        Whether kernels of real devices are built and run in a process of their own, so that drivers can crash and
        kernels need not end.
    retry_failures
        Whether kernels that crashed or hung in an earlier run are tried again.
    seed
        Of the random order within rounds.
    caches
        ``"warm"``: as the launch before leaves them; ``"cold"``: before each launch memory of twice the size of the
        last cache is written, so that no data of the kernel are in caches.
    """

    trials: int = 60
    min_trials: int = 5
    warmups: int = 1
    precision: float = 0.02
    budget_s: float = 0.5
    limit_s: float = 10.0
    build_limit_s: float = 60.0
    isolate: bool = True
    retry_failures: bool = False
    seed: int = 0
    caches: Literal["warm", "cold"] = "warm"

    def __post_init__(self) -> None:
        for name in ("trials", "min_trials", "warmups", "seed"):
            value: object = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Integral) or value < 0:
                msg = f"{name} must be a whole number of zero or more, not {value!r}"
                raise MeasurementError(msg)
        if not 1 <= self.min_trials <= self.trials or self.warmups < 0:
            msg = (
                f"timing needs 1 <= min_trials <= trials and warmups >= 0, "
                f"got {self.min_trials}, {self.trials}, {self.warmups}"
            )
            raise MeasurementError(msg)
        if self.caches not in {"warm", "cold"}:
            msg = f"caches are 'warm' or 'cold' when a launch begins, not {self.caches!r}"
            raise MeasurementError(msg)
        # Conditions that must hold, negated: nan fails them, too.
        if not 0 <= self.precision < 1:
            msg = f"precision must be a fraction of a kernel's time, at least 0 and below 1, got {self.precision}"
            raise MeasurementError(msg)
        if not (self.budget_s > 0 and self.limit_s > 0 and self.build_limit_s > 0):
            msg = (
                f"budget_s, limit_s and build_limit_s must be positive, "
                f"got {self.budget_s}, {self.limit_s} and {self.build_limit_s}"
            )
            raise MeasurementError(msg)
