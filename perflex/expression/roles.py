"""What each parameter of a model is: a cost per feature, or something that shapes the model."""

from __future__ import annotations

from dataclasses import dataclass, field

from perflex.expression.tree import Call, Name, Node, Number, Power, Product, Sum, children, names, walk

# Products of sums multiply out to exponentially many terms; beyond these a product counts as no monomial.
_MAX_TERMS = 10_000


@dataclass(frozen=True)
class Monomial:
    """A product of powers of features and parameters with a coefficient.

    Attributes
    ----------
    powers
        Exponent of each feature and parameter.
    hidden
        Names inside factors that are no powers (functions, powers of sums).
    """

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
    """The role of each parameter.

    Attributes
    ----------
    relaxed
        The model without its interplay of costs: overlaps replaced by sums; linear in the costs.
    costs
        Parameters that multiply features in `relaxed`, all of them linear together.
    edges
        Parameters that are the edge of an `overlap`: unit 1/[output].
    shapes
        Dimensionless parameters of `partial_overlap` and `smooth_max`, with the values to start them from.
    monomials
        For each cost, what it multiplies: coefficient and exponents of features, one entry per term. None
        where some of it is no monomial of features alone.
    """

    relaxed: Node
    costs: tuple[str, ...]
    edges: tuple[str, ...]
    shapes: dict[str, tuple[float, ...]]
    monomials: dict[str, tuple[Monomial, ...] | None]


def find_roles(tree: Node) -> Roles:
    """Return the role of each parameter of a model."""
    edges, shapes = _shape_parameters(tree)
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
    monomials = {name: _multiplied(name, terms) for name in costs}
    return Roles(relaxed, tuple(costs), edges, shapes, monomials)


def _shape_parameters(tree: Node) -> tuple[tuple[str, ...], dict[str, tuple[float, ...]]]:
    # A dict serves as a set that keeps the order of the string.
    edges: dict[str, None] = {}
    shapes: dict[str, tuple[float, ...]] = {}
    for node in walk(tree):
        match node:
            # Starting values lie within the useful ranges in the functions' docstrings, the middle one first.
            case Call(function="overlap", arguments=(_, _, Name(identifier=edge))) if edge.startswith("p_"):
                edges[edge] = None
            case Call(function="partial_overlap", arguments=(_, _, edge_node, hidden_node)):
                for argument, values in ((edge_node, (5.0, 1.5, 20.0)), (hidden_node, (0.8, 0.3, 0.97))):
                    if isinstance(argument, Name) and argument.is_parameter:
                        shapes[argument.identifier] = values
            case Call(function="smooth_max", arguments=(*_, Name(identifier=sharp))) if sharp.startswith("p_"):
                shapes[sharp] = (3.0, 0.5, 15.0)
            case _:
                pass
    return tuple(edges), shapes


def _relax(node: Node) -> Node:
    """Return a node with costs side by side: overlaps as sums, steps of costs dropped."""
    # A parameter that stands outside every tanh as well is a cost; one that stands only inside shapes the step.
    outside = _names_outside_tanh(node)

    def relax(inner: Node) -> Node:
        match inner:
            case Sum():
                return Sum(inner.start, inner.end, tuple((sign, relax(term)) for sign, term in inner.terms))
            case Product():
                return Product(inner.start, inner.end, tuple((e, relax(factor)) for e, factor in inner.factors))
            case Call(function="overlap" | "partial_overlap", arguments=(first, second, *_)):
                return Sum(inner.start, inner.end, ((1, relax(first)), (1, relax(second))))
            case Call(function="smooth_max", arguments=(*costs, _)):
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
