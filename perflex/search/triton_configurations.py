"""Configurations of Triton's autotuners, ranked before anything is compiled, and the decorator that does it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from perflex.calibration.calibration import USUAL_TILES, Calibration
from perflex.errors import CalibrationError, MachineError, PerflexError, UnsupportedKernelError, warn
from perflex.features.from_triton.launches import configuration_of, launch_of
from perflex.features.tiles.costs import require_triton
from perflex.machines.files import load_machine, machine_of_device
from perflex.search import ranking
from perflex.search.counted_variants import variants_of
from perflex.search.promise import Promise, check_keep, kept_ratio, number_kept
from perflex.search.variant_doubts import warn_of_missing
from perflex.yaml_file import schema_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from perflex.features.from_triton.launches import TritonLaunch
    from perflex.machines.machine import Machine
    from perflex.search.promise import Keep
    from perflex.search.ranked import Ranked, Ranking
    from perflex.search.variants import Variants


def rank(
    launch: TritonLaunch,
    machine: str | Path | Machine | Calibration | None = None,
    *,
    keep: Keep = 1.0,
    compiled: int = 0,
) -> Ranking:
    """Order the configurations of a launch by predicted time, fastest first, without compiling one.

    Parameters
    ----------
    launch
        The launch, such as one of `capture`.
    machine
        A machine, or a calibration of ``general_tile``, or a file of either, or a machine's name; by default the GPU
        that PyTorch uses. Without a calibration, the model's usual values predict.
    keep
        As of `perflex.rank`, which takes launches, too.
    compiled
        The best are compiled and predicted again, with their registers and shared memory in place of formulas, until so
        many of the best are of compiled code. Triton finds them in its cache when it launches them.

    Returns
    -------
    Ranking
        The configurations that the machine can run; ``variants.missing`` says why others are not among them.

    Warns
    -----
    DoubtfulPredictionWarning, PerflexWarning
        As of `perflex.rank`.

    Raises
    ------
    MachineError
        There is no such machine, or it is no GPU of NVIDIA that Triton supports.
    CalibrationError
        The calibration is of another model, or `keep` is out of range.
    UnsupportedKernelError
        No configuration can be predicted; the message says why.
    """
    check_keep(keep)
    predictor = _Predictor.of(machine)
    found = predictor.variants(launch, compiled)
    warn_of_missing(found)
    return ranking.rank(found, predictor.calibration, keep=keep, machine=predictor.machine)


def with_code(
    variants: Variants, calibration: Calibration, count: int, machine: str | Path | Machine | None
) -> Variants:
    """Return configurations of which so many of the predicted best are compiled; errors as `variants_of`."""
    while True:
        # Compiled code may put others first.
        best = np.argsort(variants.predicted(calibration), kind="stable")[:count]
        left = [variants.names[number] for number in best if not variants.kernels[number].compiled]
        if not left:
            return variants
        kernels = dict(zip(variants.names, variants.kernels, strict=True))
        kernels |= {name: kernels[name].with_code() for name in left}
        kernels |= {one.name: one.kernel for one in variants.missing}
        variants = variants_of(kernels, calibration, {}, machine=machine)


@dataclass(frozen=True)
class _Predictor:
    """A calibration, and the machine where that is not the calibration's."""

    calibration: Calibration
    machine: Machine | None

    @classmethod
    def of(cls, given: Any) -> _Predictor:
        """Return what predicts for a machine or a calibration, or a file of either."""
        if isinstance(given, (str, Path)) and "perflex-calibration" in schema_of(str(given)):
            given = Calibration.load(given)
        if isinstance(given, Calibration):
            found = cls(given, None)
        else:
            found = cls(Calibration.load(USUAL_TILES), _present() if given is None else load_machine(given))
        found.calibration.require_tiles()
        if (facts := found.calibration.target(found.machine).machine) is not None:
            require_triton(facts)
        return found

    def variants(self, launch: TritonLaunch, compiled: int) -> Variants:
        """Return the configurations of a launch, so many of the best compiled; errors as `rank`."""
        found = variants_of(launch, self.calibration, None, machine=self.machine)
        return with_code(found, self.calibration, compiled, self.machine)

    def ranking(self, launch: TritonLaunch, keep: float, compiled: int) -> Ranking:
        """Return the configurations of a launch in their order, without intervals and warnings; errors as `rank`."""
        found = self.variants(launch, compiled)
        return ranking.ranked(found, self.calibration, keep, {}, self.machine, intervals=False)

    def doubts(self, places: Iterable[Ranked]) -> list[str]:
        """Return the doubts of some predictions, each once; that there is no calibration who gives none knows."""
        carried = None if self.machine is None else self.calibration.transferred
        known = () if carried is None else carried.remarks
        return [one for one in dict.fromkeys(doubt for place in places for doubt in place.doubts) if one not in known]


