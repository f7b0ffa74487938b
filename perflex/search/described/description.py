"""Descriptions: a family of kernels that loopy never saw, as tunables, constraints and formulas of its features.

They come with perflex, or from a user's own files.

A description file::

    schema: perflex-description/1
    name: copy
    description: what the kernel does
    tunables:
      items: {meaning: work-items of a work-group, values: [32, 64, 128]}
      unroll: {meaning: elements of a work-item, values: [1, 2, 4], dead_when: items == 32}
    constants: {size: 1048576}
    constraints: [items*unroll <= 256]
    features:
      groups: ceil_div(size, items*unroll)
      f_moves: groups*items*unroll
      f_sub_groups: groups*ceil_div(items, m_lanes)
    switches: [unroll]
    model: p_time*(f_moves + p_group*f_sub_groups)
    parameters: {
      p_time: {meaning: time of a move, unit: s, prior: 1.0e-9, spread: 2},
      p_group: {meaning: a sub-group beside a move, unit: move, prior: 10, spread: 1} }

A formula may use tunables, constants, the features before it, and facts of the device (``m_...``, see
`platform_of`). The first parameter scales the time; ``spread`` is the standard deviation of a parameter's natural
logarithm. ``dead_when`` says when a tunable changes nothing; ``alternatives`` lists settings that
some builds of the kernel ignore; ``switches`` names tunables and features that make different code, of each
combination of which the tuner measures something. What a space file states for a constant replaces the value here.
"""

from __future__ import annotations

import difflib
import math
import re
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np

from perflex.errors import FileFormatError, MachineError, ModelSyntaxError, PerflexError
from perflex.search.formula import Formula, parse_formula
from perflex.yaml_file import Fields, Finite, Positive, read_yaml

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from perflex.machines.machine import Machine
    from perflex.yaml_file import Section

# Facts of a usual recent GPU of each maker, for devices that no machine file describes. Sources: NVIDIA, CUDA C++
# Programming Guide, technical specifications per compute capability; AMD, RDNA 2 and RDNA 3 instruction set guides.
_NVIDIA = {"m_amd": 0.0, "m_lanes": 32.0, "m_units": 60.0, "m_sub_groups": 48.0, "m_groups": 16.0}
_NVIDIA |= {"m_registers": 65536.0, "m_local_bytes": 102400.0, "m_local_reserved": 1024.0}
_AMD = {**_NVIDIA, "m_amd": 1.0, "m_units": 40.0, "m_sub_groups": 32.0}
_AMD |= {"m_local_bytes": 65536.0, "m_local_reserved": 0.0}
PLATFORM_FACTS = tuple(_NVIDIA)
# gfx: instruction sets; mi: Instinct; w and four digits: Radeon Pro; rx, vega: Radeon.
_AMD_NAMES = re.compile(r"\b(amd|radeon|instinct|gfx\w*|mi\d+\w*|w\d{4}\w*|rx\w*|vega\w*)\b", re.IGNORECASE)


def platform_of(device: str, machine: Machine | None = None) -> dict[str, float]:
    """Return the facts that formulas may use, of a machine or of the one that the device's name finds.

    ``m_amd`` (1 or 0), ``m_lanes`` (work-items of a sub-group), ``m_units``, and per compute unit ``m_sub_groups``,
    ``m_groups``, ``m_registers`` (32-bit), ``m_local_bytes``, ``m_local_reserved`` (B per work-group). Where nothing is
    known, those of a usual GPU of the maker: the fit to measured configurations corrects for the rest.
    """
    found = machine if machine is not None else _by_name(device)
    facts = dict(_AMD if _is_amd(device, found) else _NVIDIA)
    if found is None or found.kind != "gpu":
        return facts
    size = found.sub_group_size
    known = {
        "m_lanes": size,
        "m_units": found.compute_units,
        "m_sub_groups": found.max_items_per_unit // size if found.max_items_per_unit and size else None,
        "m_groups": found.max_groups_per_unit,
        "m_registers": found.registers_per_unit,
        "m_local_bytes": found.local_bytes,
        "m_local_reserved": found.local_reserved_bytes,
    }
    facts.update({name: float(value) for name, value in known.items() if value is not None})
    return facts


def facts_taken(device: str, machine: Machine | None = None) -> str:
    """Return of what `platform_of` takes facts, in words."""
    found = machine if machine is not None else _by_name(device)
    if found is not None and found.kind == "gpu":
        return f"facts of {found.name}"
    usual = f"facts of a usual GPU of {'AMD' if _is_amd(device, found) else 'NVIDIA'}"
    if found is not None:
        return f"{usual}: {found.name} is a CPU, of which formulas take none"
    return f"{usual}: no machine file is of {device!r}; name one with --machine"


