"""What a diagnosis hands back."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.html import shown_by

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Kernels with less of the information on a parameter are not written out.
_LEAST_SHARE = 0.01


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

    The share tells whose measurements the estimate weighs, the growth what would be lost without them. Kernels of a
    small share can be indispensable: those that tell the parameter apart from another.

    Attributes
    ----------
    name
        The kernel's label or the generator's name.
    share
        Of the information on the parameter, 0 to 1.
    growth
        Factor on the parameter's standard error without it; inf where it would not be determined any more.
    """

    name: str
    share: float
    growth: float


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
        What informs it, the most informative first; empty where the measured values are not known.
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


@dataclass(frozen=True)
class KernelDiagnosis:
    """What a measurement kernel does to the fit, and the fit to it.

    Attributes
    ----------
    name, generator
        The kernel.
    relative_error
        (predicted - measured) / measured, a fraction.
    left_out_error
        The same, predicted by a fit without this kernel (linearised); nan where nothing else informs what it does.
    held_out_error
        The same, predicted by a fit without its generator's kernels; nan where that was not possible.
    measured, predicted
        In the output feature's unit; nan where the measured values are not known.
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
    left_out_error: float = math.nan
    measured: float = math.nan
    predicted: float = math.nan
    spread: float = math.nan
    leverage: float = math.nan
    studentised: float = math.nan
    cooks_distance: float = math.nan
    held_out_error: float = math.nan


@dataclass(frozen=True)
class GeneratorDiagnosis:
    """Errors of a generator's kernels, in the fit and predicted by a fit to all other generators' kernels.

    Attributes
    ----------
    name, kernels
        The generator and the number of its kernels.
    error, bias
        Root mean square and mean of relative errors in the fit, fractions.
    held_out_error, held_out_bias
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
    held_out_error: float = math.nan
    held_out_bias: float = math.nan
    undetermined: tuple[str, ...] = ()
    reason: str = ""


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
    left_out_error
        Root mean square of relative errors, leave-one-out; over those that could be.
    held_out_error
        The same, each kernel predicted without its generator; nan if that was possible for none.
    aicc
        Akaike's criterion of the residuals, corrected for few kernels: for models of the same measurements only.
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
    left_out_error: float
    held_out_error: float
    aicc: float
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
            replace(p, kernels=tuple(i for i in p.kernels if i.share >= _LEAST_SHARE or math.isinf(i.growth)))
            for p in self.parameters
        ]
        plain: dict[str, Any] = _plain({**fields, "below_noise": self.below_noise})
        return plain

    def __repr__(self) -> str:
        lines = [f"Diagnosis of {self.title or 'a calibration'}"]
        lines += [f"{finding.severity}: {finding.text}" for finding in self.findings]
        return "\n".join(lines)

    _repr_html_ = shown_by("perflex.calibration.diagnosis.diagnosis_html:diagnosis_html")


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
