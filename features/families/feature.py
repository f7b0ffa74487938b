"""What a feature is: an identifier, the family that knows it, and what the family read in it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np

from perflex.errors import FeatureError, MissingSizeError
from perflex.features.counting.scop_counts import AccessCounts
from perflex.features.counting.touched import Certainty, certainty_of_all
from perflex.features.polynomials.quasipolynomial import QuasiPolynomial
from perflex.features.scop.scop import Operation, Scop
from perflex.features.target import Target
from perflex.features.tiles.tile_kernel import TileKernel

# Either one number per size parameter, or one array of a common shape per size parameter.
Sizes = Mapping[str, Any]
Cost = Literal["memory", "on-chip", "overhead", "other", ""]
_Value = TypeVar("_Value")
# Values of so many sizes and targets stay with a kernel: what one fit or one prediction asks for.
_KEPT = 64
_EXACT = Certainty()


@dataclass(frozen=True)
class Amount:
    """What one unit of a feature amounts to, e.g. 32 ``"op"`` or 4 ``"B"``; used for implied rates."""

    value: float
    unit: str


@dataclass(frozen=True)
class Remarks:
    """What `count_features` says of a feature beside its value; `unit` where a kernel tells more of it."""

    formula: str = "computed at given sizes"
    certainty: Certainty = _EXACT
    note: str = ""
    unit: str = ""


@dataclass(frozen=True)
class Family:
    """Features that one rule computes.

    Functions take the kernel's `Scop`, the sizes (of each parameter a number or an array, all of one shape), the
    `Target`, and what was read in the identifier: the group of `pattern` as a text, several groups as a tuple, without
    groups the identifier, or what `read` returns. Give `count` or `value`.

    Attributes
    ----------
    title
        What the features are, in one line.
    pattern
        Regular expression of whole identifiers, which begin with ``f_``.
    unit
        What is counted, singular, e.g. ``"sub-group operation"``; or a function of what was read.
    value
        Returns a number, or an array for arrays of sizes. By default, the value of `count`.
    count
        Returns the count as a function of the sizes, or None where there is no formula.
    examples
        Identifiers to suggest when one is misspelt.
    read
        Returns what functions take, from the match of `pattern`.
    inventory
        Returns identifiers of the family that a kernel has. By default, the examples.
    present
        Returns whether a kernel has a feature. By default, whether the inventory lists it; without one, always.
    amount
        Returns what a unit amounts to, if that is one number. By default a byte, if the unit is ``"B"``.
    remarks
        Returns what reports say beside the value; sizes may be None. By default, the count's formula.
    covers
        Of an access or operation: True if the feature counts it, False if it counts others of the kind, else None.
    needs
        What there is no value without: ``"machine"``, ``"build"`` or ``"code"``.
    cost
        What terms with the feature stand for, or a function of what was read; ``""`` where a kernel's accesses decide.
    one_size
        Whether `value` takes integers only. Arrays of sizes are then taken apart.
    of
        What functions take: ``"scop"``, or ``"tiles"`` for a `TileKernel`.
    """

    title: str
    pattern: str
    unit: str | Callable[[Any], str]
    value: Callable[[Scop, Sizes, Target, Any], Any] | None = None
    count: Callable[[Scop, Sizes, Target, Any], QuasiPolynomial | None] | None = None
    examples: tuple[str, ...] = ()
    read: Callable[[Any], Any] | None = None
    inventory: Callable[[Scop], list[str]] | None = None
    present: Callable[[Scop, Sizes, Any], bool] | None = None
    amount: Callable[[Scop, Sizes, Target, Any], Amount | None] | None = None
    remarks: Callable[[Scop, Sizes | None, Target, Any], Remarks] | None = None
    covers: Callable[[Any, AccessCounts | Operation, Sizes], bool | None] | None = None
    needs: Literal["", "machine", "build", "code"] = ""
    cost: Cost | Callable[[Any], Cost] = "other"
    one_size: bool = False
    of: Literal["scop", "tiles"] = "scop"


@dataclass(frozen=True)
class Feature:
    """A number that a kernel has at given sizes (paper Section 6.1); `parse_feature` makes it of an identifier."""

    identifier: str
    family: Family
    what: Any  # What the family read in the identifier

    @property
    def unit(self) -> str:
        """What is counted, singular, e.g. ``"sub-group operation"``."""
        unit = self.family.unit
        return unit if isinstance(unit, str) else unit(self.what)

    @property
    def cost(self) -> Cost:
        """What a term with it stands for; ``""`` where the accesses that it covers decide."""
        cost = self.family.cost
        return cost if isinstance(cost, str) else cost(self.what)

    def value(self, scop: Scop, sizes: Sizes, target: Target, /) -> Any:
        """Return the value: a number for integer sizes, an array for arrays of sizes.

        Raises
        ------
        MissingSizeError
            A size parameter has no value, or the kernel is not valid for the values.
        MachineError, FeatureError
            There is no machine, build or machine code, and the feature needs it.
        UnsupportedKernelError
            How many elements an array has is not known, and decides it.
        """
        scop.check_sizes(sizes)
        try:
            return self._value(scop, sizes, target)
        except MissingSizeError as error:
            needed: Any = error.context.get("parameters", ())
            if any(name in scop.unknown_extents for name in needed):
                scop.require_extents(scop.unknown_extents.keys() - set(needed), self.identifier)
            raise

    def _value(self, scop: Scop, sizes: Sizes, target: Target) -> Any:
        family = self.family
        self._require_description(scop)
        if family.needs == "machine":
            target.need_machine(self.identifier)
        if family.value is None:
            assert family.count is not None  # noqa: S101 - `register_family` sees to it
            return family.count(scop, sizes, target, self.what).evaluate(sizes)  # type: ignore[union-attr]
        if not family.one_size:
            return family.value(scop, sizes, target, self.what)
        names = [*scop.parameters, *(name for name in scop.unknown_extents if name in sizes)]
        # A number goes before the sizes: a kernel may have none. numpy.broadcast takes 64 arrays at most.
        first, *others = np.broadcast_arrays(0, *(np.asarray(sizes[name]) for name in names))
        points = zip(first.ravel(), *(other.ravel() for other in others), strict=True)
        each = (dict(zip(names, map(int, point), strict=True)) for _, *point in points)
        values = np.array([family.value(scop, one, target, self.what) for one in each], dtype=float)
        return values.reshape(first.shape) if first.shape else float(values[0])

    def _require_description(self, described: Any) -> None:
        """Stop where a feature of the one kind is asked of a kernel of the other."""
        if isinstance(described, TileKernel) != (self.family.of == "tiles"):
            tiles = self.family.of == "tiles"
            of, others = ("tile programs, such as Triton kernels,", "f_op_...") if tiles else ("Scops", "f_tile_...")
            msg = f"{self.identifier} is a feature of {of} and kernel {described.name!r} is none; name others: {others}"
            raise FeatureError(msg, feature=self.identifier)

    def matches(self, scop: Scop, sizes: Sizes, /) -> bool:
        """Return whether the kernel has anything that this feature counts."""
        self._require_description(scop)
        if self.family.present is not None:
            return self.family.present(scop, sizes, self.what)
        return self.family.inventory is None or self.identifier in self.family.inventory(scop)

    def inventory(self, scop: Scop, /) -> list[str]:
        """Return identifiers of the same family that the kernel does contain."""
        return list(self.family.examples) if self.family.inventory is None else self.family.inventory(scop)

    def amount(self, scop: Scop, sizes: Sizes, target: Target, /) -> Amount | None:
        """Return what one unit amounts to in this kernel, if that is one number."""
        self._require_description(scop)
        if self.family.amount is not None:
            return self.family.amount(scop, sizes, target, self.what)
        # What a work-item of a built kernel takes is no flow of bytes.
        return Amount(1.0, "B") if self.unit == "B" and self.family.needs in {"", "machine"} else None

    def remarks(self, scop: Scop, sizes: Sizes | None, target: Target, /) -> Remarks:
        """Return what a report says beside the value; without sizes what is known without."""
        if self.family.remarks is not None:
            return self.family.remarks(scop, sizes, target, self.what)
        count = self.family.count and self.family.count(scop, sizes or {}, target, self.what)
        return Remarks() if count is None else Remarks(str(count))

    def covers(self, part: AccessCounts | Operation, sizes: Sizes) -> bool | None:
        """Return whether it counts an access or operation; None if it counts none of the kind."""
        return None if self.family.covers is None else self.family.covers(self.what, part, sizes)


def counted_of_all(scop: Scop, *_: Any) -> Remarks:
    """Return the remarks on a count that all of a kernel decides."""
    return Remarks(certainty=certainty_of_all(scop))


def estimated_of_all(scop: Scop, *_: Any) -> Remarks:
    """Return the remarks on an estimate that all of a kernel decides."""
    return Remarks(certainty=certainty_of_all(scop) | Certainty(estimated=True))


def any_of(identifiers: Mapping[str, Any] | tuple[str, ...]) -> str:
    """Return the pattern of some identifiers."""
    return "|".join(identifiers)


def kept(scop: Scop, what: str, sizes: Sizes, key: Hashable, compute: Callable[[], _Value]) -> _Value:
    """Return what `compute` returns at these sizes, once: a model asks for several features of one computation."""
    arrays = [(name, np.asarray(sizes[name])) for name in scop.parameters]
    # Arrays are not hashable: their shapes and numbers stand for them.
    given = tuple((name, array.shape, tuple(array.ravel().tolist())) for name, array in arrays)
    return scop.derived(what, (given, key), compute, most=_KEPT)


def touches_memory(scop: Scop) -> bool:
    """Return whether a kernel accesses any array that is not private, which registers hold."""
    return any(scop.array(access.array).space != "private" for one in scop.statements for access in one.accesses)