def _is_amd(device: str, found: Machine | None) -> bool:
    if found is not None and found.vendor:
        return found.vendor.casefold() == "amd"
    # To a regular expression an underscore is a letter: \b finds no end of a word beside one.
    return bool(_AMD_NAMES.search(re.sub(r"[_\-]+", " ", device)))


def _by_name(device: str) -> Machine | None:
    from perflex.machines.files import load_machine, machine_names

    begun = [name for name in machine_names() if name.casefold().startswith(f"{device.casefold()}-")]
    for place in (
        device,
        device.replace("_", "-"),
        device.replace("_", " "),
        f"RTX-{device}",
        f"RX-{device}",
        *begun[:1],
    ):
        try:
            return load_machine(place)
        except MachineError:
            continue
    return None


# Columns of this length fill a few gigabytes.
_MOST_COMBINATIONS = 20_000_000


@dataclass(frozen=True)
class Tunable:
    """A tunable: its meaning, the values it may have, ascending, and a condition under which it changes nothing.

    Settings that differ only in a tunable that changes nothing are one kernel.
    """

    meaning: str
    values: tuple[float, ...]
    dead: Formula | None = None


class Parameter(Fields, frozen=True):
    """A parameter of the analytic model, positive: its value before any measurement, and how far it may be from it.

    The spread is the standard deviation of its natural logarithm, with which the fit works.
    """

    meaning: str
    unit: str
    prior: Positive
    spread: Positive


