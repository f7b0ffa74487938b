"""Residuals that carry over: a model errs alike for the same kernel on all devices.

The residual r = ln(measured / predicted) of a kernel on a device is taken as the sum of normal parts ::

    r = program + kernel + program on this device + kernel on this device + noise

The first two are common to all devices. The next two are correlated between similar devices, by exp(-d/length) at the
distance d of their machines. The parts' variances and the length come from the sources alone, by maximum likelihood
(variance components: Harville, J. Am. Stat. Assoc. 72, 320, 1977). What the sources and the samples then say of a
kernel on the target is the conditional mean (best linear unbiased prediction: Robinson, Stat. Sci. 6, 15, 1991): the
sources' residuals, shrunk by how well they agree. Programs are independent of one another.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Whole = NDArray[np.intp]

# Kernels of a program that the variances are estimated from: more say the same and take long.
_MOST_KERNELS = 24
# Kernels of a program whose residuals are conditioned on one another at once.
_AT_ONCE = 24
_LEAST_DEVIATION = 1e-3
_LENGTH_SCALES = (0.05, 0.2, 0.5, 1.5)
_EVALUATIONS = 250


@dataclass(frozen=True, eq=False)
class Residuals:
    """Residuals of kernels on devices, one row each."""

    # Its number.
    device: NDArray[np.intp]
    programs: tuple[str, ...]
    kernels: tuple[str, ...]
    # ln(measured / predicted).
    values: NDArray[np.float64]

    def by_program(self) -> dict[str, list[int]]:
        """Return the rows of each program."""
        rows: dict[str, list[int]] = {}
        for row, program in enumerate(self.programs):
            rows.setdefault(program, []).append(row)
        return rows

    def take(self, rows: Sequence[int] | Whole) -> Residuals:
        """Return some rows."""
        return Residuals(
            self.device[np.asarray(rows, dtype=np.intp)],
            tuple(self.programs[i] for i in rows),
            tuple(self.kernels[i] for i in rows),
            self.values[np.asarray(rows, dtype=np.intp)],
        )

    def and_also(self, other: Residuals) -> Residuals:
        """Return the rows of both."""
        return Residuals(
            np.concatenate([self.device, other.device]),
            self.programs + other.programs,
            self.kernels + other.kernels,
            np.concatenate([self.values, other.values]),
        )


@dataclass(frozen=True)
class Components:
    """Standard deviations of the parts of a residual, and the length scale of similarity (0 for none)."""

    program: float
    kernel: float
    program_on_device: float
    kernel_on_device: float
    noise: float
    length_scale: float = 0.0

    def covariance(
        self, first: tuple[Whole, Whole], second: tuple[Whole, Whole], distance: Array, *, noise: bool
    ) -> Array:
        """Return the covariance of residuals of one program, shape ``(a, b)``."""
        alike = first[1][:, None] == second[1][None, :]
        apart = distance[first[0][:, None], second[0][None, :]]
        with np.errstate(invalid="ignore"):
            near = np.exp(-apart / self.length_scale) if self.length_scale > 0 else (apart == 0) * 1.0
        common = self.program**2 + self.kernel**2 * alike
        own = self.program_on_device**2 + self.kernel_on_device**2 * alike
        found: Array = common + near * own
        if noise:
            found = found + np.diag(np.full(len(found), self.noise**2))
        return found

    @property
    def unseen(self) -> float:
        """Standard deviation of the residual of a kernel of another program, without noise."""
        parts = (self.program, self.kernel, self.program_on_device, self.kernel_on_device)
        return float(np.sqrt(sum(part**2 for part in parts)))


@dataclass(frozen=True, eq=False)
class Carried:
    """What is known of residuals on the target."""

    # Mean and standard deviation of the residual of each label that was asked for, noise included, shape ``(k,)``.
    correction: NDArray[np.float64]
    deviation: NDArray[np.float64]
    # Part of the deviation that kernels of a program have in common, shape ``(k,)``.
    shared: NDArray[np.float64]
    # Mean and deviation of the residual of further kernels of each program.
    programs: dict[str, tuple[float, float]] = field(default_factory=dict)


def components_of(residuals: Residuals, distance: Array) -> Components:
    """Return the variances that make the residuals likeliest.

    One device cannot tell what is common to all devices from what is its own: half of each variance is then taken for
    common.
    """
    from scipy.optimize import minimize

    blocks = list(_blocks(residuals))
    overall = max(float(np.std(residuals.values)) if len(residuals.values) else 0.0, 10 * _LEAST_DEVIATION)
    if not blocks:
        return Components(overall / 2, overall / 2, overall / 2, overall / 2, overall / 10)
    several = len(np.unique(residuals.device)) > 1
    # Of one device common and own parts are the same unknowns.
    place = [0, 1, 2, 3, 4] if several else [0, 1, 0, 1, 2]
    start = np.log([*np.full(max(place), overall / 2), overall / 5])
    best, least = _components(start[place], 0.0), np.inf
    finite = distance[np.isfinite(distance) & (distance > 0)]
    for length_scale in (0.0, *_LENGTH_SCALES) if several and finite.size else (0.0,):

        def lacking(logs: Array, length_scale: float = length_scale) -> float:
            return _lacking(_components(logs[place], length_scale), blocks, distance)

        found = minimize(lacking, start, method="Nelder-Mead", options={"maxfev": _EVALUATIONS, "xatol": 0.03})
        if found.fun < least:
            best, least = _components(found.x[place], length_scale), float(found.fun)
    return best


def _components(logs: Array, length_scale: float) -> Components:
    deviations = np.maximum(np.exp(np.clip(logs, -12.0, 3.0)), _LEAST_DEVIATION).tolist()
    return Components(deviations[0], deviations[1], deviations[2], deviations[3], deviations[4], length_scale)


def carry_over(
    residuals: Residuals,
    components: Components,
    distance: Array,
    target: int,
    asked: Sequence[tuple[str, str]],
    *,
    whole: bool = True,
) -> Carried:
    """Return what residuals of sources, and of samples, say of a target: of program and label of each kernel asked.

    If `whole`, of programs of which no kernel is asked for, too. Distances are of all devices, shape ``(d, d)``.
    """
    count = len(asked)
    correction, deviation = np.zeros(count), np.full(count, np.hypot(components.unseen, components.noise))
    shared = np.full(count, np.hypot(components.program, components.program_on_device))
    places: dict[str, list[int]] = {}
    for place, (program, _) in enumerate(asked):
        places.setdefault(program, []).append(place)
    programs: dict[str, tuple[float, float]] = {}
    for program, rows in residuals.by_program().items():
        part = residuals.take(rows)
        wanted = places.get(program, [])
        if not (wanted or whole):
            continue
        labels = [asked[place][1] for place in wanted]
        for first in range(0, max(len(wanted), 1), _AT_ONCE):
            chunk = labels[first : first + _AT_ONCE]
            mean, sigma, common = _conditional(part, components, distance, target, chunk)
            at = wanted[first : first + _AT_ONCE]
            correction[at], deviation[at], shared[at] = mean[:-1], sigma[:-1], common[:-1]
            programs.setdefault(program, (float(mean[-1]), float(sigma[-1])))
    return Carried(correction, deviation, shared, programs)


def _conditional(
    part: Residuals, components: Components, distance: Array, target: int, labels: Sequence[str]
) -> tuple[Array, Array, Array]:
    """Return mean, deviation and common deviation of labels' residuals on the target; last those of any other label."""
    wanted = set(labels)
    sampled = {kernel for kernel, device in zip(part.kernels, part.device, strict=True) if device == target}
    first = [i for i, kernel in enumerate(part.kernels) if kernel in wanted or kernel in sampled]
    others = [i for i in range(len(part.kernels)) if part.kernels[i] not in wanted and part.kernels[i] not in sampled]
    spare = max(_AT_ONCE * 4 - len(first), 0)
    step = max(len(others) // spare, 1) if spare else len(others) + 1
    seen = part.take([*first, *others[::step]])
    numbers = {kernel: number for number, kernel in enumerate(dict.fromkeys((*seen.kernels, *labels)))}
    rows = (seen.device, np.array([numbers[kernel] for kernel in seen.kernels], dtype=np.intp))
    asked_kernels = np.array([*(numbers[label] for label in labels), len(numbers)], dtype=np.intp)
    asked = (np.full(len(asked_kernels), target, dtype=np.intp), asked_kernels)
    within = components.covariance(rows, rows, distance, noise=True)
    across = components.covariance(asked, rows, distance, noise=False)
    solved = np.linalg.solve(within, np.column_stack([seen.values[:, None], across.T]))
    mean = across @ solved[:, 0]
    left = components.unseen**2 - np.einsum("ij,ji->i", across, solved[:, 1:])
    # What a kernel that is in no row would have: the part that is common to the program.
    common = across[-1]
    shared = components.program**2 + components.program_on_device**2 - common @ solved[:, -1]
    sigma = np.sqrt(np.maximum(left, 0.0) + components.noise**2)
    return mean, sigma, np.minimum(np.full(len(mean), np.sqrt(max(shared, 0.0))), sigma)


def _blocks(residuals: Residuals) -> list[tuple[Whole, Whole, Array]]:
    """Return devices, kernels and values of each program, of evenly chosen kernels where there are many."""
    found = []
    for rows in residuals.by_program().values():
        labels = list(dict.fromkeys(residuals.kernels[i] for i in rows))
        chosen = labels[:: max(-(-len(labels) // _MOST_KERNELS), 1)]
        numbers = {label: number for number, label in enumerate(chosen)}
        kept = [i for i in rows if residuals.kernels[i] in numbers]
        kernels = np.array([numbers[residuals.kernels[i]] for i in kept], dtype=np.intp)
        found.append((residuals.device[kept], kernels, residuals.values[kept]))
    return found


def _lacking(components: Components, blocks: Sequence[tuple[Whole, Whole, Array]], distance: Array) -> float:
    """Return the negative logarithm of the likelihood."""
    from scipy.linalg import solve_triangular

    total = 0.0
    for device, kernel, values in blocks:
        covariance = components.covariance((device, kernel), (device, kernel), distance, noise=True)
        factor = np.linalg.cholesky(covariance + 1e-9 * np.eye(len(covariance)))
        standardised = solve_triangular(factor, values, lower=True)
        total += float(np.log(np.diag(factor)).sum()) + 0.5 * float(standardised @ standardised)
    return total
