"""From subscripts to access relations: quasi-affine ones, flattened ones, and what the user put in their place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perflex.errors import UnsupportedKernelError
from perflex.features.annotation import ANYWHERE
from perflex.features.from_loopy.facts import strides_of
from perflex.features.from_loopy.terms import (
    affine_in_parameters,
    flat_factors,
    flat_terms,
    polynomial_in_parameters,
    quasi_affine,
    substituted,
)
from perflex.features.polynomials.late_values import align_parameters
from perflex.features.polynomials.quasipolynomial import QuasiPolynomial
from perflex.features.scop.address_maps import Flattened, Product, flattened
from perflex.features.scop.scop import Access
from perflex.isl import isl

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perflex.features.from_loopy.domains import Instances
    from perflex.features.from_loopy.facts import KernelFacts, RawAccess

# Loop variables have at least as many.
_LEAST_BYTES = 4


class IndexVariables:
    """Private integers whose values follow from loop variables and sizes alone."""

    def __init__(self, kernel: Any) -> None:
        from loopy.symbolic import get_dependencies

        self._kernel = kernel
        known = set(kernel.all_inames()) | set(kernel.outer_params())
        found: dict[str, tuple[Any, Any]] = {}
        candidates = {
            name: insn for name in kernel.temporary_variables if (insn := self._only_writer(name)) is not None
        }
        # What stands for one of them may itself be written with another.
        while ready := [name for name, insn in candidates.items() if get_dependencies(insn.expression) <= known]:
            for name in ready:
                insn = candidates.pop(name)
                value = substituted(insn.expression, {other: value for other, (_, value) in found.items()})
                found[name] = (insn, value)
                known.add(name)
        self._found = found

    def _only_writer(self, name: str) -> Any | None:
        """Return the one unconditional assignment to a private integer; None if it is none or has others."""
        from loopy.kernel.data import AddressSpace
        from loopy.kernel.instruction import Assignment

        variable = self._kernel.temporary_variables[name]
        writers = self._kernel.writer_map().get(name, frozenset())
        if variable.shape != () or variable.address_space != AddressSpace.PRIVATE or len(writers) != 1:
            return None
        insn = self._kernel.id_to_insn[next(iter(writers))]
        dtype = variable.dtype.numpy_dtype
        # Of narrow types, large values are cut off.
        if dtype.kind not in "iu" or dtype.itemsize < _LEAST_BYTES:
            return None
        return insn if isinstance(insn, Assignment) and not insn.predicates else None

    def without(self, indices: Sequence[Any], insn_id: str) -> tuple[Any, ...]:
        """Return subscripts of an instruction with their values in place of such variables.

        A variable stays where the instruction does not surely see the value of the same iteration.
        """
        from loopy.symbolic import get_dependencies

        names = {name for index in indices for name in get_dependencies(index)} & self._found.keys()
        if not names:
            return tuple(indices)
        reader = self._kernel.id_to_insn[insn_id]
        before = self._kernel.recursive_insn_dep_map()[insn_id]
        values = {
            name: value
            for name, (writer, value) in self._found.items()
            if name in names and writer.id in before and writer.within_inames <= reader.within_inames
        }
        return tuple(substituted(index, values) for index in indices)


_KINDS = isl.dim_type


class AccessMaker:
    """Makes the accesses of a kernel's statements."""

    def __init__(self, facts: KernelFacts) -> None:
        self._kernel = kernel = facts.kernel
        self._types = facts.types
        self._index_variables = IndexVariables(kernel)
        self._parameters = facts.parameters
        self._displaced = facts.trips.displaced
        self._stand_ins = {_key(kernel, key): value for key, value in facts.options.accesses}
        self._written = {_key(kernel, key): key for key, _ in facts.options.accesses}
        self._used: set[str] = set()

    def access(self, raw: RawAccess, direction: str, instances: Instances, insn_id: str) -> Access:
        """Return an access as the Scop has it."""
        indices = self._index_variables.without(raw.indices, insn_id)
        found = self._of_indices(indices, raw.array, instances) if not raw.indirect else None
        if found is not None:
            relation, strides, distinct = found
            return self._made(raw, direction, relation, instances, strides=strides, distinct=distinct)
        key, value = self._stand_in(raw, insn_id)
        relation = self._stated(raw, value, instances, self._written[key])
        return self._made(raw, direction, relation, instances, stated=f"{raw.text} as {value}")

    def _refuse(self, message: str, access: str) -> UnsupportedKernelError:
        return UnsupportedKernelError(
            f"kernel {self._kernel.name!r}: {message}", kernel=self._kernel.name, access=access
        )

    def _made(self, raw: RawAccess, direction: str, relation: Any, instances: Instances, **more: Any) -> Access:
        variable = self._kernel.get_var_descriptor(raw.array)
        element = self._types.element(variable.dtype.numpy_dtype, f"array {raw.array!r}")
        # The access to a whole vector touches each of its components: one axis more.
        if element.lanes > 1 and len(raw.indices) == len(variable.shape or ()):
            lane = isl.PwAff.var_on_domain(
                isl.LocalSpace.from_space(instances.space), _KINDS.set, instances.space.dim(_KINDS.set) - 1
            )
            relation = relation.flat_range_product(isl.Map.from_pw_aff(lane))
            if more.get("strides") is not None:
                more["strides"] = (*(stride * element.width for stride in more["strides"]), QuasiPolynomial.constant(1))
        if instances.places is not None:
            relation = instances.places.apply_range(relation)
        # Names of loops in a relation say nothing, and would make equal relations differ.
        for position in range(relation.dim(_KINDS.in_)):
            relation = relation.set_dim_id(_KINDS.in_, position, isl.Id(f"i{position}"))
        return Access(raw.array, direction, align_parameters(relation, self._parameters), raw.tag, raw.text, **more)

    # subscripts that say which element it is

    def _of_indices(
        self, indices: Sequence[Any], array: str, instances: Instances
    ) -> tuple[Any, tuple[QuasiPolynomial, ...] | None, bool] | None:
        """Return (relation, strides if not the array's own, whether images are distinct); None if not known."""
        from loopy.symbolic import get_dependencies

        # Such a loop is described as starting at 0: how many iterations is right, which elements is not.
        if any(get_dependencies(index) & self._displaced for index in indices):
            return None
        relation = isl.Map.from_domain(isl.Set.universe(instances.space))
        found = [quasi_affine(index, instances.space) for index in indices]
        axes = strides_of(self._kernel.get_var_descriptor(array), self._kernel.name) if indices else ()
        # Accesses in the array's own axes number its elements alike, so that their footprints can be united.
        if all(affine is not None for affine in found):
            for affine in found:
                relation = relation.flat_range_product(isl.Map.from_pw_aff(affine))
            return relation, None, True
        strides: list[QuasiPolynomial] = []
        distinct = True
        for position, (index, affine) in enumerate(zip(indices, found, strict=True)):
            # A component of a vector has no axis of its own in loopy.
            scale = self._polynomial(axes[position]) if position < len(axes) else QuasiPolynomial.constant(1)
            if affine is not None:
                relation = relation.flat_range_product(isl.Map.from_pw_aff(affine))
                strides.append(scale)
                continue
            flattened = flattened_axes(index, instances.values, instances.space, self._parameters)
            if flattened is None:
                return None
            distinct = distinct and flattened.distinct
            for axis, stride in flattened.axes:
                relation = relation.flat_range_product(isl.Map.from_pw_aff(axis))
                strides.append(stride * scale)
        return relation, tuple(strides), distinct

    def _polynomial(self, expr: Any) -> QuasiPolynomial:
        return polynomial_in_parameters(expr, self._parameters)

    # what the user stated

    def _stand_in(self, raw: RawAccess, insn_id: str) -> tuple[str, str]:
        written = f"{raw.array}[{_canonical_tuple(raw.indices)}]"
        # What is stated for this very access goes before what is stated for its array, and that before its tag.
        for key in (written, raw.array, f"tag:{raw.tag}"):
            if key in self._stand_ins:
                self._used.add(key)
                return key, self._stand_ins[key]
        if raw.indirect:
            why = f"is indirect: its subscript reads {raw.indirect}, so which elements it touches depends on the data"
        else:
            why = f"has a subscript that is not quasi-affine in loop variables and sizes{self._data_in(raw)}"
        msg = (
            f"access {raw.text} in instruction {insn_id!r} {why}; state a subscript to count in its place, "
            f"e.g. annotate(kernel, accesses={{{raw.text!r}: 'anywhere'}})"
        )
        raise self._refuse(msg, raw.text)

    def _data_in(self, raw: RawAccess) -> str:
        from loopy.symbolic import get_dependencies

        names = {name for index in raw.indices for name in get_dependencies(index)}
        computed = sorted(names & (set(self._kernel.temporary_variables) | self._displaced))
        return f" ({', '.join(computed)} depends on the data)" if computed else ""

    def _stated(self, raw: RawAccess, value: str, instances: Instances, key: str) -> Any:
        variable = self._kernel.get_var_descriptor(raw.array)
        shape = variable.shape or ()
        if value.strip() == ANYWHERE:
            return self._any_element(raw, shape, instances)
        indices = self._parsed_indices(value, instances, key)
        if len(indices) != len(shape):
            msg = f"{value!r}, stated for {key}, has {len(indices)} subscripts; array {raw.array!r} has {len(shape)}"
            raise self._refuse(msg, raw.text)
        relation = isl.Map.from_domain(isl.Set.universe(instances.space))
        for index in indices:
            affine = quasi_affine(index, instances.space)
            if affine is None:
                known = [*instances.axes, *instances.space.get_var_names(_KINDS.set), *self._parameters]
                msg = (
                    f"{value!r}, stated for {key}, is not quasi-affine in the loop variables and sizes there: "
                    f"{', '.join(name for name in dict.fromkeys(known) if not name.startswith('_'))}"
                )
                raise self._refuse(msg, raw.text)
            relation = relation.flat_range_product(isl.Map.from_pw_aff(affine))
        return relation

    def _parsed_indices(self, value: str, instances: Instances, key: str) -> tuple[Any, ...]:
        from pymbolic import var

        axes = {axis: var(name) for axis, name in instances.axes.items()}
        # Behind a dummy name several subscripts parse as one index tuple.
        parsed = parsed_by_user(f"_[{value}]", f"{value!r}, stated for {key}", self._kernel.name)
        return tuple(substituted(rewritten(self._kernel, index), axes) for index in parsed.index_tuple)

    def _any_element(self, raw: RawAccess, shape: Sequence[Any], instances: Instances) -> Any:
        relation = isl.Map.from_domain(isl.Set.universe(instances.space))
        for extent in shape:
            try:
                limit = affine_in_parameters(extent, self._parameters)
            except UnsupportedKernelError:
                msg = (
                    f"{raw.text} cannot be counted as 'anywhere': extent {extent} of array {raw.array!r} is not affine "
                    "in the sizes; state a subscript"
                )
                raise self._refuse(msg, raw.text) from None
            elements = isl.Set("{ [e] : e >= 0 }").align_params(limit.get_space())
            coordinate = isl.PwAff.var_on_domain(isl.LocalSpace.from_space(elements.get_space()), _KINDS.set, 0)
            elements = elements.intersect(coordinate.lt_set(limit.add_dims(_KINDS.in_, 1)))
            every = isl.Map.from_domain_and_range(isl.Set.universe(instances.space), elements)
            relation = relation.align_params(every.get_space()).flat_range_product(every)
        return relation

    def check_used(self) -> None:
        """Stop if something was stated that no access needs."""
        for key in self._stand_ins:
            if key not in self._used:
                msg = (
                    f"what is stated for access {self._written[key]!r} fits no access that needs it; "
                    "leave it out, or write the access as the kernel does"
                )
                raise self._refuse(msg, self._written[key])


