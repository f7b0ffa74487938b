"""Spaces of variants, written down: parameters, the values of each, constraints, and what makes a kernel of them."""

from __future__ import annotations

import inspect
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perflex.errors import SpaceError
from perflex.features.values import target_of
from perflex.search.spaces.building import EnumeratedSpace, built
from perflex.search.spaces.constraint import read_constraint
from perflex.search.spaces.extraction import ExtractedSpace, extract_space

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Executor
    from pathlib import Path

    from perflex.machines.machine import Machine
    from perflex.progress import Progress
    from perflex.search.spaces.building import Settings, Value
    from perflex.search.spaces.constraint import Constraint
    from perflex.store.store import StorePlace

_EXAMPLE = "e.g. {'tile': (8, 16, 32)}"


@dataclass(frozen=True)
class _Parameter:
    name: str
    values: tuple[Value, ...]


class VariantSpace:
    """All variants of a computation that a function can make from parameters.

    Parameters
    ----------
    build
        Called with a value for each parameter by name; returns a loopy kernel, or None where the values give none. What
        it raises makes the variant invalid, too; such variants are counted by cause. A function of a module can be sent
        to worker processes.
    parameters
        The values of each parameter: numbers (numpy's become Python's), texts, True and False.
    constraints
        What values must fulfil: texts such as ``"rows * columns <= 32"`` (arithmetic, comparisons, ``and or not in``,
        ``min max abs``, ``x if y else z``), or functions that take parameters by name and return whether they do.
    name
        Of the space; by default that of `build`.

    Raises
    ------
    SpaceError
        There are no parameters, or they are no mapping, one has no values, values of another kind or one twice, a
        constraint names what is no parameter, or `build` does not take the parameters.

    Examples
    --------
    >>> space = VariantSpace(make_kernel, {"rows": (1, 2, 4), "columns": (1, 2, 4)}, ["rows <= columns"])
    >>> [settings["rows"] for settings in space]
    [1, 1, 1, 2, 2, 4]
    """

    def __init__(
        self,
        build: Callable[..., Any],
        parameters: Mapping[str, Iterable[Value]],
        constraints: str | Callable[..., Any] | Iterable[str | Callable[..., Any]] | None = (),
        *,
        name: str | None = None,
    ) -> None:
        self.build = build
        self.name = name or str(getattr(build, "__name__", "space"))
        given: object = parameters
        if not isinstance(given, Mapping):
            msg = f"space {self.name}: parameters are given with their values, {_EXAMPLE}, not {parameters!r}"
            raise SpaceError(msg, space=self.name)
        self._parameters = [_parameter(key, values) for key, values in parameters.items()]
        if not self._parameters:
            msg = f"space {self.name} has no parameters; give {_EXAMPLE}"
            raise SpaceError(msg, space=self.name)
        names = self.parameters
        self._constraints = [read_constraint(each, names) for each in _listed(constraints)]
        _require_taken(build, names, self.name)

    @property
    def parameters(self) -> tuple[str, ...]:
        """Their names, in order."""
        return tuple(parameter.name for parameter in self._parameters)

    @property
    def combinations(self) -> int:
        """How many combinations of values there are, before constraints."""
        return math.prod(len(parameter.values) for parameter in self._parameters)

    def __iter__(self) -> Iterator[dict[str, Value]]:
        """Yield settings that fulfil all constraints, one after another; the last parameter changes fastest."""
        return self.enumerate(Counter())

    def enumerate(self, excluded: Counter[str]) -> Iterator[dict[str, Value]]:
        """Yield settings, and count those that each constraint excludes, under the first that does.

        Raises
        ------
        SpaceError
            A constraint cannot be evaluated for some settings.
        """
        return self._descend({}, 0, excluded)

    def _descend(self, settings: dict[str, Value], depth: int, excluded: Counter[str]) -> Iterator[dict[str, Value]]:
        if depth == len(self._parameters):
            yield dict(settings)
            return
        parameter = self._parameters[depth]
        below = math.prod(len(other.values) for other in self._parameters[depth + 1 :])
        ready = self._ready(depth)
        for value in parameter.values:
            settings[parameter.name] = value
            broken = next((constraint for constraint in ready if not constraint.holds(settings)), None)
            if broken is None:
                yield from self._descend(settings, depth + 1, excluded)
            else:
                # A broken constraint rules out all combinations of the parameters below at once.
                excluded[f"constraint: {broken.text}"] += below
        del settings[parameter.name]

    def _ready(self, depth: int) -> list[Constraint]:
        """Return the constraints whose last parameter is the one at this depth."""
        before = set(self.parameters[:depth])
        known = before | {self.parameters[depth]}
        first = depth == 0
        return [
            constraint
            for constraint in self._constraints
            if constraint.names <= known and (not constraint.names <= before or (first and not constraint.names))
        ]

    def enumerated(self) -> EnumeratedSpace:
        """Return all settings that fulfil the constraints, and how many do not.

        Raises
        ------
        SpaceError
            None do: the constraints contradict one another, or one is never fulfilled.
        """
        excluded: Counter[str] = Counter()
        found = list(self.enumerate(excluded))
        if found:
            return EnumeratedSpace(self.name, self.build, self.combinations, found, excluded)
        for constraint in self._constraints:
            values = {parameter.name: parameter.values for parameter in self._parameters}
            # Each constraint alone: one that nothing fulfils is another mistake than several that contradict.
            alone = VariantSpace(_nothing, values, (), name=self.name)
            alone._constraints = [constraint]
            if next(iter(alone), None) is None:
                msg = (
                    f"space {self.name}: no setting fulfils the constraint {constraint.text!r}; change it or the values"
                )
                raise SpaceError(msg, space=self.name, constraint=constraint.text)
        shown = "; ".join(f"{cause.removeprefix('constraint: ')} ({count})" for cause, count in excluded.most_common())
        msg = (
            f"space {self.name}: the constraints contradict one another, none of {self.combinations} settings fulfils "
            f"them all; excluded by each in turn: {shown}"
        )
        raise SpaceError(msg, space=self.name)

    def kernel(self, settings: Settings) -> Any:
        """Return the kernel of one variant.

        Raises
        ------
        NotBuiltError
            The function returns none or raises.
        SpaceError
            A parameter has no value, or there is no such parameter.
        """
        if set(settings) != set(self.parameters):
            wrong = ", ".join(sorted(set(settings) ^ set(self.parameters)))
            msg = f"space {self.name} has the parameters {', '.join(self.parameters)}; missing or unknown: {wrong}"
            raise SpaceError(msg, space=self.name)
        return built(self.build, settings)

    def extract(
        self,
        features: Sequence[str],
        sizes: Mapping[str, Any] | None = None,
        *,
        sub_group_size: int = 32,
        executor: Executor | None = None,
        store: StorePlace | None = None,
        machine: str | Path | Machine | None = None,
        progress: bool | Progress | None = None,
    ) -> ExtractedSpace:
        """Build every variant and count features of it; each code is counted once.

        Parameters
        ----------
        features
            Identifiers of counted features, e.g. ``model.input_features()``.
        sizes
            Value of each size parameter of the kernels.
        sub_group_size
            Work-items per sub-group.
        executor
            Where variants are built and counted: a pool of processes uses all cores.
        store, machine, progress
            As for `gather_feature_values`.

        Returns
        -------
        ExtractedSpace
            Settings and feature values of each valid variant, and counts of the others by cause.

        Raises
        ------
        SpaceError
            No variant is valid; the causes are listed.
        ExecutorError
            The executor failed, or `build` cannot be sent to its workers.
        MissingSizeError, UnknownFeatureError, MachineError
            As for predictions.
        """
        target = target_of(features, sub_group_size, machine)
        return extract_space(
            self.enumerated(), features, sizes, target, executor=executor, store=store, progress=progress
        )

    def __repr__(self) -> str:
        values = ", ".join(f"{parameter.name}: {len(parameter.values)}" for parameter in self._parameters)
        rules = f", {len(self._constraints)} constraints" if self._constraints else ""
        return f"<VariantSpace {self.name}: {self.combinations} combinations ({values}){rules}>"


