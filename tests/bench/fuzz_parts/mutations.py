"""What is done to a valid input: to its bytes, its lines, its tree, and to the texts and numbers in it."""

from __future__ import annotations

import copy
import json
import math
import re
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

NUMBERS = (
    0, 1, -1, 2, 3, 7, 16, 10**6, 2**31, 2**53 + 1, 2**63, 2**64, -(2**63), 10**30, 10**300, -(10**300), 0.0, -0.0, 0.5,
    1e-300, 5e-324, 1e16, 1e154, 1e300, 1.7e308, -1e308, math.nan, math.inf, -math.inf,
)  # fmt: skip
TEXTS = (
    "", " ", "x", "n", "0", "-1", "1e999", "nan", "inf", "1/0", "1/3", "\u00b5\u202e\u2028", "\ufeff", "\x00", "'", '"',
    "%s{0}", "a" * 300, "9" * 300, "9" * 5000, "(" * 400, "[" * 400, "__import__('os').system('touch PWNED')",
    "n.__class__", "$(touch PWNED)", "../../etc/passwd", "/dev/null", "~",
)  # fmt: skip
# As they would be written into a YAML file.
TOKENS = (
    "!!int ''", "!!bool x", "!!float ''", "!!int 0x", "!!null x", "!!timestamp x", "!!binary x", "!!str [a]",
    "!!python/object/apply:os.system ['touch PWNED']", "!!python/name:os.system", "&a [1]", "*a", "&a b", "? a", "<<",
    "<<: {a: 1}", "!!set {a}", "!!omap [a: 1]", "1:60:60:60", "0x" + "f" * 5000, "0b" + "1" * 3000, "0o7", "1_000",
    "9" * 300, "9" * 5000, "-" + "9" * 300, "1.0e+400", ".inf", "-.inf", ".nan", "~", "null", "yes", "on", "2026-01-01",
    "2026-99-99", "[" * 2000, "{a: " * 1500, "- " * 1500, "|", ">", "%YAML 1.1", "---", "...", "@", "`", "\t", "''",
    "1" + ":59" * 200 + ".5", "{? [1]: 2}", "{[1]: 2}", "{null: 1, ~: 2}",
)  # fmt: skip
# Of isl's notation, formulas, model strings and feature identifiers.
WORDS = (
    "+", "-", "*", "/", "**", "//", "%", "(", ")", "[", "]", "{", "}", ",", ":", ";", "->", "and", "or", "not", "mod",
    "floor(", "exists e : ", "n", "i", "gid0", "p_a", "f_op_float32_madd", "f_mem_access_tag:aLD", "0", "1", "-1",
    "1e308", "1e-308", "99999999999999999999999999", "9" * 300, "inf", "nan", "<", "<=", "=", "!=", "max(", "min(",
    "exp(", "log(", "sqrt(", "ceil_div(", "smooth_max(", "overlap(", "if", "else", "lambda: 0", "'", '"', "\\", "\n",
    "\u00e9", "(" * 300,
)  # fmt: skip

_PIECES = re.compile(r"\w+|\s+|[^\w\s]")


def mutated_text(text: str, random: random.Random) -> str:
    """Return a text with a few of its words replaced, doubled, exchanged or taken out."""
    pieces = _PIECES.findall(text)
    for _ in range(random.choice((1, 1, 2, 5))):
        at = random.randrange(len(pieces) + 1)
        match random.randrange(6):
            case 0:
                pieces.insert(at, random.choice(WORDS))
            case 1:
                del pieces[at : at + random.choice((1, 1, 3))]
            case 2:
                pieces[at : at + 1] = [random.choice(WORDS)]
            case 3:
                pieces[at:at] = pieces[at : at + 4]
            case 4 if len(pieces) > 1:
                other = random.randrange(len(pieces))
                at = min(at, len(pieces) - 1)
                pieces[at], pieces[other] = pieces[other], pieces[at]
            case _:
                pieces[at : at + 1] = [str(random.choice(NUMBERS))]
    return "".join(pieces)


def mutated_value(value: Any, random: random.Random) -> Any:  # noqa: PLR0911 - one per way
    """Return something else of the same type now and then, else of any."""
    if isinstance(value, str) and random.random() < 0.6:
        return mutated_text(value, random)
    if isinstance(value, (int, float)) and not isinstance(value, bool) and random.random() < 0.6:
        return random.choice(
            (-value, 10 * value, value * 1e6, value / 7, int(value) + 1 if math.isfinite(value) else 1)
        )
    kind = random.randrange(6)
    if kind <= 1:
        return random.choice(NUMBERS)
    if kind == 2:
        return random.choice(TEXTS)
    if kind == 3:
        return random.choice(([], {}, [[]], {"a": 1}, [None], None, True, False, [1, "x"], ["x"]))
    if kind == 4:
        return random.choice(([value], {"value": value}, [value] * 3, str(value)))
    return nested(random.choice((60, 400)))