def parsed_by_user(text: str, what: str, kernel_name: str) -> Any:
    """Return a user's text as a loopy expression."""
    from loopy.symbolic import parse
    from pytools.lex import ParseError

    try:
        return parse(text)
    except ParseError:
        msg = f"kernel {kernel_name!r}: {what}, cannot be read as an expression; write it as loopy would"
        raise UnsupportedKernelError(msg, kernel=kernel_name) from None


def rewritten(kernel: Any, expr: Any) -> Any:
    """Return an expression in the loop variables that transformations made of the original ones."""
    # In the order of transformations: later ones rewrite names that earlier ones made.
    for rewrites in kernel.applied_iname_rewrites:
        expr = substituted(expr, dict(rewrites))
    return expr


def _key(kernel: Any, key: str) -> str:
    """Return a key as the transformed kernel writes the access, whatever the order of terms and factors."""
    if "[" not in key:
        return key
    parsed = rewritten(kernel, parsed_by_user(key, f"access {key!r}", kernel.name))
    return f"{parsed.aggregate}[{_canonical_tuple(parsed.index_tuple)}]"


def _canonical_tuple(indices: Sequence[Any]) -> str:
    return ",".join(map(_canonical, indices))


def _canonical(expr: Any) -> str:
    method = getattr(expr, "mapper_method", "")
    if method == "map_sum":
        return f"({'+'.join(sorted(map(_canonical, flat_terms(expr))))})"
    if method == "map_product":
        return f"({'*'.join(sorted(map(_canonical, flat_factors(expr))))})"
    if method == "map_subscript":
        return f"{expr.aggregate}[{_canonical_tuple(expr.index_tuple)}]"
    return str(expr).replace(" ", "")


