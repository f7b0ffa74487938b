"""Cross-validation by generator: each generator's kernels predicted by a fit to all others."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.errors import CalibrationError, PerflexError, PerflexWarning
from perflex.fit.fitting import fit_model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from perflex.expression.model import Model
    from perflex.fit.loss import Loss
    from perflex.fit.result import FitResult
    from perflex.fit.table import FeatureTable

# Automatic starts of a refit, beside where the fit to all kernels ended.
_STARTS = 1


@dataclass(frozen=True)
class HeldOut:
    """A generator's kernels, predicted by a fit to the kernels of all others.

    Attributes
    ----------
    generator
        Its name.
    errors
        (predicted - measured) / measured of its kernels, fractions; empty where they could not be predicted.
    undetermined
        Parameters that the others do not determine.
    reason
        Why they could not be predicted, or empty.
    """

    generator: str
    errors: tuple[float, ...]
    undetermined: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True, eq=False)
class Refit:
    """A fit without one generator's kernels.

    Attributes
    ----------
    generator
        Its name.
    rest, own
        The rows that were fitted, and those held out.
    fit
        The fit to the rest; None where there is none.
    undetermined, reason
        Then the parameters that the rest does not determine, and why.
    """

    generator: str
    rest: FeatureTable
    own: FeatureTable
    fit: FitResult | None
    undetermined: tuple[str, ...] = ()
    reason: str = ""


def generators_of(kernels: Iterable[str], table: FeatureTable | None) -> tuple[str, ...]:
    """Return the generator of each kernel; from the labels ``generator(arguments)`` if no table says so."""
    return (table.groups if table is not None else ()) or tuple(label.partition("(")[0] for label in kernels)


def root_mean_square(errors: Iterable[float]) -> float:
    """Return the root mean square of the errors that are finite; nan if none is."""
    known = np.array([error for error in errors if math.isfinite(error)])
    return float(np.sqrt(np.mean(known**2))) if known.size else math.nan


def relative_errors(model: Model, parameters: Mapping[str, float], table: FeatureTable) -> tuple[float, ...]:
    """Return (predicted - measured) / measured of each row."""
    values = {name: table.column(name) for name in model.input_features()}
    predicted = np.broadcast_to(model.evaluate(parameters, values), (len(table),))
    with np.errstate(all="ignore"):
        return tuple(map(float, predicted / table.column(model.output_feature) - 1))


def held_out_by_generator(
    model: Model,
    table: FeatureTable,
    *,
    nonnegative: bool = True,
    start: Mapping[str, float] | None = None,
    progress: Callable[[int, int, str], None] | None = None,
    loss: Loss = "squared",
    bounds: Mapping[str, tuple[float, float]] | None = None,
) -> tuple[HeldOut, ...]:
    """Hold out one generator after another.

    Parameters
    ----------
    model
        The model.
    table
        What it is fitted to, scaled by the output for relative errors.
    nonnegative
        As for `fit_model`.
    start
        Parameters of the fit to the whole table, where refits begin; by default they find their own starts.
    progress
        Called with (done, total, generator) as work proceeds.
    loss, bounds
        As for `fit_model`.

    Returns
    -------
    tuple of HeldOut
        One per generator, in order of appearance. That the rest leaves a parameter undetermined is told there,
        it is no error.
    """
    found = []
    for refit in refits_by_generator(
        model, table, nonnegative=nonnegative, start=start, progress=progress, loss=loss, bounds=bounds
    ):
        fit = refit.fit
        if fit is None:
            found.append(HeldOut(refit.generator, (), refit.undetermined, refit.reason))
            continue
        try:
            found.append(HeldOut(refit.generator, relative_errors(model, fit, refit.own), fit.undetermined))
        except PerflexError as error:  # the refitted model is not finite for these kernels
            found.append(HeldOut(refit.generator, (), reason=error.message))
    return tuple(found)


def refits_by_generator(
    model: Model,
    table: FeatureTable,
    *,
    nonnegative: bool = True,
    start: Mapping[str, float] | None = None,
    progress: Callable[[int, int, str], None] | None = None,
    loss: Loss = "squared",
    bounds: Mapping[str, tuple[float, float]] | None = None,
) -> Iterator[Refit]:
    """Fit the model without one generator after another; arguments as `held_out_by_generator`."""
    owners = np.array(generators_of(table.kernels, table))
    names = list(dict.fromkeys(owners.tolist()))
    starts = {} if start is None else {"starts": [start], "max_starts": _STARTS}
    options = {"nonnegative": nonnegative, "loss": loss, "bounds": bounds, **starts}
    for done, name in enumerate(names):
        if progress is not None:
            progress(done, len(names), name)
        own = np.flatnonzero(owners == name).tolist()
        rest = np.flatnonzero(owners != name).tolist()
        yield _refit(name, model, table.take(rest), table.take(own), options)


def _refit(name: str, model: Model, rest: FeatureTable, own: FeatureTable, options: Mapping[str, Any]) -> Refit:
    if not len(rest):
        return Refit(name, rest, own, None, reason="there is no other generator")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PerflexWarning)  # of a fit to a part of the kernels nobody needs to know
            return Refit(name, rest, own, fit_model(model, rest, **options))
    except CalibrationError as error:
        parameters = error.context.get("parameters")
        concerned = tuple(map(str, parameters)) if isinstance(parameters, tuple) else ()
        reason = "the others do not determine them" if concerned else error.message
        return Refit(name, rest, own, None, concerned, reason)
    except PerflexError as error:
        return Refit(name, rest, own, None, reason=error.message)
