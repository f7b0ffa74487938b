"""Learning while tuning: ask which variants to measure, tell their times."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import TYPE_CHECKING, Any, Literal, TypeGuard

import numpy as np

from perflex.errors import CalibrationError
from perflex.features.scop.checks import is_number
from perflex.search.acquisition import changes, first_batch, most_promising
from perflex.search.gaussian_process import Columns, GaussianProcess
from perflex.search.promise import KeepDecision, Promise, keep_by_promise
from perflex.search.settings_table import LEAST, codes_of, even_table, features_of
from perflex.search.variants import Variants

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from perflex.search.gaussian_process import Forecast
    from perflex.search.variants import Measured
    from perflex.timing.options import TimingOptions
    from perflex.timing.result_check import Answer

    Array = NDArray[np.float64]
    Indices = NDArray[np.intp]

# The first batch shows what to learn from, what follows finds the fast ones: its share of the budget, fewest and most,
# and most where times are expected, which leave less to learn.
_FIRST_SHARE = 0.3
_FIRST = (LEAST, 25)
_MOST_EXPECTED = 12
# The fastest measured so many are looked around.
_CENTRES = 5
# The times of a single variant have no spread to learn from.
_FEWEST = 2


@dataclass(frozen=True)
class SearchOptions:
    """How long a space is searched.

    Parameters
    ----------
    measurements
        Most variants to measure, failed ones included; by default all of a `Tuner`, for `tune` a tenth of the space and
        at least 30.
    budget_s
        Most seconds of building and timing.
    promise
        Stop when it is kept; by default within 5 % with 95 % confidence. With False, the budget is spent.
    first
        Variants in the first batch; by default 30 % of the budget, between 8 and 25 (12 with a prior), and at least
        those that a promise needs where the budget allows.
    seed
        Of what is chosen by chance.
    measured
        Times that are known before, in seconds by name, or a tuner's file that knows variants by their settings: what
        is learned starts from them, and they are not measured again.
    compiled
        So many of the variants that the calibration expects to be the fastest `tune` compiles first, as `with_code`.
    timing
        How `tune` times variants; by default with few trials, for most are told apart by more than noise.
    answer
        What `tune` compares the results of each variant with, on made-up data; others fail as ``wrong result``. True
        for those of the first variant; or a function that returns expected arrays by name. It is called with a mapping
        of what a variant reads, scalars and arrays, by name. All arrays have one axis, in the order of memory.
    tolerance
        By which fraction an element may differ, of its own size or the mean size in its array, whichever is larger;
        whole numbers must be equal.

    Raises
    ------
    CalibrationError
        A number is not positive, or one of variants is not whole; the answer is neither True nor a function.
    """

    measurements: int | None = None
    budget_s: float | None = None
    promise: Promise | Literal[False] | None = None
    first: int | None = None
    seed: int = 0
    measured: Measured = field(default_factory=dict)
    compiled: int = 0
    timing: TimingOptions | None = None
    answer: Answer | None = None
    tolerance: float = 1e-3

    def __post_init__(self) -> None:
        for what, given in (("measurements", self.measurements), ("the first batch", self.first)):
            if given is not None and not (_is_whole(given) and given >= 1):
                msg = f"{what} must be positive, a whole number of variants, not {given!r}"
                raise CalibrationError(msg)
        if self.budget_s is not None and not (is_number(self.budget_s) and self.budget_s > 0):
            msg = f"a budget must be positive, a number of seconds, not {self.budget_s!r}"
            raise CalibrationError(msg)
        if not (is_number(self.tolerance) and self.tolerance > 0):
            msg = f"a tolerance must be positive, a fraction such as 1e-3, not {self.tolerance!r}"
            raise CalibrationError(msg)
        answer: object = self.answer
        if not (answer is None or answer is True or callable(answer)):
            msg = f"an answer is True, or a function that returns expected arrays by name, not {answer!r:.60}"
            raise CalibrationError(msg)


@dataclass(frozen=True)
class Proposal:
    """A variant that is to be measured."""

    # Its row in the space or the table of features.
    number: int
    name: str
    # Its settings; empty where the tuner was given features only.
    settings: Mapping[str, Any] = field(default_factory=dict)
    # Seconds; nan in the first batch.
    predicted: float = math.nan


@dataclass(frozen=True)
class TunerStep:
    """A measurement that the tuner was told."""

    number: int
    name: str
    # Its time; nan if it failed.
    seconds: float
    # The fastest so far, seconds.
    best: float
    settings: Mapping[str, Any] = field(default_factory=dict, repr=False)


class Tuner:
    """Chooses what to measure next: a first batch for information, then what is likely to be faster than the best.

    Times that are known before count as measured: a first batch that carries no promise has so many variants fewer.

    Parameters
    ----------
    space
        What `VariantSpace.extract` gave, or a table of features (or tunables) with a row per variant, shape ``(n, d)``.
    prior
        Seconds that a calibration predicts of each variant, shape ``(n,)``: the first batch then leans to fast
        variants, and what is learned is what the calibration misses.
    names
        Of the variants, for features without a space.
    options
        Budgets, the promise to keep, and the first batch.

    Raises
    ------
    CalibrationError
        There are no variants, features are no finite table, or the prior is out of range.
    """

    def __init__(
        self,
        space: Variants | ArrayLike,
        *,
        prior: ArrayLike | None = None,
        names: Sequence[str] = (),
        options: SearchOptions | None = None,
    ) -> None:
        options = options or SearchOptions()
        points = features_of(space)
        expected = _prior_of(prior, len(points))
        table = even_table(points)
        if len(points) > 1 and expected is None and not np.ptp(table, axis=0).any():
            msg = "all variants have the same features, so their times cannot be predicted; add features or tunables"
            raise CalibrationError(msg)
        self._known = Columns(table, None if expected is None else np.log(expected))
        self._settings: Sequence[Mapping[str, Any]] = getattr(space, "settings", ())
        self._codes = codes_of(self._settings) if self._settings else points
        self._count = len(points)
        self._names: Sequence[str] = names or getattr(space, "names", ()) or tuple(map(str, range(self._count)))
        if not self._count or len(self._names) != self._count:
            msg = f"there are {self._count} variants and {len(self._names)} names; give one or more, a name for each"
            raise CalibrationError(msg)
        self.wanted = Promise() if options.promise is None else options.promise or None
        known_rows = self._known_rows(space, options.measured)
        left = self._count - len(known_rows)
        self.measurements = left if options.measurements is None else min(options.measurements, left)
        self.budget_s = math.inf if options.budget_s is None else options.budget_s
        size = self._first_size() if options.first is None else min(options.first, self.measurements)
        size = size if self.wanted is not None else max(0, size - len(known_rows))
        self._first = first_batch(points, size, expected, options.seed, sample=self.wanted is not None)
        self._process = GaussianProcess()
        # What was told, by number, in order.
        self._steps: dict[int, TunerStep] = {}
        self._pending: set[int] = set()
        self._spent = 0.0
        self._forecast: Forecast | None = None
        self._decision: KeepDecision | None = None
        self.given: frozenset[int] = frozenset()
        for number, time in known_rows.items():
            self.tell(number, time, 0.0)
        # Numbers of those that were known before.
        self.given = frozenset(self._steps)

    @staticmethod
    def _known_rows(space: object, measured: Measured) -> Mapping[Any, float]:
        """Return the times that are known before, by number, or by name where there is no space that knows them."""
        if isinstance(space, Variants):
            numbers, seconds = space.measured_rows(measured)
            return dict(zip(numbers.tolist(), seconds.tolist(), strict=True))
        if not isinstance(measured, Mapping):
            msg = "only variants of a VariantSpace are found in a tuner's file; give times by name"
            raise CalibrationError(msg)
        return measured

    def _first_size(self) -> int:
        fewest, most = _FIRST
        most = most if self._known.logs is None else _MOST_EXPECTED
        size = min(most, max(fewest, math.ceil(_FIRST_SHARE * self.measurements)))
        # The promise's batch only where half of the budget is left for the search.
        needed = 0 if self.wanted is None else self.wanted.batch
        return min(max(size, needed if needed <= self.measurements // 2 else 0), self.measurements)

    def ask(self, count: int | None = None) -> list[Proposal]:
        """Return variants to measure, each asked once: at most so many, none when `done`.

        By default so many as are worth a new forecast: late in a search, a few more measurements change little.

        Raises
        ------
        CalibrationError
            What was told cannot be learned from.
        """
        count = max(2, len(self._steps) // 8) if count is None else count
        room = min(count, self.measurements - len(self.history) - len(self._pending))
        if self.done or room <= 0:
            return []
        taken = self._steps.keys() | self._pending
        chosen = [number for number in self._first if number not in taken][:room]
        predicted = np.full(self._count, math.nan)
        # A batch is not mixed: what follows the first one is chosen with all of its times.
        if not chosen and self._learned():
            forecast, best = self._fitted(), math.log(self.fastest(1)[0].seconds)
            predicted = np.exp(forecast.logs)
            changed = changes(self._codes, [step.number for step in self.fastest(_CENTRES)])
            chosen = most_promising(forecast, best, taken, len(self._steps), room, changed)
        elif not chosen:
            # Nearly the whole first batch failed.
            left = [number for number in range(self._count) if number not in taken]
            chosen = np.random.default_rng(len(taken)).permutation(left)[:room].tolist()
        self._pending |= set(chosen)
        return [
            Proposal(number, self._names[number], self._settings_of(number), float(predicted[number]))
            for number in chosen
        ]

    def tell(
        self, which: Proposal | int | str | Mapping[str, Any], seconds: float | None, cost_s: float | None = None
    ) -> None:
        """Take note of a measurement.

        Parameters
        ----------
        which
            What was asked, its number, its name, or its settings; also variants that were never asked.
        seconds
            Its time; None or nan if it failed.
        cost_s
            What the measurement cost, in seconds, building included; by default the time itself.

        Raises
        ------
        CalibrationError
            There is no such variant, it was told before, or the time is not positive (None if it failed).
        """
        number = self._number_of(which.number if isinstance(which, Proposal) else which)
        name = self._names[number]
        time: object = math.nan if seconds is None else seconds
        if not (is_number(time) and (math.isnan(time) or 0 < time < math.inf)):
            msg = f"the time of {name!r} is {seconds!r}; it must be positive, or None if it failed"
            raise CalibrationError(msg, variant=name)
        cost: object = (0.0 if math.isnan(time) else time) if cost_s is None else cost_s
        if not (is_number(cost) and cost >= 0):
            msg = f"the cost of measuring {name!r} is {cost_s!r}; it must be a number of seconds, or None"
            raise CalibrationError(msg, variant=name)
        if number in self._steps:
            msg = f"variant {name!r} already has a time; tell each variant once"
            raise CalibrationError(msg, variant=name)
        self._pending.discard(number)
        self._spent += cost
        # Both rest on all times that were told.
        self._forecast = self._decision = None
        last = next(reversed(self._steps.values()), None)
        # Not a number is no minimum.
        best = float(np.fmin(time, math.nan if last is None else last.best))
        self._steps[number] = TunerStep(number, name, float(time), best, self._settings_of(number))

    @property
    def done(self) -> bool:
        """Whether the budget is spent, everything is measured, or the promise is met."""
        if len(self.history) >= self.measurements or self._spent >= self.budget_s:
            return True
        # A part of the first batch is no random sample, on which a promise rests.
        if any(number not in self._steps for number in self._first) or self._pending:
            return False
        decision = self.promise
        return decision is not None and decision.met and len(decision.kept) <= 1

    @property
    def best(self) -> TunerStep | None:
        """The fastest measurement; None before any."""
        return next(iter(self.fastest(1)), None)

    def fastest(self, count: int) -> list[TunerStep]:
        """Return the fastest measurements."""
        return sorted(self._timed(), key=lambda step: step.seconds)[:count]

    @property
    def promise(self) -> KeepDecision | None:
        """Which variants must still be measured to keep the promise, beside the best.

        None before the first batch, and where none is wanted.
        """
        if self.wanted is None:
            return None
        if self._count == 1 and self.best is not None:
            only = "1 of 1: there is no other variant"
            return KeepDecision(np.array([0]), math.inf, 1.0, met=True, explanation=only)
        if not self._learned():
            return None
        if self._decision is None:
            forecast, (numbers, seconds) = self._fitted(), self._valid()
            unseen = self._process.unseen(self._known, numbers, seconds)
            # Failed variants cannot be the best, and have no time to judge by.
            alive = np.setdiff1d(np.arange(self._count), np.setdiff1d(list(self._steps), numbers))
            place = np.full(self._count, -1)
            place[alive] = np.arange(alive.size)
            # What was searched for is known better than variants in general: the first batch alone judges.
            batch, predicted = np.isin(numbers, self._first), np.exp(forecast.logs[alive])
            decision = keep_by_promise(
                predicted, place[numbers], seconds, self.wanted, unseen=np.exp(unseen.logs), judges=batch
            )
            self._decision = replace(decision, kept=alive[decision.kept])
        return self._decision

    @property
    def history(self) -> tuple[TunerStep, ...]:
        """What was told, in order, but for what was known before."""
        return tuple(self._steps.values())[len(self.given) :]

    @property
    def predicted(self) -> Array:
        """Seconds of all variants, as learned so far, shape ``(n,)``.

        Raises
        ------
        CalibrationError
            Too few variants were measured.
        """
        if not self._learned():
            msg = f"nothing is predicted before {_FEWEST} variants are measured; ask and tell"
            raise CalibrationError(msg)
        return np.asarray(np.exp(self._fitted().logs))

    def _settings_of(self, number: int) -> Mapping[str, Any]:
        return self._settings[number] if self._settings else {}

    def _learned(self) -> bool:
        """Return whether enough is measured for a forecast."""
        return len(self._timed()) >= _FEWEST

    def _timed(self) -> list[TunerStep]:
        return [step for step in self._steps.values() if not math.isnan(step.seconds)]

    def _valid(self) -> tuple[Indices, Array]:
        timed = self._timed()
        return np.array([step.number for step in timed], dtype=np.intp), np.array([step.seconds for step in timed])

    def _fitted(self) -> Forecast:
        if self._forecast is None:
            numbers, seconds = self._valid()
            self._forecast = self._process.forecast(self._known, numbers, seconds)
        return self._forecast

    def _number_of(self, which: object) -> int:
        """Return the number of the variant that is meant: by its number, its name, or its settings."""
        names, settings = self._names, self._settings
        found: list[int] = []
        if isinstance(which, str):
            found = [number for number, name in enumerate(names) if name == which]
        elif isinstance(which, Mapping):
            found = [number for number, each in enumerate(settings) if dict(each) == dict(which)][:1]
        elif _is_whole(which) and 0 <= which < len(names):
            found = [int(which)]
        if len(found) == 1:
            return found[0]
        msg = (
            f"there is no variant {which!r} among the {len(names)}; tell what ask() gave, its number, name or settings"
        )
        if found:
            msg = f"{len(found)} variants are named {which!r}; tell the number"
        raise CalibrationError(msg)


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _prior_of(prior: ArrayLike | None, count: int) -> Array | None:
    """Return expected times, shape ``(count,)``, or None where none are given."""
    if prior is None:
        return None
    msg = f"the prior must be a positive time for each of the {count} variants"
    try:
        expected = np.asarray(prior, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise CalibrationError(msg) from error
    if expected.shape != (count,) or not ((expected > 0) & np.isfinite(expected)).all():
        raise CalibrationError(msg)
    return expected