def _present() -> Machine:
    """Return the machine of the GPU that PyTorch uses."""
    try:
        import torch

        name = torch.cuda.get_device_name() if torch.cuda.is_available() else ""
    except ImportError:
        name = ""
    found = machine_of_device(name) if name else None
    if found is None:
        what = f"the GPU {name!r} has no machine file" if name else "there is no GPU here"
        msg = f"{what}; name a machine: machine='H100-SXM', or another of 'perflex list machines'"
        raise MachineError(msg)
    return found


def prune(
    machine: str | Path | Machine | Calibration | None = None,
    keep: float | str | Promise = 5,
    *,
    arrays: Mapping[str, Any] | None = None,
    compiled: int = 0,
) -> Callable[[Any], Any]:
    """Return a decorator for an autotuned Triton kernel: only the configurations that are predicted best are compiled.

    Those that the machine cannot run are left out; those that have no prediction stay beside those that are kept. It
    comes after a kernel's own ``early_config_prune`` and before its ``perf_model``. Where nothing can be predicted, all
    configurations stay. Warnings say what has no prediction, and which doubts there are, once. Where all that are kept
    fail, the next ones are tried. What was predicted for the last launch is ``kernel.ranking``. Without parentheses it
    decorates with the usual values.

    Parameters
    ----------
    machine
        As of `rank`.
    keep
        How many configurations are kept, or which share of them such as 0.1, or a `Promise`: as many as hold one near
        the best, for which `machine` must be a calibration with times of this kernel. ``"promise"`` is ``Promise()``:
        one within 5 % of the best, for 95 % of problems.
    arrays
        Contents of arrays that addresses depend on, by argument, in place of what the arguments hold.
    compiled
        As of `rank`; as many as are kept, so that all of them can run.

    Raises
    ------
    MachineError
        As of `rank`, of a machine that is given.
    CalibrationError
        `keep` is out of range, or there are too few times of this kernel for the promise.
    UnsupportedKernelError
        What is decorated has no autotuner, or none of its arguments has the name of one of the `arrays`.
    """
    kernel: Any = machine
    if callable(kernel) or hasattr(kernel, "fn"):  # there are no parentheses
        return cast("Callable[[Any], Any]", prune()(kernel))
    wanted: Any = Promise() if keep == "promise" else keep
    check_keep(wanted)
    predictor = None if machine is None else _Predictor.of(machine)

    def decorate(decorated: Any) -> Any:
        tuner = decorated
        while not (hasattr(tuner, "early_config_prune") and hasattr(tuner, "configs")):
            if not hasattr(tuner, "fn"):
                msg = "perflex.triton.prune stands above @triton.autotune, and there is none below it"
                raise UnsupportedKernelError(msg)
            tuner = tuner.fn  # of heuristics and the like
        names = launch_of(tuner, {}, 1).function.arg_names
        if unknown := set(arrays or ()) - set(names):
            msg = f"prune(arrays=...): the kernel has no argument {min(unknown)}; it has {', '.join(names)}"
            raise UnsupportedKernelError(msg)
        calibration = None if predictor is None else predictor.calibration
        ratio = _promised(calibration, tuner, wanted) if isinstance(wanted, Promise) else math.inf
        pruner = _Pruner(tuner, predictor, wanted, ratio, compiled, dict(arrays or {}))
        tuner.early_config_prune, tuner.run, tuner.ranking = pruner.pruned, pruner.run, None
        return decorated

    return decorate


def _promised(calibration: Calibration | None, tuner: Any, promise: Promise) -> float:
    """Return up to which multiple of the fastest prediction a promise keeps configurations, by a calibration."""
    name = tuner.base_fn.__name__
    problems: dict[str, list[int]] = {}
    for row, problem in enumerate(() if calibration is None else calibration.table.generators):
        problems.setdefault(problem, []).append(row)
    # Where configurations were pruned before, the best may not be among those that have times.
    least = max(2, len(tuner.configs) / 2)
    own = [rows for problem, rows in problems.items() if problem.partition("(")[0] == name and len(rows) >= least]
    if calibration is None or len(own) < promise.batch:
        msg = (
            f"a configuration {promise} takes times of {promise.batch} problems of kernel {name!r}, each of half of "
            f"its configurations or more, and there are {len(own)}: give machine= a calibration that 'perflex "
            "calibrate general_tile --times' makes of what perflex.triton.record writes while nothing is pruned"
        )
        raise CalibrationError(msg)
    rows, model, table = [row for some in own for row in some], calibration.model, calibration.table
    predicted = np.asarray(calibration.evaluate(table.columns(model.input_features())))
    measured = table.column(model.output_feature)
    return kept_ratio(predicted[rows], measured[rows], [table.generators[row] for row in rows], promise)


