"""A model as a formula in LaTeX, and as HTML for notebooks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perflex.expression.tree import Sum
from perflex.html import bullets, element, notebook

if TYPE_CHECKING:
    from perflex.expression.model import Model


def model_latex(model: Model) -> str:
    """Return the model as a formula in LaTeX, without the signs around it; a sum has a line for each term.

    Terms stand in the order of the expression. Functions such as ``overlap`` are written out, as in `Model.symbolic`.
    """
    import sympy

    from perflex.expression.symbolic import to_sympy

    names = [*model.params(), *model.input_features()]
    symbols = {name: sympy.Symbol(name) for name in names}
    written = {symbols[name]: _name(name) for name in names}

    def term(node: Any) -> str:
        return str(sympy.latex(to_sympy(node, symbols), symbol_names=written))

    tree = model.tree
    if not isinstance(tree, Sum):
        return f"{_name(model.output_feature)} = {term(tree)}"
    # A term that is a sum itself, behind a minus, must keep its brackets.
    parts = [
        (r"-\left(" + text + r"\right)") if sign < 0 and isinstance(node, Sum) else ("-" if sign < 0 else "+") + text
        for sign, node in tree.terms
        for text in [term(node)]
    ]
    lines = [parts[0].removeprefix("+"), *(rf"\quad {part}" for part in parts[1:])]
    return rf"\begin{{aligned}}{_name(model.output_feature)} = {{}}&" + r" \\ &".join(lines) + r"\end{aligned}"


def _name(identifier: str) -> str:
    """Return an identifier as a symbol: its kind, ``p`` or ``f``, with the rest below it."""
    kind, _, rest = identifier.partition("_")
    marks = {"_": r"\_", "{": r"\{", "}": r"\}", "#": r"\#", "%": r"\%", "&": r"\&", "$": r"\$"}
    return rf"{kind}_{{\mathtt{{{''.join(marks.get(letter, letter) for letter in rest)}}}}}"


def model_latex_shown(model: Model) -> str:
    """Return the formula with the signs around it, for a notebook."""
    return f"$\\displaystyle {model_latex(model)}$"


def model_html(model: Model) -> str:
    """Return the model for a notebook, which typesets the formula: formula, parameters, features."""
    return notebook(
        element("p", model_latex_shown(model)),
        element("p", element("strong", "Parameters: "), ", ".join(model.params()) or "none"),
        element("p", element("strong", "Features:")),
        bullets(element("code", name) for name in model.input_features()),
    )
