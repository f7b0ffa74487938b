"""Searching for the rows with the largest information: greedy additions and exchanges within a budget."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from perflex.calibration.budget.basis import scaled_columns

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Array = NDArray[np.float64]

# Information in every direction to begin with, in terms of the strongest row's: makes the first gains finite.
_RIDGE = 1e-8
# Below it a gain is rounding.
_LEAST_GAIN = 1e-9


def always() -> bool:
    """Return that there is time."""
    return True


class Search:
    """Rows, what they cost, what may be spent, and whether there is time for further exchanges."""

    def __init__(
        self, rows: Array, cost: Array, budget: float, known: Array, in_time: Callable[[], bool] = always
    ) -> None:
        self.in_time = in_time
        self.rows, fixed = scaled_columns(rows, known)
        self.cost = cost
        # Costs added in another order differ by rounding; a choice that costs just the budget has to pass.
        self.budget = budget * (1 + 1e-12)
        self._base = _RIDGE * np.eye(rows.shape[1]) + fixed.T @ fixed

    def information(self, chosen: list[int]) -> Array:
        """Return the information matrix of the known and the chosen rows, shape ``(n, n)``."""
        picked = self.rows[chosen]
        matrix: Array = self._base + picked.T @ picked
        return matrix

    def log_det(self, chosen: list[int]) -> float:
        """Return the logarithm of its determinant."""
        return float(np.linalg.slogdet(self.information(chosen))[1])

    def greedy(self, chosen: list[int], *, per_cost: bool, without: int = -1) -> list[int]:
        """Add rows while the budget lasts, each time the one with the largest gain (for its cost)."""
        chosen = list(chosen)
        inverse = np.linalg.inv(self.information(chosen))
        product = self.rows @ inverse
        left = self.budget - float(self.cost[chosen].sum())
        candidates = np.ones(len(self.rows), dtype=bool)
        candidates[[*chosen, without] if without >= 0 else chosen] = False
        while True:
            # Matrix determinant lemma: det(M + x x') = det(M) (1 + x' inv(M) x).
            gain = np.log1p(np.maximum(np.einsum("ij,ij->i", product, self.rows), 0.0))
            score = np.where(candidates & (self.cost <= left), gain / self.cost if per_cost else gain, 0.0)
            best = int(np.argmax(score))
            if not (score[best] > 0 and gain[best] > _LEAST_GAIN):
                return chosen
            chosen.append(best)
            candidates[best] = False
            left -= float(self.cost[best])
            # Sherman and Morrison's formula for the inverse after a row was added.
            leverage = product @ self.rows[best]
            product = product - np.outer(leverage, product[best] / (1.0 + leverage[best]))

    def exchange(self, chosen: list[int]) -> list[int]:
        """Exchange one row for another while that helps, filling up after each exchange."""
        chosen = list(chosen)
        for _ in range(10 + 4 * len(chosen)):
            swap = self._best_swap(chosen) if self.in_time() else None
            if swap is None:
                break
            chosen[swap[0]] = swap[1]
            chosen = self.greedy(chosen, per_cost=True)
        return chosen

    def _best_swap(self, chosen: list[int]) -> tuple[int, int] | None:
        """Return the place in `chosen` and the row that comes there, of the exchange with the largest gain."""
        if not chosen:
            return None
        inverse = np.linalg.inv(self.information(chosen))
        across = self.rows[chosen] @ inverse @ self.rows.T
        own = across[np.arange(len(chosen)), chosen]
        each = np.einsum("ij,jk,ik->i", self.rows, inverse, self.rows)
        # Determinant after the exchange over that before (Fedorov 1972).
        ratio = (1.0 - own)[:, None] * (1.0 + each) + across**2
        left = self.budget - float(self.cost[chosen].sum())
        ratio[self.cost > left + self.cost[chosen][:, None]] = 0.0
        ratio[:, chosen] = 0.0
        place, row = np.unravel_index(int(np.argmax(ratio)), ratio.shape)
        return (int(place), int(row)) if ratio[place, row] > 1.0 + _LEAST_GAIN else None

    def perturb(self, chosen: list[int], rounds: int) -> list[int]:
        """Drop some rows by chance, fill up with others and exchange; keep what is better. For small pools."""
        # The same chances each time, so that the same kernels are chosen each time.
        chance = np.random.default_rng(0)
        best, value = list(chosen), self.log_det(chosen)
        for number in range(rounds if best else 0):
            if not self.in_time():
                break
            count = 1 + number % max(1, len(best) - 1)
            dropped = chance.choice(len(best), size=min(count, len(best)), replace=False)
            banned = chance.choice(best) if number % 2 else -1
            rest = [row for place, row in enumerate(best) if place not in dropped and row != banned]
            trial = self.exchange(self.greedy(rest, per_cost=bool(chance.integers(2)), without=banned))
            if (found := self.log_det(trial)) > value + _LEAST_GAIN:
                best, value = trial, found
        return best
