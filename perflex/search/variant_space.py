"""Spaces of variants: what a function makes of settings that fulfil constraints."""

from __future__ import annotations

import inspect
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from perflex.errors import SpaceError
from perflex.features.values import target_of
from perflex.html import shown_by
from perflex.search.constraints import Constraint, read_constraint
from perflex.search.counted_variants import Work, extract_space
from perflex.search.variants import EnumeratedSpace, Variants, built
from perflex.tables import Table, text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from perflex.progress import RunOptions
    from perflex.search.constraints import Given
    from perflex.search.variants import Settings, Value


_EXAMPLE = "e.g. {'tile': (8, 16, 32)}"


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
        ``& | ^ ~ << >>``, ``min max abs int ceil floor``, ``x if y else z``), or functions that take parameters by name
        and return whether they do.
    name
        Of the space; by default that of `build`.
    sizes
        Values of size parameters, unless others are given.

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
        constraints: Given | Iterable[Given] | None = (),
        *,
        name: str | None = None,
        sizes: Mapping[str, int] | None = None,
    ) -> None:
        self.build = build
        self.sizes = dict(sizes or {})
        self.name = name or str(getattr(build, "__name__", "space"))
        given: object = parameters
        if not isinstance(given, Mapping):
            msg = f"space {self.name}: parameters are given with their values, {_EXAMPLE}, not {parameters!r}"
            raise SpaceError(msg, space=self.name)
        self._parameters = {key: _values_of(key, values) for key, values in parameters.items()}
        if not self._parameters:
            msg = f"space {self.name} has no parameters; give {_EXAMPLE}"
            raise SpaceError(msg, space=self.name)
        names = self.parameters
        several = isinstance(constraints, Iterable) and not isinstance(constraints, str)
        listed: Any = constraints if several else [] if constraints is None else [constraints]
        self._constraints = [read_constraint(each, names) for each in listed]
        _require_taken(build, names, self.name)

    @property
    def parameters(self) -> tuple[str, ...]:
        """Their names, in order."""
        return tuple(self._parameters)

    @property
    def values(self) -> dict[str, tuple[Value, ...]]:
        """The values of each parameter, by name."""
        return dict(self._parameters)

    @property
    def constraints(self) -> tuple[str, ...]:
        """The constraints as texts; functions by their names."""
        return tuple(constraint.text for constraint in self._constraints)

    @property
    def combinations(self) -> int:
        """How many combinations of values there are, before constraints."""
        return math.prod(map(len, self._parameters.values()))

    def __iter__(self) -> Iterator[dict[str, Value]]:
        """Yield settings that fulfil all constraints, one after another; the last parameter changes fastest."""
        return self.enumerate(Counter())

    def enumerate(self, excluded: Counter[str]) -> Iterator[dict[str, Value]]:
        """Yield settings, and count those that each constraint excludes, under the first that does."""
        names = self.parameters
        # Each constraint is asked as soon as the last of its parameters is set.
        due: list[list[Constraint]] = [[] for _ in names]
        for constraint in self._constraints:
            due[max(map(names.index, constraint.names), default=0)].append(constraint)
        return self._descend({}, due, excluded)

    def _descend(
        self, settings: dict[str, Value], due: Sequence[Sequence[Constraint]], excluded: Counter[str]
    ) -> Iterator[dict[str, Value]]:
        depth = len(settings)
        if depth == len(due):
            yield dict(settings)
            return
        name, *below = self.parameters[depth:]
        for value in self._parameters[name]:
            settings[name] = value
            broken = next((constraint for constraint in due[depth] if not constraint.holds(settings)), None)
            if broken is None:
                yield from self._descend(settings, due, excluded)
            else:
                # A broken constraint rules out all combinations of the parameters below at once.
                excluded[f"constraint: {broken.text}"] += math.prod(len(self._parameters[each]) for each in below)
        del settings[name]

    def enumerated(self) -> EnumeratedSpace:
        """Return all settings that fulfil the constraints, and how many do not; a SpaceError where none do."""
        excluded: Counter[str] = Counter()
        found = list(self.enumerate(excluded))
        if found:
            return EnumeratedSpace(self.name, self.build, self.combinations, found, excluded, self.sizes)
        for constraint in self._constraints:
            # Each constraint alone: one that nothing fulfils is another mistake than several that contradict.
            if next(iter(VariantSpace(self.build, self._parameters, [constraint])), None) is None:
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
        sub_group_size: int | None = None,
        run: RunOptions | None = None,
    ) -> Variants:
        """Build every variant and count features of it; each code is counted once.

        Parameters
        ----------
        features
            Identifiers of counted features, e.g. ``model.input_features()``; for those that need a machine, that of
            `using_machine`.
        sizes
            Value of each size parameter of the kernels.
        sub_group_size
            Work-items per sub-group; by default those of the machine of `using_machine`, else 32.
        run
            Where variants are built and counted.

        Returns
        -------
        Variants
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
        work = Work(self.build, tuple(features), target_of(features, sub_group_size))
        return extract_space(self.enumerated(), work, sizes, run)

    def __repr__(self) -> str:
        values = ", ".join(f"{name}: {len(values)}" for name, values in self._parameters.items())
        rules = f", {len(self._constraints)} constraints" if self._constraints else ""
        return f"<VariantSpace {self.name}: {self.combinations} combinations ({values}){rules}>"

    @property
    def heading(self) -> str:
        """Its name and size."""
        return f"{self.name}: {self.combinations} combinations before constraints"

    def tables(self) -> list[Table]:
        """Return its parameters and constraints."""
        values = [(name, ", ".join(map(repr, some))) for name, some in self.values.items()]
        found = [Table("Parameters", [text("parameter"), text("values")], values)]
        constraints = [(str(one),) for one in self.constraints]
        return found + ([Table("Constraints", [text("constraint", code=True)], constraints)] if constraints else [])

    _repr_html_ = shown_by("result.html")


def _values_of(name: object, values: object) -> tuple[Value, ...]:
    import numpy as np

    if isinstance(values, (str, np.generic)) or not isinstance(values, Iterable):
        values = (values,)
    elif isinstance(values, np.ndarray):
        values = np.atleast_1d(values)
    # Kernels, names and files hold plain numbers: loopy and JSON refuse numpy's.
    given: tuple[object, ...] = tuple(value.item() if isinstance(value, np.generic) else value for value in values)
    if not (isinstance(name, str) and name.isidentifier()):
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
    return tuple(value for value in given if isinstance(value, (bool, int, float, str)))


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
