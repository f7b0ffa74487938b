"""Learning while tuning: ask which variants to measure, tell their times."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.errors import CalibrationError
from perflex.search.pruning.promise import KeepDecision, Promise, keep_by_promise
from perflex.search.tuning.checks import check_budgets, check_names, number_of, prior_of, seconds_of
from perflex.search.tuning.first_batch import first_batch
from perflex.search.tuning.predictors import GaussianPredictor
from perflex.search.tuning.steps import Asked, TunerStep, features_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

    from perflex.search.spaces.extraction import ExtractedSpace
    from perflex.search.tuning.predictors import Forecast, Predictor

    Array = NDArray[np.float64]

__all__ = ["Tuner"]

_FIRST_SHARE = 0.3
_MOST_FIRST = 60


class Tuner:
    """Chooses what to measure next: a first batch for information, then what is likely to be faster than the best.

    Parameters
    ----------
    space
        What `VariantSpace.extract` gave, or a table of features (or tunables) with a row per variant, shape ``(n, d)``.
    predictor
        What learns from measurements; by default a Gaussian process over features and numeric settings.
    prior
        Seconds that a calibration predicts of each variant, shape ``(n,)``: the first batch then leans to fast
        variants, and the process learns what the calibration misses.
    promise
        Stop when it is met; by default within 5 % with 95 % confidence.
    budget
        Most measurements, failed ones included; by default all variants.
    budget_s
        Most seconds of what `tell` is told as cost (by default the times themselves).
    first
        Variants in the first batch; by default 30 % of the budget, between 8 and 60, and at least those that the
        promise needs where the budget allows.
    seed
        Of the first batch's choice.
    names
        Of the variants, for features without a space.

    Raises
    ------
    CalibrationError
        There are no variants, features are no finite table, or a budget, the first batch or the prior is out of
        range.
    """

    def __init__(  # noqa: PLR0913 - one parameter per choice
        self,
        space: ExtractedSpace | ArrayLike,
        *,
        predictor: Predictor | None = None,
        prior: ArrayLike | None = None,
        promise: Promise | None = None,
        budget: int | None = None,
        budget_s: float | None = None,
        first: int | None = None,
        seed: int = 0,
        names: Sequence[str] = (),
    ) -> None:
        self._settings: tuple[Mapping[str, Any], ...] = tuple(getattr(space, "settings", ()))
        features = features_of(space)
        self._count = len(features)
        self._names = tuple(names) or tuple(getattr(space, "names", ())) or tuple(map(str, range(self._count)))
        check_names(self._count, self._names)
        check_budgets(budget, budget_s, first)
        expected = prior_of(prior, self._count)
        # A variant alone has nothing to be told from: it is measured, nothing is predicted.
        self._predictor = predictor or (GaussianPredictor(features, expected) if self._count > 1 else None)
        self.wanted = promise or Promise()
        self.budget = self._count if budget is None else min(budget, self._count)
        self.budget_s = math.inf if budget_s is None else budget_s
        size = _first_size(self.budget, self.wanted) if first is None else min(first, self.budget)
        self._first = first_batch(features, size, expected, seed)
        self._times: dict[int, float] = {}
        self._pending: set[int] = set()
        self._spent = 0.0
        self._forecast: Forecast | None = None
        self._decision: KeepDecision | None = None
        self._history: list[TunerStep] = []

    def ask(self, count: int = 1) -> list[Asked]:
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
        chosen = [number for number in self._first if number not in known][:room]
        predicted = np.full(self._count, math.nan)
        # A batch is not mixed: what follows the first one is chosen with all of its times.
        if not chosen and self._learned() >= 2:
            forecast = self._fitted()
            predicted = np.exp(forecast.logs)
            chosen = self._promising(forecast, room)
        elif not chosen:
            left = [number for number in range(self._count) if number not in known]
            chosen = np.random.default_rng(len(known)).permutation(left)[:room].tolist()
        self._pending |= set(chosen)
        return [
            Asked(
                number, self._names[number], self._settings[number] if self._settings else {}, float(predicted[number])
            )
            for number in chosen
        ]

    def tell(
        self, which: Asked | int | str | Mapping[str, Any], seconds: float | None, cost_s: float | None = None
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
        number = number_of(which.number if isinstance(which, Asked) else which, self._names, self._settings)
        time, cost = seconds_of(seconds, cost_s, self._names[number])
        if number in self._times:
            msg = f"variant {self._names[number]!r} was told before; tell each once"
            raise CalibrationError(msg, variant=self._names[number])
        self._pending.discard(number)
        self._times[number] = time
        self._spent += cost
        self._forecast = self._decision = None
        best = min((value for value in self._times.values() if not math.isnan(value)), default=math.nan)
        self._history.append(TunerStep(number, self._names[number], time, best))

    @property
    def done(self) -> bool:
        """Whether the budget is spent, everything is measured, or the promise is met."""
        if len(self._times) >= self.budget or self._spent >= self.budget_s:
            return True
        if any(number not in self._times for number in self._first) or self._pending:
            return False
        decision = self.promise
        return decision is not None and decision.met and len(decision.kept) <= 1

    @property
    def best(self) -> Asked | None:
        """The fastest measured variant, with its measured time as ``predicted``; None before any."""
        return next(iter(self.fastest(1)), None)

    def fastest(self, count: int) -> list[Asked]:
        """Return the fastest measured variants, each with its measured time as ``predicted``."""
        valid = {number: time for number, time in self._times.items() if not math.isnan(time)}
        return [
            Asked(number, self._names[number], self._settings[number] if self._settings else {}, valid[number])
            for number in sorted(valid, key=lambda key: valid[key])[:count]
        ]

    @property
    def promise(self) -> KeepDecision | None:
        """Which variants must still be measured to keep the promise, beside the best; None before the first batch."""
        if self._count == 1 and self._learned():
            return KeepDecision(np.array([0]), math.inf, 1.0, met=True, explanation="1 of 1: there is no other variant")
        if self._learned() < 2:
            return None
        if self._decision is None:
            forecast, (numbers, seconds) = self._fitted(), self._valid()
            alive = np.array([number for number in range(self._count) if not math.isnan(self._times.get(number, 1.0))])
            place = np.full(self._count, -1)
            place[alive] = np.arange(alive.size)
            batch = np.isin(numbers, self._first)
            decision = keep_by_promise(
                np.exp(forecast.logs[alive]),
                measured_index=place[numbers[batch]],
                measured=seconds[batch],
                predicted_of_measured=np.exp(forecast.unseen[batch]),
                promise=self.wanted,
                searched_index=place[numbers[~batch]],
                searched=seconds[~batch],
            )
            self._decision = KeepDecision(
                alive[decision.kept],
                decision.threshold_ratio,
                decision.achieved_confidence,
                met=decision.met,
                explanation=decision.explanation,
            )
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
            Fewer than 2 variants were measured.
        """
        if self._learned() < 2:
            msg = "nothing is predicted before 2 variants are measured; ask and tell"
            raise CalibrationError(msg)
        return np.asarray(np.exp(self._fitted().logs))

    def _learned(self) -> int:
        return sum(not math.isnan(time) for time in self._times.values())

    def _valid(self) -> tuple[NDArray[np.intp], Array]:
        valid = {number: time for number, time in self._times.items() if not math.isnan(time)}
        return np.array(list(valid), dtype=np.intp), np.array(list(valid.values()))

    def _fitted(self) -> Forecast:
        if self._forecast is None:
            if self._predictor is None:
                msg = "there is one variant, and nothing to predict it from; measure it"
                raise CalibrationError(msg)
            self._forecast = self._predictor.forecast(*self._valid())
        return self._forecast

    def _promising(self, forecast: Forecast, count: int) -> list[int]:
        """Return variants by turns: that predicted fastest, that of largest expected improvement.

        The former alone stays where it found something fast, the latter alone wanders where little is known.
        """
        open_ = np.ones(self._count, dtype=bool)
        open_[[*self._times, *self._pending]] = False
        fastest = np.argsort(forecast.logs, kind="stable")
        # Where nothing is expected to improve, the fastest predicted come first.
        improving = np.lexsort((forecast.logs, -self._improvement(forecast)))
        chosen: list[int] = []
        for turn in range(len(self._times), len(self._times) + min(count, int(open_.sum()))):
            order = improving if turn % 2 else fastest
            number = int(order[np.argmax(open_[order])])
            open_[number] = False
            chosen.append(number)
        return chosen

    def _improvement(self, forecast: Forecast) -> Array:
        """Return by how much each variant is expected to lower the best time's logarithm, shape ``(n,)``."""
        from scipy.special import erfc

        best = math.log(float(np.nanmin(list(self._times.values()))))
        deviations = np.maximum(forecast.deviations, 1e-9)
        gap = (best - forecast.logs) / deviations
        likely, beyond = 0.5 * erfc(-gap / math.sqrt(2)), np.exp(-0.5 * gap**2) / math.sqrt(2 * math.pi)
        return np.asarray(deviations * (gap * likely + beyond))


def _first_size(budget: int, promise: Promise) -> int:
    size = min(_MOST_FIRST, max(8, math.ceil(_FIRST_SHARE * budget)))
    return min(max(size, promise.batch if promise.batch <= budget // 2 else 0), budget)
