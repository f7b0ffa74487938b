"""What a diagnosis hands back, and what its HTML compares."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.fit.result import error_table
from perflex.html import shown_by
from perflex.tables import Table, fixed, number, percent, seconds, text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

# Kernels with less of the information on a parameter are not written out, and generators not named.
_LEAST_SHARE = 0.01
_WORTH_NAMING = 0.05
# Parameters whose estimates move together the most, that are shown.
_STRONGEST = 20


@dataclass(frozen=True)
class Finding:
    """Something that a reader of the calibration must know.

    Attributes
    ----------
    severity
        ``"problem"``: do not use the numbers concerned; ``"warning"``: use them with care; ``"remark"``.
    text
        Cause and fix, in one line.
    """

    severity: str
    text: str


@dataclass(frozen=True)
class Informant:
    """A measurement kernel, or all kernels of a generator, that says something about a parameter.

    The share tells whose measurements the estimate weighs, the error ratio what would be lost without them. Kernels of
    a small share can be indispensable: those that tell the parameter apart from another.

    Attributes
    ----------
    name
        The kernel's label or the generator's name.
    share
        Of the information on the parameter, 0 to 1.
    error_ratio
        Factor on the parameter's standard error without it; inf where it would not be determined any more.
    """

    name: str
    share: float
    error_ratio: float


@dataclass(frozen=True)
class ParameterDiagnosis:
    """What is known of a parameter.

    Attributes
    ----------
    name, value, unit, kind
        As fitted.
    standard_error, low, high
        Standard error and 95 % confidence interval, in its unit; nan where there is none.
    consistent_with_zero
        Whether that interval holds zero.
    negative, at_bound, determined
        As fitted.
    released_value, released_error
        Of a parameter at its bound: where it would be without the bound, and its standard error there; else nan.
    kernels, generators
        What informs it, the most informative first; empty where it is fixed.
    """

    name: str
    value: float
    unit: str
    kind: str
    standard_error: float
    low: float
    high: float
    consistent_with_zero: bool
    negative: bool
    at_bound: bool
    determined: bool
    released_value: float = math.nan
    released_error: float = math.nan
    kernels: tuple[Informant, ...] = ()
    generators: tuple[Informant, ...] = ()

    @property
    def flags(self) -> str:
        """Its particularities in words."""
        words = {
            "undetermined": not self.determined,
            "negative cost": self.negative,
            "at bound": self.at_bound,
            "maybe zero": self.consistent_with_zero,
        }
        return ", ".join(word for word, holds in words.items() if holds)

    @property
    def informants(self) -> str:
        """The generators that say most of it; of one at its bound, where it would be without."""
        if not math.isnan(self.released_value):
            return f"without bound {self.released_value:.2g} +- {self.released_error:.2g}"
        shown = [f"{i.name} {100 * i.share:.0f} %" for i in self.generators[:2] if i.share >= _WORTH_NAMING]
        needed = [i.name for i in self.generators if math.isinf(i.error_ratio)]
        return ", ".join(shown) + (f"; undetermined without {', '.join(needed)}" if needed else "")


@dataclass(frozen=True)
class KernelDiagnosis:
    """What a measurement kernel does to the fit, and the fit to it.

    Attributes
    ----------
    name, generator
        The kernel.
    relative_error
        (predicted - measured) / measured, a fraction.
    leave_one_out_error
        The same, predicted by a fit without this kernel (linearised); nan where nothing else informs what it does.
    cross_validation_error
        The same, predicted by a fit without its generator's kernels; nan where that was not possible.
    measured, predicted
        In the output feature's unit.
    spread
        Relative spread of its repeated timings; nan if not known.
    leverage
        How far its fitted value follows its own measurement: 0 not at all, 1 wholly.
    studentised
        Residual over its standard deviation, both without this kernel: Student's t.
    cooks_distance
        How far the whole fit moves without it; above 1 it decides the fit.
    """

    name: str
    generator: str
    relative_error: float
    leave_one_out_error: float = math.nan
    measured: float = math.nan
    predicted: float = math.nan
    spread: float = math.nan
    leverage: float = math.nan
    studentised: float = math.nan
    cooks_distance: float = math.nan
    cross_validation_error: float = math.nan


@dataclass(frozen=True)
class GeneratorDiagnosis:
    """Errors of a generator's kernels, in the fit and predicted by a fit to all other generators' kernels.

    Attributes
    ----------
    name, kernels
        The generator and the number of its kernels.
    error, bias
        Root mean square and mean of relative errors in the fit, fractions.
    cross_validation_error, cross_validation_bias
        The same, predicted without this generator's kernels; nan where they could not be.
    undetermined
        Parameters that the other generators do not determine.
    reason
        Why it could not be held out, or empty.
    """

    name: str
    kernels: int
    error: float
    bias: float
    cross_validation_error: float = math.nan
    cross_validation_bias: float = math.nan
    undetermined: tuple[str, ...] = ()
    reason: str = ""

    @property
    def remarks(self) -> str:
        """What only it determines, or why it could not be held out."""
        return f"the only one that determines {', '.join(self.undetermined)}" if self.undetermined else self.reason


@dataclass(frozen=True)
class CorrelatedPair:
    """Two parameters whose estimates move together: their data hardly tell them apart.

    Attributes
    ----------
    first, second
        Names.
    correlation
        Of the estimates, -1 to 1.
    """

    first: str
    second: str
    correlation: float


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """What a calibration's parameters rest on, and what its predictions are worth.

    Attributes
    ----------
    findings
        What to know, the gravest first.
    parameters, kernels, generators
        One entry each, in the order of the fit.
    correlation
        Of the parameters' estimates, shape ``(n, n)``; nan where there is none.
    correlated
        Pairs above 0.95, the strongest first.
    condition_number
        Of the Jacobian with columns of length one.
    degrees_of_freedom
        Measurement kernels to spare.
    error, geometric_mean_error
        Root mean square and geometric mean of the relative errors in the fit, fractions.
    leave_one_out_error
        Root mean square of relative errors, leave-one-out; over those that could be.
    cross_validation_error
        The same, each kernel predicted without its generator; nan if that was possible for none.
    noise_floor
        As in `CalibrationRecord`: smaller errors are not significant; nan if not known.
    missing
        What could not be judged and why, or empty.
    title
        The device and the date of the calibration.
    """

    findings: tuple[Finding, ...]
    parameters: tuple[ParameterDiagnosis, ...]
    kernels: tuple[KernelDiagnosis, ...]
    generators: tuple[GeneratorDiagnosis, ...]
    correlation: NDArray[np.float64]
    correlated: tuple[CorrelatedPair, ...]
    condition_number: float
    degrees_of_freedom: int
    error: float
    geometric_mean_error: float
    leave_one_out_error: float
    cross_validation_error: float
    noise_floor: float
    missing: str = ""
    title: str = ""

    @property
    def below_noise(self) -> float:
        """Share of the kernels whose error is below the noise floor; nan if that is not known."""
        if math.isnan(self.noise_floor):
            return math.nan
        return float(np.mean([abs(kernel.relative_error) <= self.noise_floor for kernel in self.kernels]))

    def parameter(self, name: str) -> ParameterDiagnosis:
        """Return the diagnosis of a parameter.

        Raises
        ------
        KeyError
            There is no such parameter.
        """
        for parameter in self.parameters:
            if parameter.name == name:
                return parameter
        raise KeyError(name)

    def as_dict(self) -> dict[str, Any]:
        """Return it as dictionaries, lists, texts and numbers; None for what is not a finite number.

        Of the kernels that inform a parameter, those with at least 1 % of the information and the indispensable.
        """
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        fields["parameters"] = [
            replace(p, kernels=tuple(i for i in p.kernels if i.share >= _LEAST_SHARE or math.isinf(i.error_ratio)))
            for p in self.parameters
        ]
        plain: dict[str, Any] = _plain({**fields, "below_noise": self.below_noise})
        return plain

    def notices(self) -> list[tuple[str, str]]:
        """Return severity and text of each finding."""
        return [(one.severity, one.text) for one in self.findings]

    def tables(self) -> list[Table]:
        """Return errors beside a baseline, parameters, generators, and estimates that move together."""
        found = [self.error_table(), self.parameter_table(), self.generator_table()]
        return found + ([self.correlation_table()] if self.correlated else [])

    def error_table(self) -> Table:
        """Return measures of the kernels' errors, fitted and left out, beside one time for all."""
        return error_table("Relative errors of the measurement kernels", _error_cases(self.kernels))

    def parameter_table(self) -> Table:
        """Return what the parameters rest on."""
        columns = [
            text("name", "parameter"), number("value"), number("standard_error", digits=2), text("unit"),
            text("flags", "remarks"), text("informants", "known most from"),
        ]  # fmt: skip
        return Table.of("What the parameters rest on", columns, self.parameters)

    def generator_table(self) -> Table:
        """Return errors by generator, in the fit and where it was held out."""
        columns = [
            text("name", "generator"),
            fixed("kernels"),
            percent("error", "rms in the fit"),
            percent("cross_validation_error", "rms held out", meaning="predicted by a fit without this generator"),
            percent("cross_validation_bias", "bias held out", sign=True, meaning="mean error, with its sign"),
            text("remarks"),
        ]
        return Table.of("Errors by generator", columns, self.generators)

    def kernel_table(self) -> Table:
        """Return the measurement kernels, the worst predicted without itself first."""
        columns = [
            text("name", "kernel"),
            seconds("measured"),
            percent("relative_error", "error fitted", sign=True),
            percent("leave_one_out_error", "without itself", sign=True, meaning="left out of the fit"),
            percent("cross_validation_error", "without its generator", sign=True, place="pages"),
            percent("spread", meaning="relative spread of repeated timings", place="pages"),
            fixed("leverage", digits=2, meaning="how far the fit follows the kernel: 0 not at all, 1 wholly"),
            fixed("studentised", "Student's t", 1, sign=True, meaning="residual over its standard deviation"),
            number("cooks_distance", "Cook's distance", 2, meaning="how far the fit moves without it"),
        ]
        return Table.of("Measurement kernels, the worst predicted first", columns, sorted(self.kernels, key=_badness))

    def correlation_table(self) -> Table:
        """Return the parameters whose estimates move together the most."""
        columns = [text("first", "parameter"), text("second", "and"), fixed("correlation", digits=3, sign=True)]
        return Table.of("Estimates that move together", columns, self.correlated[:_STRONGEST])

    def __repr__(self) -> str:
        lines = [f"Diagnosis of {self.title or 'a calibration'}"]
        lines += [f"{finding.severity}: {finding.text}" for finding in self.findings]
        return "\n".join(lines)

    _repr_html_ = shown_by("diagnosis.html")


