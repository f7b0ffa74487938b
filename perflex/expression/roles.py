"""What each parameter of a model is: a cost per feature, or something that shapes the model."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from perflex.expression.functions import EDGE, FUNCTIONS
from perflex.expression.tree import Call, Name, Node, Number, Power, Product, Sum, children, names, rebuilt, walk

if TYPE_CHECKING:
    from collections.abc import Iterator

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
class Roles:
    """The role of each parameter of the model `tree`."""

    # The model without its interplay of costs: overlaps replaced by sums; linear in the costs.
    relaxed: Node
    # Parameters that multiply features there, all of them linear together.
    costs: tuple[str, ...]
    # The edges of an `overlap` (unit 1/[output]); dimensionless parameters with values to start from.
    edges: tuple[str, ...]
    shapes: dict[str, tuple[float, ...]]
    # What each cost multiplies, an entry per term; None where some of it is no monomial of features alone.
    monomials: dict[str, tuple[Monomial, ...] | None]
    # Range of each of `edges` and `shapes`, and the values at which costs are added, as `ShapeRole` has them.
    bounds: dict[str, tuple[float, float]] = field(default_factory=dict)
    added: dict[str, float] = field(default_factory=dict)
    # Costs inside functions that are not defined for negative ones.
    never_negative: frozenset[str] = frozenset()
    tree: Node = field(default_factory=lambda: Number(0, 0, 0.0))
    # Parameters that stand for reciprocals, see `roles_with_costs_for_rates`.
    rates: tuple[str, ...] = ()


def find_roles(tree: Node) -> Roles:
    """Return the role of each parameter of a model."""
    roles = _shape_parameters(tree)
    edges = tuple(name for name, found in roles.items() if any(role is EDGE for role in found))
    shapes = {name: found[0].starts for name, found in roles.items() if name not in edges}
    relaxed = _relax(tree)
    terms = _expand(relaxed)
    # In order of appearance: of ``p_a * p_b * f`` the first becomes the cost.
    candidates = [name for name in names(tree) if name.startswith("p_")]
    costs: list[str] = []
    for name in candidates:
        linear = all(term.powers.get(name, 1.0) == 1.0 and name not in term.hidden for term in terms)
        present = any(name in term.powers for term in terms)
        # Two factors of one term, each linear, are not linear together.
        alone = not any(name in term.powers and other in term.powers for term in terms for other in costs)
        if linear and present and alone and name not in edges and name not in shapes:
            costs.append(name)
    return Roles(
        relaxed,
        tuple(costs),
        edges,
        shapes,
        {name: _multiplied(name, terms) for name in costs},
        # A parameter in several places has to mean something in each.
        {name: (max(role.lower for role in found), min(role.upper for role in found)) for name, found in roles.items()},
        {name: found[0].added for name, found in roles.items() if found[0].added is not None},
        frozenset(_inside_of_costs_at_least_zero(tree)) & frozenset(costs),
        tree,
    )


def roles_with_costs_for_rates(tree: Node) -> Roles:
    """Return the roles in a model whose rates are replaced by their reciprocals.

    A parameter that features are divided by, as in ``f_vol_dram_load / p_dram``, is a rate: its reciprocal is a cost,
    in which the model without its interplay of costs is linear. The names stay: each of `rates` stands for its
    reciprocal.
    """
    only_divisors: dict[str, bool] = {}
    for name, divides in _occurrences(tree, 1):
        only_divisors[name] = only_divisors.get(name, True) and divides
    candidates = {name for name, divides in only_divisors.items() if divides}
    # What is not linear as a factor either, such as a divisor beside another cost, keeps its meaning.
    rates = tuple(name for name in find_roles(_reciprocals(tree, candidates)).costs if name in candidates)
    return replace(find_roles(_reciprocals(tree, set(rates))), rates=rates)


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

    def sign(exponent: int, factor: Node) -> int:
        return -exponent if isinstance(factor, Name) and factor.identifier in rates else exponent

    return replace(changed, factors=tuple((sign(exponent, factor), factor) for exponent, factor in changed.factors))


def _shape_parameters(tree: Node) -> dict[str, list[ShapeRole]]:
    """Return the roles of each parameter that is an argument of its own where costs overlap."""
    found: dict[str, list[ShapeRole]] = {}
    for node in walk(tree):
        if isinstance(node, Call) and (roles := FUNCTIONS[node.function].shapes):
            for argument, role in zip(node.arguments[-len(roles) :], roles, strict=True):
                if isinstance(argument, Name) and argument.is_parameter:
                    found.setdefault(argument.identifier, []).append(role)
    return found


def _inside_of_costs_at_least_zero(tree: Node) -> Iterator[str]:
    for node in walk(tree):
        if isinstance(node, Call) and FUNCTIONS[node.function].costs_at_least_zero:
            yield from names(node)


def _relax(node: Node) -> Node:
    """Return a node with costs side by side: overlaps as sums, steps of costs dropped."""
    # A parameter that stands outside every tanh as well is a cost; one that stands only inside shapes the step.
    outside = _names_outside_tanh(node)

    def relax(inner: Node) -> Node:
        match inner:
            case Sum() | Product():
                return rebuilt(inner, relax)
            case Call() if shapes := FUNCTIONS[inner.function].shapes:
                costs = inner.arguments[: -len(shapes)]
                return Sum(inner.start, inner.end, tuple((1, relax(cost)) for cost in costs))
            # Replaced by its middle, for the model would not be linear in the costs.
            case Call(function="tanh") if any(n.startswith("p_") and n in outside for n in names(inner)):
                return Number(inner.start, inner.end, 0.0)
            case _:
                return inner

    return relax(node)


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
            terms = [Monomial(node.value)] if node.value else []
        case Name():
            terms = [Monomial(1.0, {node.identifier: 1.0})]
        case Sum():
            terms = [m.times(Monomial(float(sign))) for sign, term in node.terms for m in _expand(term)]
        case Product():
            terms = _expand_product(node)
        case Power():
            terms = _expand_power(node)
        case _:
            terms = [_opaque(node)]
    return terms


def _expand_power(node: Power) -> list[Monomial]:
    inner = _expand(node.base)
    simple = len(inner) == 1 and not inner[0].hidden and inner[0].coefficient == 1.0
    if not (simple and isinstance(node.exponent, Number)):
        return [_opaque(node)]
    exponent = node.exponent.value
    return [Monomial(1.0, {name: power * exponent for name, power in inner[0].powers.items()})]


def _expand_product(node: Product) -> list[Monomial]:
    terms = [Monomial(1.0)]
    for exponent, factor in node.factors:
        inner = _expand(factor)
        if exponent < 0:
            inner = [_reciprocal(inner[0], factor)] if len(inner) == 1 else [_opaque(factor)]
        if len(terms) * len(inner) > _MAX_TERMS:
            return [_opaque(node)]
        terms = [left.times(right) for left in terms for right in inner]
    return terms


def _reciprocal(term: Monomial, factor: Node) -> Monomial:
    if term.hidden or not term.coefficient:
        return _opaque(factor)
    return Monomial(1.0 / term.coefficient, {name: -exponent for name, exponent in term.powers.items()})


def _opaque(node: Node) -> Monomial:
    return Monomial(1.0, {}, frozenset(names(node)))


def _multiplied(name: str, terms: list[Monomial]) -> tuple[Monomial, ...] | None:
    found: dict[tuple[tuple[str, float], ...], float] = {}
    for term in terms:
        if name not in term.powers:
            continue
        rest = {other: exponent for other, exponent in term.powers.items() if other != name}
        if term.hidden or any(other.startswith("p_") for other in rest):
            return None
        key = tuple(sorted(rest.items()))
        found[key] = found.get(key, 0.0) + term.coefficient
    # Terms that cancel, as in ``p * f - p * f``, leave no unit or rate.
    return tuple(Monomial(coefficient, dict(key)) for key, coefficient in found.items() if coefficient) or None