def nested(depth: int) -> Any:
    """Return lists in lists."""
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def _places(tree: Any) -> list[tuple[Any, Any]]:
    """Return each container with each of its keys, from all depths."""
    found: list[tuple[Any, Any]] = []
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        for key in keys:
            found.append((node, key))
            if isinstance(node[key], (dict, list)):
                waiting.append(node[key])
    return found


def mutated_tree(tree: Any, random: random.Random) -> Any:
    """Return a copy of nested dicts and lists in which something was exchanged, renamed, taken out or put in."""
    try:
        return _mutated(copy.deepcopy(tree), random)
    # Lists nested a few hundred deep more than once.
    except RecursionError:
        return []


def _mutated(tree: Any, random: random.Random) -> Any:
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        places = _places(tree) if isinstance(tree, (dict, list)) else []
        if not places:
            return mutated_value(tree, random)
        node, key = random.choice(places)
        match random.randrange(8):
            case 0:
                del node[key]
            case 1 if isinstance(node, dict):
                node[random.choice((f"{key}x", *TEXTS[:12]))] = node.pop(key)
            case 1:
                node.insert(key, copy.deepcopy(node[key]))
            case 2:
                other, there = random.choice(places)
                if there in other if isinstance(other, dict) else there < len(other):
                    node[key] = copy.deepcopy(other[there])
            case 3 if isinstance(node[key], (list, dict)):
                node[key] = type(node[key])()
            case _:
                node[key] = mutated_value(node[key], random)
    return tree


def _lines(text: str, random: random.Random) -> str:
    lines = text.split("\n")
    at = random.randrange(len(lines))
    match random.randrange(8):
        case 0:
            lines.insert(at, lines[at])
        case 1:
            del lines[at]
        case 2:
            other = random.randrange(len(lines))
            lines[at], lines[other] = lines[other], lines[at]
        case 3:
            lines[at] = random.choice(("  ", "\t", "- ", "? ")) + lines[at]
        case _:
            # Another token for a value, wherever one stands in the line.
            values = list(re.finditer(r"(?<=[:,\[{-] )[^,\[\]{}:]+", lines[at]))
            if values:
                value = random.choice(values)
                token = random.choice(TOKENS)
                lines[at] = lines[at][: value.start()] + token + lines[at][value.end() :]
            else:
                lines[at] += f" {random.choice(TOKENS)}"
    return "\n".join(lines)


def _bytes(content: bytes, random: random.Random) -> bytes:
    data = bytearray(content)
    match random.randrange(9):
        case 0:
            return b""
        case 1 | 2:
            return bytes(data[: random.randrange(len(data) + 1)])
        case 3:
            return content.decode().encode(
                random.choice(("utf-16", "utf-16-be", "utf-32", "utf-7", "utf-8-sig", "cp037"))
            )
        case 4:
            start, length = random.randrange(len(data) + 1), random.randrange(1, 200)
            data[start : start + length] = random.randbytes(length)
        case 5:
            start, end = sorted(random.randrange(len(data) + 1) for _ in range(2))
            data[start:start] = data[start:end]
        case 6:
            return random.choice((b"[", b"{a: ", b"- ", b'{"a":', b"(")) * random.choice((50, 900, 30_000))
        case _:
            for _ in range(random.choice((1, 1, 3, 20))):
                if data:
                    data[random.randrange(len(data))] = random.choice(
                        (0, 9, 10, 32, 45, 48, 57, 123, 125, 255, 128, 194)
                    )
    return bytes(data)


def mutated_document(content: bytes, random: random.Random, parsed: Callable[[], Any], form: str) -> bytes:
    """Return a document with something wrong in its bytes, its lines or, mostly, its parsed tree.

    Its form is ``"yaml"``, ``"json"`` or ``"csv"``, which has no tree: its words are mutated instead.
    """
    way = random.random()
    if way < 0.12:
        return _bytes(content, random)
    if way < 0.35:
        text = content.decode()
        for _ in range(random.choice((1, 1, 3))):
            text = _lines(text, random)
        return text.encode("utf-8", "surrogatepass")
    if form == "csv":
        rows = [line.split(",") for line in content.decode().splitlines()]
        return "\n".join(
            ",".join(map(str, row)) for row in mutated_tree(rows, random) if isinstance(row, list)
        ).encode()
    tree = mutated_tree(parsed(), random)
    try:
        text = json.dumps(tree) if form == "json" else _dumped(tree)
    except (RecursionError, ValueError, yaml.YAMLError):
        text = str(content)
    return text.encode("utf-8", "surrogatepass")


def _dumped(tree: Any) -> str:
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    return yaml.dump(tree, Dumper=dumper, sort_keys=False, allow_unicode=True)
