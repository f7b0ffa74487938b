"""From subscripts to access relations: quasi-affine ones, flattened ones, and what the user put in their place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from operator import mul
from typing import Any

from loopy.kernel.data import AddressSpace
from loopy.kernel.instruction import Assignment
from loopy.symbolic import get_dependencies, parse
from pymbolic import var
from pymbolic.mapper import UnsupportedExpressionError
from pymbolic.mapper.distributor import distribute
from pytools.lex import ParseError

from perflex.errors import UnsupportedKernelError
from perflex.features.annotation import ANYWHERE
from perflex.features.from_loopy.domains import Instances
from perflex.features.from_loopy.expression import RawAccess
from perflex.features.from_loopy.generated import KernelFacts
from perflex.features.from_loopy.terms import (
    below,
    flat,
    method_of,
    polynomial_in_parameters,
    quasi_affine,
    substituted,
)
from perflex.features.lowering.subscripts import Flattened, Product, flattened, lane_of
from perflex.features.polynomials.quasipolynomial import QuasiPolynomial
from perflex.features.scop.scop import Access
from perflex.isl import align_parameters, isl

_IN, _SET = isl.dim_type.in_, isl.dim_type.set


def _index_variables(kernel: Any) -> dict[str, tuple[Any, Any]]:
    """Return writer and value of private integers that follow from loop variables and sizes alone."""
    known = set(kernel.all_inames()) | set(kernel.outer_params())
    candidates = {name: insn for name in kernel.temporary_variables if (insn := _only_writer(kernel, name)) is not None}
    found: dict[str, tuple[Any, Any]] = {}
    # What stands for one of them may itself be written with another.
    while ready := [name for name, insn in candidates.items() if get_dependencies(insn.expression) <= known]:
        for name in ready:
            insn = candidates.pop(name)
            found[name] = insn, substituted(insn.expression, {other: value for other, (_, value) in found.items()})
            known.add(name)
    return found


def _only_writer(kernel: Any, name: str) -> Any | None:
    """Return the one unconditional assignment to a private integer; None if it is none or has others."""
    variable, writers = kernel.temporary_variables[name], kernel.writer_map().get(name, ())
    # Of narrow types, large values are cut off.
    plain = variable.dtype.numpy_dtype.name in {"int32", "uint32", "int64", "uint64"} and variable.shape == ()
    if not plain or variable.address_space != AddressSpace.PRIVATE or len(writers) != 1:
        return None
    insn = kernel.id_to_insn[next(iter(writers))]
    return insn if isinstance(insn, Assignment) and not insn.predicates else None


class AccessMaker:
    """Makes the accesses of a kernel's statements."""

    def __init__(self, facts: KernelFacts, stated: Iterable[tuple[str, str]]) -> None:
        self._facts, self._kernel, self._parameters = facts, facts.kernel, facts.parameters
        self._index_variables = _index_variables(facts.kernel)
        # What the user stated by access, array or tag: the key as it was written, and the subscript.
        self._stated = {
            _plain(self._read(key, f"access {key!r}")) if "[" in key else key: (key, value) for key, value in stated
        }
        self._used: set[str] = set()

    def access(self, raw: RawAccess, instances: Instances, insn_id: str) -> Access:
        """Return an access as the Scop has it."""
        variable = self._kernel.get_var_descriptor(raw.array)
        found = None if raw.indirect else self._of_indices(self._indices(raw, insn_id), variable, instances)
        assumed = ""
        if found is None:
            key, value = self._stand_in(raw, insn_id)
            found = self._stated_relation(raw, key, value, instances), None, True
            assumed = f"{raw.text} as {value}"
        relation, strides, injective = found
        element = self._facts.element(variable.dtype.numpy_dtype, f"array {raw.array!r}")
        # The access to a whole vector touches each of its components: one axis more.
        if element.lanes > 1 and len(raw.indices) == len(variable.shape or ()):
            relation = relation.flat_range_product(isl.Map.from_pw_aff(lane_of(instances.space)))
            if strides is not None:
                strides = (*(stride * element.width for stride in strides), QuasiPolynomial.constant(1))
        # Names of loops in a relation say nothing, and would make equal relations differ.
        for position in range(relation.dim(_IN)):
            relation = relation.set_dim_id(_IN, position, isl.Id(f"i{position}"))
        relation = align_parameters(relation, self._parameters)
        return Access(raw.array, raw.direction, relation, raw.tag, raw.text, strides, injective, assumed)

    # Subscripts that say which element it is

    def _indices(self, raw: RawAccess, insn_id: str) -> list[Any]:
        """Return subscripts with values in place of variables whose value of the same iteration is surely seen."""
        reader = self._kernel.id_to_insn[insn_id]
        names = {name for index in raw.indices for name in get_dependencies(index)} & self._index_variables.keys()
        before = self._kernel.recursive_insn_dep_map()[insn_id] if names else ()
        values = {
            name: value
            for name, (writer, value) in self._index_variables.items()
            if name in names and writer.id in before and writer.within_inames <= reader.within_inames
        }
        return [substituted(index, values) if values else index for index in raw.indices]

    def _of_indices(
        self, indices: Sequence[Any], variable: Any, instances: Instances
    ) -> tuple[Any, tuple[QuasiPolynomial, ...] | None, bool] | None:
        """Return (relation, strides if not the array's own, whether these are certain); None if not known."""
        # A displaced loop is described as starting at 0: how many iterations is right, which elements is not.
        if any(get_dependencies(index) & self._facts.displaced for index in indices):
            return None
        found = [quasi_affine(index, instances.space) for index in indices]
        # Accesses in the array's own axes number its elements alike, so that their footprints can be united.
        if all(affine is not None for affine in found):
            return _relation(found, instances), None, True
        # A component of a vector has no axis of its own in loopy.
        one = QuasiPolynomial.constant(1)
        scales = [polynomial_in_parameters(axis, self._parameters) for axis in self._facts.strides(variable)]
        axes: list[tuple[Any, QuasiPolynomial]] = []
        injective = True
        for index, affine, scale in zip(indices, found, [*scales, one], strict=False):
            split = None if affine is not None else self._flattened(index, instances)
            if affine is None and split is None:
                return None
            axes += [(affine, scale)] if split is None else [(axis, stride * scale) for axis, stride in split.axes]
            injective = injective and (split is None or split.injective)
        return _relation([axis for axis, _ in axes], instances), tuple(stride for _, stride in axes), injective

    def _flattened(self, index: Any, instances: Instances) -> Flattened | None:
        """Split a subscript into axes by the products of size parameters in its terms.

        None if a term is not a product of size parameters and something affine in the loop variables.
        """
        try:
            terms = flat(distribute(index), "map_sum")
        except UnsupportedExpressionError:
            return None
        groups: dict[Product, Any] = {}
        for term in terms:
            factors = list(_factors(term))
            sizes = [factor for factor in factors if getattr(factor, "name", None) in self._parameters]
            product = tuple(sorted(size.name for size in sizes))
            rest = reduce(mul, (factor for factor in factors if factor not in sizes), 1)
            groups[product] = groups[product] + rest if product in groups else rest
        # One group without parameters is no flattened subscript, but one that is not affine.
        if len(groups) < 2 and () in groups:
            return None
        values = {product: quasi_affine(rest, instances.space) for product, rest in groups.items()}
        if any(value is None for value in values.values()):
            return None
        return flattened(values, instances.domain, self._parameters)

    # What the user stated

    def _read(self, text: str, what: str) -> Any:
        """Return a user's text as an expression of the transformed kernel."""
        try:
            expr = parse(text)
        except ParseError:
            msg = f"{what}, cannot be read as an expression; write it as loopy would"
            raise self._facts.refuse(msg) from None
        # In the order of transformations: later ones rewrite names that earlier ones made.
        for rewrites in self._kernel.applied_iname_rewrites:
            expr = substituted(expr, dict(rewrites))
        return expr

    def _stand_in(self, raw: RawAccess, insn_id: str) -> tuple[str, str]:
        # What is stated for this very access goes before what is stated for its array, and that before its tag.
        for key in (_plain(raw.text), raw.array, f"tag:{raw.tag}"):
            if key in self._stated:
                self._used.add(key)
                return self._stated[key]
        if raw.indirect:
            why = f"is indirect: its subscript reads {raw.indirect}, so which elements it touches depends on the data"
        else:
            names = {name for index in raw.indices for name in get_dependencies(index)}
            computed = sorted(names & (set(self._kernel.temporary_variables) | self._facts.displaced))
            data = f" ({', '.join(computed)} depends on the data)" if computed else ""
            why = f"has a subscript that is not quasi-affine in loop variables and sizes{data}"
        msg = (
            f"access {raw.text} in instruction {insn_id!r} {why}; state a subscript to count in its place, "
            f"e.g. annotate(kernel, accesses={{{raw.text!r}: 'anywhere'}}) or --state '{raw.text}=anywhere'"
        )
        raise self._facts.refuse(msg, access=raw.text)

    def _stated_relation(self, raw: RawAccess, key: str, value: str, instances: Instances) -> Any:
        shape = self._kernel.get_var_descriptor(raw.array).shape or ()
        if value.strip() == ANYWHERE:
            return self._any_element(raw, shape, instances)
        axes = {axis: var(name) for axis, name in instances.axes.items()}
        # Behind a dummy name several subscripts parse as one index tuple.
        indices = self._read(f"_[{value}]", f"{value!r}, stated for {key}").index_tuple
        if len(indices) != len(shape):
            msg = f"{value!r}, stated for {key}, has {len(indices)} subscripts; array {raw.array!r} has {len(shape)}"
            raise self._facts.refuse(msg, access=raw.text)
        found = [quasi_affine(substituted(index, axes), instances.space) for index in indices]
        if any(affine is None for affine in found):
            known = [*instances.axes, *instances.space.get_var_names(_SET), *self._parameters]
            msg = (
                f"{value!r}, stated for {key}, is not quasi-affine in the loop variables and sizes there: "
                f"{', '.join(name for name in dict.fromkeys(known) if name and not name.startswith('_'))}"
            )
            raise self._facts.refuse(msg, access=raw.text)
        return _relation(found, instances)

    def _any_element(self, raw: RawAccess, shape: Sequence[Any], instances: Instances) -> Any:
        elements = isl.Set(f"{{ [{', '.join(f'e{position}' for position in range(len(shape)))}] }}")
        for position, extent in enumerate(shape):
            try:
                elements = below(elements, position, extent, self._parameters)
            except UnsupportedKernelError:
                msg = (
                    f"{raw.text} cannot be counted as 'anywhere': extent {extent} of array {raw.array!r} is not affine "
                    "in the sizes; state a subscript"
                )
                raise self._facts.refuse(msg, access=raw.text) from None
        everywhere = isl.Set.universe(instances.space)
        return isl.Map.from_domain_and_range(everywhere, align_parameters(elements, self._parameters))

    def check_used(self) -> None:
        """Stop if something was stated that no access needs."""
        for written in (written for key, (written, _) in self._stated.items() if key not in self._used):
            msg = (
                f"what is stated for access {written!r} fits no access that needs it; "
                "leave it out, or write the access as the kernel does"
            )
            raise self._facts.refuse(msg, access=written)


def _relation(axes: Sequence[Any], instances: Instances) -> Any:
    relation = isl.Map.from_domain(isl.Set.universe(instances.space))
    for axis in axes:
        relation = relation.flat_range_product(isl.Map.from_pw_aff(axis))
    return relation


def _plain(access: Any) -> str:
    return str(access).replace(" ", "")


def _factors(term: Any) -> Iterator[Any]:
    """Yield the factors of a product, each so often as its power says."""
    for factor in flat(term, "map_product"):
        # A higher power of a size of 2 or more exceeds every 64-bit address, and would make a list without end.
        whole = method_of(factor) == "map_power" and isinstance(factor.exponent, int) and 0 < factor.exponent < 64
        yield from [factor.base] * factor.exponent if whole else [factor]
