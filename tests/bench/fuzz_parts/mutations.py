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
# Of isl's notation, formulas, model strings, feature identifiers and command lines.
WORDS = (
    "+", "-", "*", "/", "**", "//", "%", "(", ")", "[", "]", "{", "}", ",", ":", ";", "->", "and", "or", "not", "mod",
    "floor(", "exists e : ", "n", "i", "gid0", "p_a", "f_op_float32_madd", "f_mem_access_tag:aLD", "0", "1", "-1",
    "1e308", "1e-308", "99999999999999999999999999", "9" * 300, "inf", "nan", "<", "<=", "=", "!=", "max(", "min(",
    "exp(", "log(", "sqrt(", "ceil_div(", "smooth_max(", "overlap(", "if", "else", "lambda: 0", "'", '"', "\\", "\n",
    "\u00e9", "(" * 300, "--json", "--help", "--", "n=",
)  # fmt: skip
VALUES = ([], {}, [[]], {"a": 1}, [None], None, True, False, [1, "x"], ["x"])
_PIECES = re.compile(r"\w+|\s+|[^\w\s]")
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def mutated(content: bytes, form: str, random: random.Random) -> bytes:
    """Return an input with something wrong; its form is ``yaml``, ``json``, ``csv``, ``text`` or ``bytes``."""
    if form == "text":
        return mutated_text(content.decode(), random).encode("utf-8", "surrogatepass")
    way = 0.0 if form == "bytes" else random.random()
    if way < 0.12:
        return _bytes(content, random)
    if way < 0.35:
        text = content.decode()
        for _ in range(random.choice((1, 1, 3))):
            text = _lines(text, random)
        return text.encode("utf-8", "surrogatepass")
    if form == "csv":
        rows = mutated_tree([line.split(",") for line in content.decode().splitlines()], random)
        return "\n".join(",".join(map(str, row)) for row in rows if isinstance(row, list)).encode()
    tree = mutated_tree(yaml.load(content, Loader=_LOADER), random)  # noqa: S506 - the safe one
    try:
        text = json.dumps(tree) if form == "json" else yaml.dump(tree, Dumper=_DUMPER, sort_keys=False)
    except (RecursionError, ValueError, yaml.YAMLError):
        text = str(content)
    return text.encode("utf-8", "surrogatepass")


def mutated_text(text: str, random: random.Random) -> str:
    """Return a text with a few of its words replaced, doubled, exchanged or taken out."""
    pieces = _PIECES.findall(text)
    for _ in range(random.choice((1, 1, 2, 5))):
        at, other = (random.randrange(len(pieces) + 1) for _ in range(2))
        word = str(random.choice((*WORDS, *NUMBERS)))
        pieces[at : at + 1] = random.choice((
            [word], [*pieces[at : at + 1], word], [], [*pieces[at : at + 4], *pieces[at : at + 1]],
            pieces[other : other + 1], [random.choice(TEXTS)],
        ))  # fmt: skip
    return "".join(pieces)


def mutated_value(value: Any, random: random.Random) -> Any:
    """Return something else, of the same type more often than of another."""
    if isinstance(value, str) and random.random() < 0.6:
        return mutated_text(value, random)
    if isinstance(value, (int, float)) and not isinstance(value, bool) and random.random() < 0.6:
        return random.choice((-value, 10 * value, value * 1e6, value / 7, value + 1))
    nested: Any = 1
    for _ in range(random.choice((60, 400))):
        nested = [nested]
    around = ([value], {"value": value}, [value] * 3, str(value), nested)
    return random.choice(random.choice((NUMBERS, NUMBERS, TEXTS, VALUES, around)))


def mutated_tree(tree: Any, random: random.Random) -> Any:
    """Return a copy of nested dicts and lists in which something was exchanged, renamed, taken out or put in."""
    try:
        tree = copy.deepcopy(tree)
        for _ in range(random.choice((1, 1, 1, 2, 4))):
            places = _places(tree)
            if not places:
                return mutated_value(tree, random)
            _mutate(*random.choice(places), places, random)
    # Lists nested a few hundred deep more than once.
    except RecursionError:
        return []
    return tree


def _places(tree: Any) -> list[tuple[Any, Any]]:
    """Return each container with each of its keys, from all depths."""
    found: list[tuple[Any, Any]] = []
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        keys = list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
        found += [(node, key) for key in keys]
        waiting += [node[key] for key in keys]
    return found


def _mutate(node: Any, key: Any, places: list[tuple[Any, Any]], random: random.Random) -> None:
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


def _lines(text: str, random: random.Random) -> str:
    lines = text.split("\n")
    at, other = random.randrange(len(lines)), random.randrange(len(lines))
    match random.randrange(8):
        case 0:
            lines.insert(at, lines[at])
        case 1:
            del lines[at]
        case 2:
            lines[at], lines[other] = lines[other], lines[at]
        case 3:
            lines[at] = random.choice(("  ", "\t", "- ", "? ")) + lines[at]
        case _:
            # Another token for a value, wherever one stands in the line.
            values = list(re.finditer(r"(?<=[:,\[{-] )[^,\[\]{}:]+", lines[at]))
            start, end = random.choice(values).span() if values else (len(lines[at]), len(lines[at]))
            lines[at] = f"{lines[at][:start]}{random.choice(TOKENS)}{lines[at][end:]}"
    return "\n".join(lines)


def _bytes(content: bytes, random: random.Random) -> bytes:
    start, end = sorted(random.randrange(len(content) + 1) for _ in range(2))
    match random.randrange(7):
        case 0:
            return content[:start]
        case 1:
            encoding = random.choice(("utf-16", "utf-16-be", "utf-32", "utf-7", "utf-8-sig", "cp037"))
            return content.decode("latin-1").encode(encoding, "replace")
        case 2:
            length = random.randrange(1, 200)
            return content[:start] + random.randbytes(length) + content[start + length :]
        case 3:
            return content[:start] + content[start:end] + content[start:]
        case 4:
            return random.choice((b"[", b"{a: ", b"- ", b'{"a":', b"(")) * random.choice((50, 900, 30_000))
        case _:
            data = bytearray(content)
            for _ in range(random.choice((1, 1, 3, 20))):
                data[random.randrange(len(data))] = random.choice((0, 9, 10, 32, 45, 48, 57, 123, 125, 255, 128, 194))
            return bytes(data)