def _plain(value: Any) -> Any:
    if hasattr(value, "__dataclass_fields__"):
        value = asdict(value)
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    # JSON has neither nan nor inf.
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _error_cases(kernels: Sequence[KernelDiagnosis]) -> dict[str, NDArray[np.float64]]:
    """Return errors in the fit and of what was left out of it, beside one time for all that saw the same kernels.

    The baseline is the geometric mean of the measured times: of all kernels, of all others, or of other generators'
    kernels.
    """
    if not kernels:
        return {}
    logs = np.log([k.measured if k.measured > 0 else np.nan for k in kernels])
    owners = np.array([k.generator for k in kernels])
    everyone = np.full(len(logs), logs.mean())
    others = (logs.sum() - logs) / (len(logs) - 1) if len(logs) > 1 else np.full(1, np.nan)
    elsewhere = np.array([logs[owners != owner].mean() if (owners != owner).any() else np.nan for owner in owners])
    cases = {
        "fitted": ("relative_error", everyone),
        "without the kernel itself": ("leave_one_out_error", others),
        "without its generator": ("cross_validation_error", elsewhere),
    }
    found: dict[str, NDArray[np.float64]] = {}
    for how, (name, baseline) in cases.items():
        errors = np.array([getattr(k, name) for k in kernels])
        if np.isnan(errors).all():
            continue
        found[f"the model, {how}"] = errors
        # Judged by the same kernels as the model.
        trivial = np.where(np.isnan(errors), np.nan, np.expm1(baseline - logs))
        found[f"one time for all, {how}"] = trivial
    return found


def _badness(kernel: KernelDiagnosis) -> float:
    sizes = [abs(e) for e in (kernel.leave_one_out_error, kernel.relative_error) if not math.isnan(e)]
    return -sizes[0] if sizes else 0.0
