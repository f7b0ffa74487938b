"""Formulas as MathML, which browsers show without a script: pages need no network. docutils makes it from LaTeX."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from docutils.nodes import SkipNode
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.util import logging

if TYPE_CHECKING:
    from docutils.nodes import Element
    from sphinx.application import Sphinx

logger = logging.getLogger(__name__)


def setup(app: Sphinx) -> dict[str, bool]:
    """Offer the renderer ``mathml``, which ``html_math_renderer`` in conf.py chooses."""
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def inline(writer: Any, node: Element) -> None:
    """Write a formula within a line."""
    writer.body.append(written(node, as_block=False))
    raise SkipNode


def block(writer: Any, node: Element) -> None:
    """Write a formula on a line of its own, which scrolls where the page is narrow."""
    writer.body.append(f'<div class="math-block">{written(node, as_block=True)}</div>\n')
    raise SkipNode


def written(node: Element, *, as_block: bool) -> str:
    """Return a formula as MathML; one that docutils cannot read is a warning, which `make docs` makes an error."""
    try:
        return tex2mathml(node.astext(), as_block=as_block)
    except MathError as error:
        logger.warning("cannot show the formula %r: %s", node.astext(), error, location=node)
        return ""
