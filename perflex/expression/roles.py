"""What each parameter of a model is: a cost per feature, or something that shapes the model."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from perflex.expression.functions import EDGE, FUNCTIONS
from perflex.expression.tree import Call, Name, Node, Number, Power, Product, Sum, children, names, rebuilt, walk

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from perflex.expression.functions import ShapeRole

# Products of sums multiply out to exponentially many terms; beyond these a product counts as no monomial.
_MAX_TERMS = 10_000


@dataclass(frozen=True)
class Monomial:
    """A product of powers of features and parameters; `hidden` are names inside other factors, such as functions."""

    coefficient: float
    powers: dict[str, float] = field(default_factory=dict)
    hidden: frozenset[str] = frozenset()

    def times(self, other: Monomial) -> Monomial:
        """Return the product of two monomials."""
        powers = dict(self.powers)
        for name, exponent in other.powers.items():
            powers[name] = powers.get(name, 0.0) + exponent
        powers = {name: exponent for name, exponent in powers.items() if exponent}
        return Monomial(self.coefficient * other.coefficient, powers, self.hidden | other.hidden)


@dataclass(frozen=True)
class ParameterRole:
    """What one parameter is: a ``cost``, a ``rate`` (of a cost), a shape, named as its `ShapeRole` is, or ``other``."""

    kind: str = "other"
    # As of `ShapeRole`; of costs inside functions that are not defined for negative ones, 0 or more.
    lower: float = -math.inf
    upper: float = math.inf
    starts: tuple[float, ...] = ()
    added: float | None = None
    # What a cost multiplies, one for each term; None where some of it is no monomial of features alone.
    monomials: tuple[Monomial, ...] | None = None


@dataclass(frozen=True)
class Roles:
    """The role of each parameter of the model `tree`, in order of appearance."""

    tree: Node
    # The model without its interplay of costs: overlaps replaced by sums; linear in the costs.
    additive: Node
    of: Mapping[str, ParameterRole]

    def kinds(self, *kinds: str) -> tuple[str, ...]:
        """Return the parameters of some kinds."""
        return tuple(name for name, role in self.of.items() if role.kind in kinds)

    @property
    def costs(self) -> tuple[str, ...]:
        """Costs and rates: all of them (of rates: their reciprocals) linear together in the additive model."""
        return self.kinds("cost", "rate")

    @property
    def linear(self) -> bool:
        """Whether the model itself is linear in all of its parameters."""
        return len(self.costs) == len(self.of) and self.additive == self.tree


def find_roles(tree: Node) -> Roles:
    """Return the role of each parameter of a model."""
    additive = _side_by_side(tree)
    terms = _expand(additive)
    shapes = {name: _shape(found) for name, found in _shape_parameters(tree).items()}
    positive = {
        name
        for node in walk(tree)
        if isinstance(node, Call) and FUNCTIONS[node.function].costs_at_least_zero
        for name in names(node)
    }
    roles: dict[str, ParameterRole] = {}
    # In order of appearance: of ``p_a * p_b * f`` the first becomes the cost.
    for name in (name for name in names(tree) if name.startswith("p_")):
        roles[name] = shapes.get(name, ParameterRole())
        linear = all(term.powers.get(name, 1.0) == 1.0 and name not in term.hidden for term in terms)
        present = [term for term in terms if name in term.powers]
        # Two factors of one term, each linear, are not linear together.
        alone = not any(
            role.kind == "cost" and other in term.powers for term in present for other, role in roles.items()
        )
        if linear and present and alone and name not in shapes:
            lower = 0.0 if name in positive else -math.inf
            roles[name] = ParameterRole("cost", lower, monomials=_multiplied(name, present))
    return Roles(tree, additive, roles)


def roles_with_costs_for_rates(tree: Node) -> Roles:
    """Return the roles in a model whose rates are replaced by their reciprocals.

    A parameter that features are divided by, as in ``f_vol_dram_load / p_dram``, is a rate: its reciprocal is a cost,
    in which the model without its interplay of costs is linear. The names stay: each rate stands for its reciprocal.
    """
    only_divisors: dict[str, bool] = {}
    for name, divides in _occurrences(tree, 1):
        only_divisors[name] = only_divisors.get(name, True) and divides
    candidates = {name for name, divides in only_divisors.items() if divides}
    # What is not linear as a factor either, such as a divisor beside another cost, keeps its meaning.
    rates = candidates.intersection(find_roles(_reciprocals(tree, candidates)).costs)
    roles = find_roles(_reciprocals(tree, rates))
    return replace(roles, of=dict(roles.of) | {name: replace(roles.of[name], kind="rate") for name in rates})


def _occurrences(node: Node, exponent: int) -> Iterator[tuple[str, bool]]:
    """Yield each parameter with whether it is a divisor there; `exponent` is that of the surrounding product."""
    match node:
        case Name() if node.is_parameter:
            yield node.identifier, exponent < 0
        case Product():
            for own, factor in node.factors:
                yield from _occurrences(factor, exponent * own)
        case _:
            for child in children(node):
                yield from _occurrences(child, 1)


def _reciprocals(node: Node, rates: set[str]) -> Node:
    """Return a tree with divisors of these names as factors."""
    changed = rebuilt(node, lambda child: _reciprocals(child, rates))
    if not isinstance(changed, Product):
        return changed
    inverted = [isinstance(factor, Name) and factor.identifier in rates for _, factor in changed.factors]
    factors = ((-e if turned else e, factor) for (e, factor), turned in zip(changed.factors, inverted, strict=True))
    return replace(changed, factors=tuple(factors))


def _shape_parameters(tree: Node) -> dict[str, list[ShapeRole]]:
    """Return the roles of each parameter that is an argument of its own where costs overlap."""
    found: dict[str, list[ShapeRole]] = {}
    for node in walk(tree):
        if isinstance(node, Call) and (roles := FUNCTIONS[node.function].shapes):
            for argument, role in zip(node.arguments[-len(roles) :], roles, strict=True):
                if isinstance(argument, Name) and argument.is_parameter:
                    found.setdefault(argument.identifier, []).append(role)
    return found


def _shape(found: list[ShapeRole]) -> ParameterRole:
    """Return the role of a parameter in several places, in each of which it has to mean something."""
    first = EDGE if EDGE in found else found[0]
    lower, upper = max(role.lower for role in found), min(role.upper for role in found)
    kind = first.name if (lower, upper) == (first.lower, first.upper) or first is EDGE else "shape"
    return ParameterRole(kind, lower, upper, first.starts, found[0].added)


def _side_by_side(node: Node) -> Node:
    """Return a node with overlaps as sums of costs, steps of costs dropped."""
    # A parameter that stands outside every tanh as well is a cost; one that stands only inside shapes the step.
    outside = _names_outside_tanh(node)

    def added(inner: Node) -> Node:
        match inner:
            case Sum() | Product():
                return rebuilt(inner, added)
            case Call() if shapes := FUNCTIONS[inner.function].shapes:
                costs = inner.arguments[: -len(shapes)]
                return Sum(inner.start, inner.end, tuple((1, added(cost)) for cost in costs))
            # Replaced by its middle, for the model would not be linear in the costs.
            case Call(function="tanh") if any(n.startswith("p_") and n in outside for n in names(inner)):
                return Number(inner.start, inner.end, 0.0)
            case _:
                return inner

    return added(node)


def _names_outside_tanh(node: Node) -> set[str]:
    if isinstance(node, Call) and node.function == "tanh":
        return set()
    if isinstance(node, Name):
        return {node.identifier}
    return set().union(*(_names_outside_tanh(child) for child in children(node)))


def _expand(node: Node) -> list[Monomial]:
    """Return the terms of a node after multiplying out; what is no monomial hides its names."""
    match node:
        case Number():
            return [Monomial(node.value)] if node.value else []
        case Name():
            return [Monomial(1.0, {node.identifier: 1.0})]
        case Sum():
            return [m.times(Monomial(float(sign))) for sign, term in node.terms for m in _expand(term)]
        case Product():
            terms = [Monomial(1.0)]
            for exponent, factor in node.factors:
                inner = _expand(factor) if exponent > 0 else _raised(factor, -1.0)
                if len(terms) * len(inner) > _MAX_TERMS:
                    break
                terms = [left.times(right) for left in terms for right in inner]
            else:
                return terms
        case Power(exponent=Number(value=exponent)):
            return _raised(node.base, exponent)
    return _opaque(node)


def _raised(base: Node, exponent: float) -> list[Monomial]:
    terms = _expand(base)
    coefficient = terms[0].coefficient if len(terms) == 1 and not terms[0].hidden else 0.0
    if coefficient == 1.0 or (coefficient and exponent == -1.0):
        return [Monomial(1.0 / coefficient, {name: power * exponent for name, power in terms[0].powers.items()})]
    return _opaque(base)


def _opaque(node: Node) -> list[Monomial]:
    return [Monomial(1.0, {}, frozenset(names(node)))]


def _multiplied(name: str, terms: list[Monomial]) -> tuple[Monomial, ...] | None:
    found: dict[tuple[tuple[str, float], ...], float] = {}
    for term in terms:
        rest = {other: exponent for other, exponent in term.powers.items() if other != name}
        if term.hidden or any(other.startswith("p_") for other in rest):
            return None
        key = tuple(sorted(rest.items()))
        found[key] = found.get(key, 0.0) + term.coefficient
    # Terms that cancel, as in ``p * f - p * f``, leave no unit or rate.
    return tuple(Monomial(coefficient, dict(key)) for key, coefficient in found.items() if coefficient) or None