def _listed(constraints: object) -> Iterable[object]:
    if constraints is None:
        return ()
    several = isinstance(constraints, Iterable) and not isinstance(constraints, str)
    return constraints if several else (constraints,)  # type: ignore[return-value]


def _parameter(name: str, values: object) -> _Parameter:
    import numpy as np

    if values is None or isinstance(values, (str, bool, int, float, np.generic)) or not isinstance(values, Iterable):
        values = (values,)
    elif isinstance(values, np.ndarray):
        values = np.atleast_1d(values)
    # Kernels, names and files hold plain numbers: loopy and JSON refuse numpy's.
    given: tuple[object, ...] = tuple(value.item() if isinstance(value, np.generic) else value for value in values)
    if not str(name).isidentifier():
        msg = f"a parameter's name must be an identifier, not {name!r}"
        raise SpaceError(msg)
    if not given:
        msg = f"parameter {name} has no values; give at least one"
        raise SpaceError(msg, parameter=name)
    wrong = [type(value).__name__ for value in given if not isinstance(value, (bool, int, float, str))]
    if wrong:
        msg = f"values of parameter {name} must be numbers, texts or truth values, not {wrong[0]}"
        raise SpaceError(msg, parameter=name)
    twice = [repr(value) for value, count in Counter(given).items() if count > 1]
    if twice:
        msg = f"parameter {name} has the value {twice[0]} twice (True is 1); give each once"
        raise SpaceError(msg, parameter=name)
    return _Parameter(name, tuple(value for value in given if isinstance(value, (bool, int, float, str))))


def _require_taken(build: Callable[..., Any], names: Sequence[str], space: str) -> None:
    try:
        signature = inspect.signature(build)
    except (TypeError, ValueError):  # some callables have no signature; calling them will tell
        return
    try:
        signature.bind(**dict.fromkeys(names))
    except TypeError as error:
        msg = f"space {space}: build{signature} cannot be called with {', '.join(names)}: {error}"
        raise SpaceError(msg, space=space) from error


def _nothing(**_: Any) -> None:
    return None