@dataclass(frozen=True)
class Description:
    """A family of kernels as formulas over its tunables."""

    # The family's name and what it computes.
    name: str
    text: str
    # Other names of the family, e.g. in collections of measurements.
    aliases: tuple[str, ...]
    # What is chosen; and numbers of the problem, which a space may state otherwise.
    tunables: Mapping[str, Tunable]
    constants: Mapping[str, float]
    # Conditions that every configuration fulfils.
    constraints: tuple[Formula, ...]
    # Formulas by name, in order: each may use tunables, constants, facts of the device (``m_...``) and features before
    # it. Those whose name begins with ``f_`` are features; others are parts of them.
    features: Mapping[str, Formula]
    # The analytic model's expression for the time, in the unit of the parameter of time.
    model: str
    parameters: Mapping[str, Parameter]
    # Settings that some builds of the kernel ignore: each is a reading of the description in which they have the given
    # values whatever is chosen. Measurements decide.
    alternatives: tuple[Mapping[str, float], ...] = ()
    # Tunables and features that make different code of the kernel: a compiler may do better or worse than the model
    # expects on all configurations that have them in common.
    switches: tuple[str, ...] = ()
    path: Path | None = field(default=None, compare=False)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features, in the order of the description."""
        return tuple(name for name in self.features if name.startswith("f_"))

    def columns(self, settings: Mapping[str, Any]) -> dict[str, NDArray[np.float64]]:
        """Return tunables and constants as columns of one length, from columns or single numbers."""
        missing = [name for name in self.tunables if name not in settings]
        if missing:
            msg = f"the settings lack {', '.join(missing)}, which description {self.name!r} needs; add the column"
            raise FileFormatError(msg, description=self.name, field=missing[0])
        found = {
            **self.constants,
            **{name: settings[name] for name in (*self.tunables, *self.constants) if name in settings},
        }
        try:
            arrays = {name: np.atleast_1d(np.asarray(value, dtype=np.float64)) for name, value in found.items()}
            broadcast = np.broadcast_arrays(*arrays.values())
        except (TypeError, ValueError) as error:
            msg = f"the settings of description {self.name!r} are no columns of numbers of one length: {error}"
            raise FileFormatError(msg, description=self.name) from error
        # Broadcast numbers are views with stride 0, whose rows share one element: a copy gives each row its own.
        return dict(zip(arrays, (np.ascontiguousarray(column) for column in broadcast), strict=True))

    def kernels(self, settings: Mapping[str, Any]) -> dict[str, NDArray[np.float64]]:
        """Return the tunables with every meaningless one at its smallest value: equal rows are one kernel."""
        columns = self.columns(settings)
        made = {name: columns[name] for name in self.tunables}
        for name, tunable in self.tunables.items():
            if tunable.dead is not None:
                made[name] = np.where(tunable.dead(columns) != 0, min(tunable.values), columns[name])
        return made

    def held(self, settings: Mapping[str, Any]) -> list[tuple[str, NDArray[np.bool_]]]:
        """Return each constraint as it is written, with which configurations fulfil it."""
        columns = self.columns(settings)
        return [(constraint.text, _holds(constraint, columns)) for constraint in self.constraints]

    def valid(self, settings: Mapping[str, Any]) -> NDArray[np.bool_]:
        """Return which configurations fulfil all constraints."""
        columns = self.columns(settings)
        valid = np.ones(len(next(iter(columns.values()))), dtype=np.bool_)
        for constraint in self.constraints:
            valid &= _holds(constraint, columns)
        return valid

    def space(self) -> dict[str, NDArray[np.float64]]:
        """Return all configurations: every allowed combination of values that fulfils the constraints.

        A FileFormatError where the constraints leave none, or there are too many combinations to go through.
        """
        combinations = math.prod(len(tunable.values) for tunable in self.tunables.values())
        if combinations > _MOST_COMBINATIONS:
            msg = (
                f"the tunables of description {self.name!r} have {combinations} combinations, more than "
                f"{_MOST_COMBINATIONS}; list fewer values, or draw samples from the space's own configurations"
            )
            raise FileFormatError(msg, description=self.name)
        axes = np.meshgrid(*(np.array(tunable.values) for tunable in self.tunables.values()), indexing="ij")
        every = dict(zip(self.tunables, (axis.ravel() for axis in axes), strict=True))
        holds = self.valid(every)
        if not holds.any():
            msg = f"the constraints of description {self.name!r} contradict each other: no configuration is left"
            raise FileFormatError(msg, description=self.name)
        return {name: column[holds] for name, column in every.items()}

    def compute(
        self, settings: Mapping[str, Any], platform: Mapping[str, float], alternative: int | None = None
    ) -> dict[str, NDArray[np.float64]]:
        """Return every feature of every configuration, shape ``(n,)``, on a device whose facts are given.

        With an index, tunables are read as that alternative has them. A feature that is not finite is an error.
        """
        ignored = self.alternatives[alternative] if alternative is not None else {}
        known: dict[str, Any] = {**platform, **self.columns({**settings, **ignored})}
        rows = len(known[next(iter(self.tunables))])
        for name, formula in self.features.items():
            known[name] = np.broadcast_to(formula(known), rows)
        found = {name: np.array(known[name]) for name in self.feature_names}
        for name, column in found.items():
            bad = ~np.isfinite(column)
            if bad.any():
                first = int(np.argmax(bad))
                where = ", ".join(f"{key}={known[key][first]:g}" for key in self.tunables)
                msg = (
                    f"feature {name} of description {self.name!r} is no finite number for {where}; correct its formula"
                )
                raise FileFormatError(msg, description=self.name, field=name)
        return found


SCHEMA = "perflex-description/1"
_SUFFIXES = (".yaml", ".yml")
_HOME = "perflex.models"


def _holds(constraint: Formula, columns: Mapping[str, Any]) -> NDArray[np.bool_]:
    value = np.broadcast_to(constraint(columns), len(next(iter(columns.values()))))
    # nan (of 0 / 0, for instance) differs from 0, and would pass for fulfilled.
    holds: NDArray[np.bool_] = (value != 0) & ~np.isnan(value)
    return holds


def description_names() -> tuple[str, ...]:
    """Return the names of the descriptions that come with perflex, sorted."""
    folder = files(_HOME) / "descriptions"
    return tuple(sorted(Path(entry.name).stem for entry in folder.iterdir() if entry.name.endswith(".yaml")))


@lru_cache(maxsize=16)
def _shipped(name: str) -> Description:
    with as_file(files(_HOME) / "descriptions" / f"{name}.yaml") as path:
        return _read(path)


def load_description(place: str | Path) -> Description:
    """Return a description: a shipped one by its name or an alias, or a YAML file (a path, or a name ``....yaml``).

    Raises
    ------
    FileFormatError
        There is none of that name, or the file cannot be read; the field is named.
    """
    given: object = place
    if not isinstance(given, (str, Path)):
        msg = f"a description is given by its name or its file, not by {place!r}"
        raise FileFormatError(msg)
    if isinstance(place, Path) or place.endswith(_SUFFIXES):
        return _read(Path(place))
    for name in description_names():
        if place.casefold() in {alias.casefold() for alias in (name, *_shipped(name).aliases)}:
            return _shipped(name)
    near = difflib.get_close_matches(place, description_names(), n=1, cutoff=0.0)
    msg = f"there is no description {place!r}; did you mean {near[0]!r}? Known: {', '.join(description_names())}"
    raise FileFormatError(msg, description=place)


class _Tunable(Fields, frozen=True):
    meaning: str
    # Far from where products of a few values overflow.
    values: tuple[Annotated[float, msgspec.Meta(gt=-1e300, lt=1e300)], ...]
    dead_when: str | None = None


class _Alternative(Fields, frozen=True):
    meaning: str
    settings: dict[str, Finite]


class _DescriptionFile(Fields, frozen=True, kw_only=True):
    name: str
    description: str
    aliases: tuple[str, ...] = ()
    tunables: dict[str, _Tunable]
    constants: dict[str, Finite] = msgspec.field(default_factory=dict)
    constraints: tuple[str, ...] = ()
    # YAML reads a constant formula such as 4 as a number.
    features: dict[str, str | Finite]
    switches: tuple[str, ...] = ()
    model: str
    parameters: dict[str, Parameter]
    alternatives: tuple[_Alternative, ...] = ()


def _read(path: Path) -> Description:
    top = read_yaml(path, SCHEMA)
    file = top.read(_DescriptionFile)
    tunables = {name: _tunable(top, name, entry) for name, entry in file.tunables.items()}
    chosen, constants = set(tunables), set(file.constants)
    twice = [*(chosen & constants), *((chosen | constants) & set(PLATFORM_FACTS))]
    if twice:
        msg = f"{twice[0]} is defined twice, as a tunable, a constant or a fact of the device; rename it"
        raise top.error(msg, "tunables" if twice[0] in tunables else "constants")
    conditions = [_formula(top, text, "constraints", place) for place, text in enumerate(file.constraints)]
    for place, formula in enumerate(conditions):
        _check_names(top, formula, chosen | constants, "constraints", place)
    for name, tunable in tunables.items():
        if tunable.dead is not None:
            _check_names(top, tunable.dead, chosen | constants, "tunables", name, "dead_when")
    made = Description(
        name=file.name,
        text=file.description,
        aliases=file.aliases,
        tunables=tunables,
        constants=file.constants,
        constraints=tuple(conditions),
        features=_features(top, file, {*tunables, *constants, *PLATFORM_FACTS}),
        model=file.model,
        parameters=file.parameters,
        alternatives=tuple(entry.settings for entry in file.alternatives),
        switches=file.switches,
        path=path,
    )
    if not file.parameters:
        msg = "a model needs at least one parameter, that of time"
        raise top.error(msg, "parameters")
    for name in file.parameters:
        if not name.startswith("p_"):
            msg = "the name of a parameter begins with p_; rename it"
            raise top.error(msg, "parameters", name)
    _check_tunables_named(top, file, made)
    _check_model(top, made)
    return made


def _tunable(top: Section, name: str, entry: _Tunable) -> Tunable:
    if not entry.values or len(set(entry.values)) != len(entry.values):
        msg = "a list of different finite numbers must stand here"
        raise top.error(msg, "tunables", name, "values")
    dead = entry.dead_when if entry.dead_when is None else _formula(top, entry.dead_when, "tunables", name, "dead_when")
    return Tunable(entry.meaning, tuple(sorted(entry.values)), dead)


def _features(top: Section, file: _DescriptionFile, known: set[str]) -> dict[str, Formula]:
    features: dict[str, Formula] = {}
    for name, text in file.features.items():
        features[name] = _formula(top, str(text), "features", name)
        _check_names(top, features[name], known, "features", name)
        if name in known:
            msg = "the name is already in use; choose another"
            raise top.error(msg, "features", name)
        # Features may use those before them.
        known.add(name)
    return features


def _check_tunables_named(top: Section, file: _DescriptionFile, made: Description) -> None:
    for place, entry in enumerate(file.alternatives):
        for name in entry.settings:
            if name not in made.tunables:
                msg = "it is no tunable of this description"
                raise top.error(msg, "alternatives", place, "settings", name)
    for place, name in enumerate(file.switches):
        if name not in {*made.tunables, *made.feature_names}:
            msg = f"{name!r} is neither a tunable nor a feature of this description"
            raise top.error(msg, "switches", place)


def _formula(top: Section, text: str, *where: str | int) -> Formula:
    try:
        return parse_formula(text)
    except ModelSyntaxError as error:
        raise top.error(str(error), *where) from error


def _check_names(top: Section, formula: Formula, known: set[str], *where: str | int) -> None:
    for name in formula.names:
        if name not in known:
            near = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.0)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            msg = f"the name {name!r} is not known here{hint}"
            raise top.error(msg, *where)


def _check_model(top: Section, made: Description) -> None:
    from perflex.expression.parser import parse_expression
    from perflex.expression.tree import names

    try:
        used = names(parse_expression(made.model))
    except PerflexError as error:
        raise top.error(str(error), "model") from error
    known = {*made.feature_names, *made.parameters}
    unknown: Sequence[str] = [name for name in used if name not in known]
    if unknown:
        msg = f"{unknown[0]} is neither a feature nor a parameter of this file; declare it"
        raise top.error(msg, "model")
    # Nothing but its prior would determine it: the fit would return that as if it were a result.
    unused = [name for name in made.parameters if name not in used]
    if unused:
        msg = f"the model does not use {unused[0]}; remove it"
        raise top.error(msg, "parameters")
