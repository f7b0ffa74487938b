"""Average trip counts, as users write them."""

from __future__ import annotations

import re
from fractions import Fraction

# Long enough for any double; 1e999999999 would be computed digit by digit.
_NUMBER = re.compile(r"[+-]?((\d{1,400}(\.\d{0,400})?|\.\d{1,400})([eE][+-]?\d{1,3})?|\d{1,400}/\d{1,400})")
# Beyond any trip count; their products still fit in doubles.
_MOST = 10**15


def read_fraction(text: str) -> Fraction | None:
    """Return the positive number that a text such as ``7.5`` or ``5/6`` stands for, exactly; None if it is none.

    Numbers above 10**15, and their reciprocals, count as none.
    """
    if not _NUMBER.fullmatch(text.strip()):
        return None
    try:
        # By way of the text: 0.1 is a tenth, not the binary number next to it.
        number = Fraction(text)
    except ZeroDivisionError:
        return None
    return number if Fraction(1, _MOST) <= number <= _MOST else None
