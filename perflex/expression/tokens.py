"""Model strings cut into tokens, each with its position."""

from __future__ import annotations

import re
from dataclasses import dataclass

from perflex.errors import ModelSyntaxError

# Far beyond any model; they keep hostile files from stalling the reader.
_MAX_LENGTH = 100_000
_MAX_DIGITS = 40
# Characters of the string that an error shows on either side of the place.
_SHOWN = 60

# ASCII ranges are written out: \d, \w and \s match characters of other scripts as well.
_SPACE = re.compile(r"[ \t\r\n]+")
# No sign: it is an operator, else ``1-2`` would be two numbers with nothing between them.
_NUMBER = re.compile(r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_WORD = re.compile(r"[A-Za-z0-9_]+")
# ``**`` first: a regular expression takes the first alternative that fits.
_OPERATOR = re.compile(r"\*\*|[-+*/(),]")
_STRIDES = re.compile(r"\{[A-Za-z0-9_:;<>=.*+-]*\}")
_AFR = re.compile(r"[<>]?=?(?:[0-9]+(?:\.[0-9]+)?|[A-Za-z][A-Za-z0-9_]*)")
# The fields ``key:value`` of feature identifiers: what their values match, and how they are written.
_FIELDS = {
    "array": (_WORD, "letters, digits and _"),
    "tag": (_WORD, "letters, digits and _"),
    "lstrides": (_STRIDES, "{axis:stride;...} without blanks, e.g. {0:1;1:>15}"),
    "gstrides": (_STRIDES, "{axis:stride;...} without blanks, e.g. {0:16}"),
    "afr": (_AFR, "a comparison and a number or size parameter, e.g. >1"),
    "after": (re.compile(r"[0-9]+"), "a number of operations, e.g. 48"),
    "call": (_WORD, "a function's name: letters, digits and _"),
}
_FIELD_KEY = re.compile(f"_({'|'.join(_FIELDS)})$")


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of a model string.

    Attributes
    ----------
    kind
        ``"number"``, ``"name"``, an operator or parenthesis itself, or ``"end"``.
    """

    kind: str
    text: str
    start: int
    end: int


def syntax_error(text: str, position: int, cause: str) -> ModelSyntaxError:
    """Return the error for a place in a model string: cause and fix, the string, a caret below the place."""
    first = max(0, position - _SHOWN)
    last = min(len(text), position + _SHOWN)
    shown, caret = "", 0
    for index in range(first, last):
        if index == position:
            caret = len(shown)
        character = text[index]
        # Unprintable or non-ASCII ones could shift the column of the caret, or act on the terminal.
        shown += character if character.isascii() and character.isprintable() else _escaped(character)
    if position >= last:
        caret = len(shown)
    before, after = ("..." if first else ""), ("..." if last < len(text) else "")
    message = (
        f"cannot read the model string at character {position + 1}: {cause}\n"
        f"  {before}{shown}{after}\n  {' ' * (len(before) + caret)}^"
    )
    return ModelSyntaxError(message, text=text, position=position, cause=cause)


def _escaped(character: str) -> str:
    return " " if character in "\t\r\n" else ascii(character)[1:-1]


def require_text(text: object) -> str:
    """Return a model string as it is, or raise a `ModelSyntaxError` if it is none."""
    if not isinstance(text, str):
        msg = f"a model string must be a str, not {type(text).__name__}"
        raise ModelSyntaxError(msg, text=text)
    return text


def tokenize(text: str) -> list[Token]:
    """Cut a model string into tokens, the last one of kind ``"end"``.

    Raises
    ------
    ModelSyntaxError
        A character belongs to no token, or the string is too long.
    """
    text = require_text(text)
    if len(text) > _MAX_LENGTH:
        msg = f"a model string of {len(text)} characters is too long; the maximum is {_MAX_LENGTH}"
        raise ModelSyntaxError(msg, text=text)
    tokens = []
    position = 0
    while position < len(text):
        if space := _SPACE.match(text, position):
            position = space.end()
            continue
        token = _next_token(text, position)
        tokens.append(token)
        position = token.end
    tokens.append(Token("end", "", len(text), len(text)))
    return tokens


def _next_token(text: str, position: int) -> Token:
    if number := _NUMBER.match(text, position):
        end = number.end()
        if end - position > _MAX_DIGITS:
            raise syntax_error(text, position, f"a number has at most {_MAX_DIGITS} characters")
        if after := _WORD.match(text, end):
            cause = f"{after.group()!r} follows a number; put an operator such as * between them"
            raise syntax_error(text, end, cause)
        return Token("number", number.group(), position, end)
    if operator := _OPERATOR.match(text, position):
        return Token(operator.group(), operator.group(), position, operator.end())
    if word := _WORD.match(text, position):
        end = word.end()
        if word.group().startswith("f_"):
            end = _feature_end(text, position, end)
        return Token("name", text[position:end], position, end)
    raise syntax_error(text, position, _stray(text[position]))


def _feature_end(text: str, start: int, end: int) -> int:
    """Return where the feature identifier that begins at `start` ends, its ``key:value`` fields included."""
    while text[end : end + 1] == ":":
        # With an end position, ``$`` matches there instead of at the end of the string.
        key = _FIELD_KEY.search(text, start, end)
        if key is None:
            break
        pattern, form = _FIELDS[key.group(1)]
        value = pattern.match(text, end + 1)
        if value is None:
            cause = f"{key.group(1)}: must be followed by {form}"
            raise syntax_error(text, end + 1, cause)
        end = value.end()
        if word := _WORD.match(text, end):
            end = word.end()
    return end


def _stray(character: str) -> str:
    if character == "^":
        return "'^' is not an operator; write ** for a power"
    if character in "'\"":
        return "quotes are not allowed in a model string; write names without them"
    if character in ":{};<>=":
        return (
            f"{character!r} is allowed only in a feature's array:, tag:, lstrides:, gstrides:, afr:, after: or call: "
            "field; check the spelling of the feature"
        )
    if not character.isascii():
        return f"{character!a} is not an ASCII character; replace it"
    return f"{character!r} is not allowed; use numbers, f_ and p_ names, + - * / **, parentheses and functions"