def flattened_axes(index: Any, domain: Any, space: Any, parameters: Sequence[str]) -> Flattened | None:
    """Split a subscript into axes by the products of size parameters in its terms.

    None if a term is not a product of size parameters and something affine in the loop variables. `domain` is the isl
    set of the instances as loopy has them, `space` its space.
    """
    from pymbolic.mapper import UnsupportedExpressionError
    from pymbolic.mapper.distributor import distribute

    groups: dict[Product, list[Any]] = {}
    try:
        expanded = distribute(index)
    except UnsupportedExpressionError:
        return None
    for term in flat_terms(expanded):
        product, rest = _split(term, frozenset(parameters))
        groups.setdefault(product, []).append(rest)
    # One group without parameters is no flattened subscript, but one that is not affine.
    if len(groups) < 2 and () in groups:
        return None
    values = {product: quasi_affine(sum(terms[1:], start=terms[0]), space) for product, terms in groups.items()}
    if any(value is None for value in values.values()):
        return None
    return flattened(values, domain, parameters)


def _split(term: Any, parameters: frozenset[str]) -> tuple[Product, Any]:
    """Return (size parameters, sorted; everything else) of a product."""
    names: list[str] = []
    rest: Any = 1
    for factor in flat_factors(term):
        base, exponent = factor, 1
        if getattr(factor, "mapper_method", "") == "map_power" and isinstance(factor.exponent, int):
            base, exponent = factor.base, factor.exponent
        if getattr(base, "name", None) in parameters and exponent > 0:
            names += [base.name] * exponent
        else:
            rest = rest * (base if exponent == 1 else factor)
    return tuple(sorted(names)), rest