def _failures() -> tuple[type[Exception], ...]:
    """Return what Triton raises where a configuration does not fit."""
    from triton.compiler.errors import CompileTimeAssertionFailure
    from triton.runtime.errors import OutOfResources, PTXASError

    return OutOfResources, PTXASError, CompileTimeAssertionFailure


def _say_traced() -> None:
    """Say once in each trace of ``torch.compile`` that all configurations stay."""
    warn("torch.compile names no grid: it gets all configurations of kernels that perflex.triton.prune decorates")


# PyTorch calls it while it traces, in place of following it: what torch.compiler.assume_constant_result does.
_say_traced._dynamo_marked_constant = True  # type: ignore[attr-defined]  # noqa: SLF001


class _Pruner:
    """Stands between an autotuner and its configurations."""

    def __init__(
        self, tuner: Any, predictor: _Predictor | None, keep: Keep, ratio: float, compiled: int, arrays: dict[str, Any]
    ) -> None:
        self.tuner, self.predictor, self.keep, self.ratio = tuner, predictor, keep, ratio
        self.compiled, self.arrays = compiled, arrays
        self.own, self.launched = tuner.early_config_prune, tuner.run
        self.failed: set[Any] = set()
        self.told: set[str] = set()

    # Any name may be one of the kernel's arguments.
    def pruned(self, configs: Sequence[Any], named: Mapping[str, Any], /, **given: Any) -> list[Any]:
        """Return the configurations to compile, best first, as Triton asks for them."""
        # torch.compile follows these lines; the others it does not know.
        there = list(self.own(configs, named, **given) if self.own else configs)
        if "grid" not in given:
            _say_traced()
            return there
        left = [config for config in there if config not in self.failed] or there
        try:
            launch = self._launch(left, {**named, **given})
            self.predictor = self.predictor or _Predictor.of(None)
            count = 1.0 if isinstance(self.keep, Promise) else number_kept(self.keep, len(there))
            self.tuner.ranking = found = self.predictor.ranking(launch, count, self.compiled)
        except PerflexError as error:
            self._tell(f"all {len(left)} configurations are kept: {error.message}")
            return left
        of = {id(one): config for one, config in zip(launch.configurations, left, strict=True)}
        unknown = [one for one in found.variants.missing if one.possible]
        if unknown:
            self._tell(f"{len(unknown)} configurations that have no prediction are kept, too: {unknown[0].reason}")
        kept = [place for place in found.kept if place.ratio <= self.ratio]
        for doubt in self.predictor.doubts(kept):
            self._tell(f"predictions are doubtful: {doubt}")
        chosen = [*map(found.kernel, kept), *(one.kernel for one in unknown)]
        return [of[id(kernel.configuration)] for kernel in chosen]

    def _launch(self, configs: list[Any], given: Mapping[str, Any]) -> TritonLaunch:
        arguments = {name: value for name, value in given.items() if name in self.tuner.arg_names}
        launch = launch_of(self.tuner, arguments, given.get("grid", ()))
        configurations = tuple(configuration_of(config).launched(given) for config in configs)
        return replace(launch, configurations=configurations, arrays=self.arrays)

    def run(self, /, *args: Any, **given: Any) -> Any:
        """Run the kernel; where the configuration that was chosen fails, all that were kept do: try the next ones."""
        while True:
            try:
                return self.launched(*args, **given)
            except _failures():  # asked for where there is one only
                cached = self.tuner.cache
                chosen = getattr(self.tuner, "best_config", None)
                kept = {chosen, *(getattr(self.tuner, "configs_timings", None) or ())}
                new = {config for config in kept if config is not None} - self.failed
                # Tuners of libraries have caches of their own.
                if not new or self.failed | new >= set(self.tuner.configs) or not isinstance(cached, dict):
                    raise
                self.failed |= new
                for key in [key for key, config in cached.items() if config in self.failed]:
                    del cached[key]

    def _tell(self, what: str) -> None:
        name = getattr(self.tuner.base_fn, "__name__", "kernel")
        if what not in self.told:
            self.told.add(what)
            warn(f"kernel {name!r}: {what}")
