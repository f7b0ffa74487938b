"""Learning while tuning: ask which variants to measure, tell their times."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.errors import CalibrationError
from perflex.search.described.hybrid import HybridPredictor
from perflex.search.described.space import DescribedSpace
from perflex.search.pruning.promise import KeepDecision, Promise, keep_by_promise
from perflex.search.tuning.checks import check_budgets, check_names, number_of, prior_of, seconds_of
from perflex.search.tuning.described_search import DescribedSearch
from perflex.search.tuning.feature_search import FeatureSearch, features_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

    from perflex.search.spaces.extraction import ExtractedSpace
    from perflex.search.tuning.predictors import Forecast, Predictor

    Array = NDArray[np.float64]
    Indices = NDArray[np.intp]

# Share of the budget, and the most: the first batch shows what to learn from, what follows finds the fast ones.
_FIRST_SHARE = 0.3
_MOST_FIRST = 60


@dataclass(frozen=True)
class Proposal:
    """A variant that is to be measured.

    Attributes
    ----------
    number
        Its row in the space or the table of features.
    name
        Its name.
    settings
        Its settings; empty where the tuner was given features only.
    predicted
        Seconds; nan in the first batch.
    """

    number: int
    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    predicted: float = math.nan


@dataclass(frozen=True)
class TunerStep:
    """A measurement that the tuner was told.

    Attributes
    ----------
    number, name
        Of the variant.
    seconds
        Its time; nan if it failed.
    best
        The fastest so far, seconds.
    settings
        Of the variant; empty where the tuner was given features only.
    """

    number: int
    name: str
    seconds: float
    best: float
    settings: Mapping[str, Any] = field(default_factory=dict, repr=False)


class Tuner:
    """Chooses what to measure next: a first batch for information, then what is likely to be faster than the best.

    Parameters
    ----------
    space
        What `VariantSpace.extract` gave, a `DescribedSpace`, or a table of features (or tunables) with a row per
        variant, shape ``(n, d)``.
    predictor
        What learns from measurements; by default a Gaussian process over features and numeric settings, of a described
        space the analytic model with its learned correction (needs the extra ``learn``).
    prior
        Seconds that a calibration predicts of each variant, shape ``(n,)``: the first batch then leans to fast
        variants, and the process learns what the calibration misses. A described space has its own.
    promise
        Stop when it is met; by default within 5 % with 95 % confidence, but a described space is searched until the
        budget is spent.
    budget
        Most measurements, failed ones included; by default all variants.
    budget_s
        Most seconds of what `tell` is told as cost (by default the times themselves).
    first
        Variants in the first batch; by default 30 % of the budget, between 8 and 60, and at least those that the
        promise needs where the budget allows; of a described space 25.
    seed
        Of what is chosen or learned by chance.
    names
        Of the variants, for features without a space.

    Raises
    ------
    CalibrationError
        There are no variants, features are no finite table, or a budget, the first batch or the prior is out of
        range.
    MissingExtraError
        A described space needs scikit-learn, which is not installed.
    """

    def __init__(  # noqa: PLR0913 - one parameter per choice
        self,
        space: ExtractedSpace | DescribedSpace | ArrayLike,
        *,
        predictor: Predictor | HybridPredictor | None = None,
        prior: ArrayLike | None = None,
        promise: Promise | None = None,
        budget: int | None = None,
        budget_s: float | None = None,
        first: int | None = None,
        seed: int = 0,
        names: Sequence[str] = (),
    ) -> None:
        described = isinstance(space, DescribedSpace)
        # Rows of features, or a described space itself, which has its own.
        table = space if isinstance(space, DescribedSpace) else features_of(space)
        self._count = len(table)
        self._settings: Sequence[Mapping[str, Any]] = getattr(space, "configurations" if described else "settings", ())
        self._names: Sequence[str] = names or getattr(space, "names", ()) or tuple(map(str, range(self._count)))
        check_names(self._count, self._names)
        check_budgets(budget, budget_s, first)
        # What a described space is first measured at is chosen by its model: the batch carries no promise by default.
        self.wanted = Promise() if promise is None and not described else promise
        self.budget = self._count if budget is None else min(budget, self._count)
        self.budget_s = math.inf if budget_s is None else budget_s
        size = None if first is None else min(first, self.budget)
        expected = prior_of(prior, self._count)
        self.method: FeatureSearch | DescribedSearch
        if isinstance(table, DescribedSpace):
            if expected is not None or not isinstance(predictor, HybridPredictor | None):
                msg = (
                    "a described space has its own prior and predictor; to use others, pass its table, "
                    "`space.inputs(0)`"
                )
                raise CalibrationError(msg, description=table.description.name)
            self.method = DescribedSearch(table, predictor, size, seed, unseen=promise is not None)
        else:
            if isinstance(predictor, HybridPredictor):
                msg = "a HybridPredictor predicts a described space; give that, or another predictor"
                raise CalibrationError(msg)
            size = _first_size(self.budget, promise or Promise()) if size is None else size
            self.method = FeatureSearch(table, predictor, expected, size, seed)
        self._times: dict[int, float] = {}
        self._pending: set[int] = set()
        self._spent = 0.0
        self._forecast: Forecast | None = None
        self._decision: KeepDecision | None = None
        self._history: list[TunerStep] = []

    def ask(self, count: int = 1) -> list[Proposal]:
        """Return variants to measure, each asked once: at most so many, none when `done`.

        Raises
        ------
        CalibrationError
            What was told cannot be learned from.
        """
        room = min(count, self.budget - len(self._times) - len(self._pending))
        if self.done or room <= 0:
            return []
        known = self._times.keys() | self._pending
        chosen = [number for number in self.method.first if number not in known][:room]
        predicted = np.full(self._count, math.nan)
        # A batch is not mixed: what follows the first one is chosen with all of its times.
        if not chosen and self._learned():
            forecast = self._fitted()
            predicted = np.exp(forecast.logs)
            chosen = self.method.following(forecast, self._times, self._pending, room)
        elif not chosen:
            chosen = self.method.spare(known, room)
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
        number = number_of(which.number if isinstance(which, Proposal) else which, self._names, self._settings)
        time, cost = seconds_of(seconds, cost_s, self._names[number])
        if number in self._times:
            msg = f"variant {self._names[number]!r} already has a time; tell each variant once"
            raise CalibrationError(msg, variant=self._names[number])
        self._pending.discard(number)
        self._times[number] = time
        self._spent += cost
        # Both rest on all times that were told.
        self._forecast = self._decision = None
        best = min((value for value in self._times.values() if not math.isnan(value)), default=math.nan)
        self._history.append(TunerStep(number, self._names[number], time, best, self._settings_of(number)))

    @property
    def done(self) -> bool:
        """Whether the budget is spent, everything is measured, or the promise is met."""
        if len(self._times) >= self.budget or self._spent >= self.budget_s:
            return True
        # A part of the first batch is no random sample, on which a promise rests.
        if any(number not in self._times for number in self.method.first) or self._pending:
            return False
        decision = self.promise
        return decision is not None and decision.met and len(decision.kept) <= 1

    @property
    def best(self) -> TunerStep | None:
        """The fastest measurement; None before any."""
        return next(iter(self.fastest(1)), None)

    def fastest(self, count: int) -> list[TunerStep]:
        """Return the fastest measurements."""
        timed = [step for step in self._history if not math.isnan(step.seconds)]
        return sorted(timed, key=lambda step: step.seconds)[:count]

    @property
    def promise(self) -> KeepDecision | None:
        """Which variants must still be measured to keep the promise, beside the best.

        None before the first batch, and of a described space that was given no promise.
        """
        if self.wanted is None:
            return None
        if self._count == 1 and self.best is not None:
            only = "1 of 1: there is no other variant"
            return KeepDecision(np.array([0]), math.inf, 1.0, met=True, explanation=only, promise=self.wanted)
        if not self._learned():
            return None
        if self._decision is None:
            forecast, (numbers, seconds) = self._fitted(), self._valid()
            # Failed variants cannot be the best, and have no time to judge by.
            alive = np.array([number for number in range(self._count) if not math.isnan(self._times.get(number, 1.0))])
            place = np.full(self._count, -1)
            place[alive] = np.arange(alive.size)
            # What was searched for is known better than variants in general: the first batch alone judges.
            batch = np.isin(numbers, self.method.first)
            decision = keep_by_promise(
                np.exp(forecast.logs[alive]),
                measured_index=place[numbers[batch]],
                measured=seconds[batch],
                predicted_of_measured=np.exp(forecast.unseen[batch]),
                promise=self.wanted,
                searched_index=place[numbers[~batch]],
                searched=seconds[~batch],
            )
            self._decision = replace(decision, kept=alive[decision.kept])
        return self._decision

    @property
    def history(self) -> tuple[TunerStep, ...]:
        """What was told, in order."""
        return tuple(self._history)

    @property
    def predicted(self) -> Array:
        """Seconds of all variants, as learned so far, shape ``(n,)``.

        Raises
        ------
        CalibrationError
            Too few variants were measured.
        """
        if not self._learned():
            msg = f"nothing is predicted before {self.method.fewest} variants are measured; ask and tell"
            raise CalibrationError(msg)
        return np.asarray(np.exp(self._fitted().logs))

    def _settings_of(self, number: int) -> Mapping[str, Any]:
        return self._settings[number] if self._settings else {}

    def _learned(self) -> bool:
        """Return whether enough is measured for a forecast."""
        return sum(not math.isnan(time) for time in self._times.values()) >= self.method.fewest

    def _valid(self) -> tuple[Indices, Array]:
        valid = {number: time for number, time in self._times.items() if not math.isnan(time)}
        return np.array(list(valid), dtype=np.intp), np.array(list(valid.values()))

    def _fitted(self) -> Forecast:
        if self._forecast is None:
            self._forecast = self.method.forecast(*self._valid())
        return self._forecast


def _first_size(budget: int, promise: Promise) -> int:
    size = min(_MOST_FIRST, max(8, math.ceil(_FIRST_SHARE * budget)))
    # The promise's batch only where half of the budget is left for the search.
    return min(max(size, promise.batch if promise.batch <= budget // 2 else 0), budget)
