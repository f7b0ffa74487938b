"""What is done to a valid input: to its bytes, to the words of its text, and to its tree."""

from __future__ import annotations

import copy
import json
import re
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    import random

NUMBERS = (
    0, 1, -1, 2, 3, 7, 16, 10**6, 2**31, 2**53 + 1, 2**63, 2**64, -(2**63), 10**30, 10**300, -(10**300), 0.0, -0.0, 0.5,
    1e-300, 5e-324, 1e16, 1e154, 1e300, 1.7e308, -1e308, float("nan"), float("inf"), float("-inf"),
)  # fmt: skip
# Odd texts; words of isl's notation, formulas, model strings, feature identifiers and command lines; tokens of YAML.
WORDS = (
    "", " ", "x", "n", "0", "-1", "1e999", "nan", "inf", "1/0", "1/3", "\u00b5\u202e\u2028", "\ufeff", "\x00", "'", '"',
    "%s{0}", "a" * 300, "9" * 300, "9" * 5000, "(" * 400, "[" * 400, "__import__('os').system('touch PWNED')",
    "n.__class__", "$(touch PWNED)", "../../etc/passwd", "/dev/null", "~",
    "+", "-", "*", "/", "**", "//", "%", "(", ")", "[", "]", "{", "}", ",", ":", ";", "->", "and", "or", "not", "mod",
    "floor(", "exists e : ", "i", "gid0", "p_a", "f_op_float32_madd", "f_mem_access_tag:aLD", "1e308", "1e-308",
    "<", "<=", "=", "!=", "max(", "min(", "exp(", "log(", "sqrt(", "ceil_div(", "smooth_max(", "overlap(", "if", "else",
    "lambda: 0", "\\", "\n", "\u00e9", "--json", "--help", "--", "n=",
    "!!int ''", "!!bool x", "!!float ''", "!!int 0x", "!!null x", "!!timestamp x", "!!binary x", "!!str [a]",
    "!!python/object/apply:os.system ['touch PWNED']", "!!python/name:os.system", "&a [1]", "*a", "&a b", "? a", "<<",
    "<<: {a: 1}", "!!set {a}", "!!omap [a: 1]", "1:60:60:60", "0x" + "f" * 5000, "0b" + "1" * 3000, "0o7", "1_000",
    "1.0e+400", ".inf", "-.inf", ".nan", "null", "yes", "on", "2026-01-01", "2026-99-99", "[" * 2000, "{a: " * 1500,
    "- " * 1500, "|", ">", "%YAML 1.1", "---", "...", "@", "`", "\t", "''", "1" + ":59" * 200 + ".5", "{? [1]: 2}",
    "{[1]: 2}", "{null: 1, ~: 2}",
)  # fmt: skip
VALUES = ([], {}, [[]], {"a": 1}, [None], None, True, False, [1, "x"], ["x"])
_PIECES = re.compile(r"\w+|\s+|[^\w\s]")
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def mutated(content: bytes, form: str, random: random.Random) -> bytes:
    """Return an input with something wrong; its form is ``yaml``, ``json``, ``csv``, ``text`` or ``bytes``.

    Or it is ``jsonl``, with a document in each line, or ``code``, a text whose lines and numbers say much.
    """
    if form == "jsonl":
        lines = content.splitlines()
        place = random.randrange(len(lines))
        lines[place] = mutated(lines[place], "json", random)
        return b"\n".join(lines)
    if form == "code" and random.random() < 0.7:
        return mutated_code(content.decode(), random).encode()
    way = {"text": 0.2, "code": random.choice((0.0, 0.2, 0.2)), "bytes": 0.0}.get(form, random.random())
    if way < 0.12:
        return _bytes(content, random)
    if way < 0.35:
        return mutated_text(content.decode(), random).encode("utf-8", "surrogatepass")
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
        word, here = str(random.choice(random.choice((WORDS, NUMBERS)))), pieces[at : at + 1]
        pieces[at : at + 1] = random.choice(
            ([word], [word], [*here, word], [], [*pieces[at : at + 4], *here], pieces[other : other + 1])
        )
    return "".join(pieces)


def mutated_code(text: str, random: random.Random) -> str:
    """Return a text with lines doubled, exchanged or taken out, or other numbers and names in one of them."""
    lines = text.splitlines(keepends=True)
    for _ in range(random.choice((1, 1, 2, 4))):
        at, other = (random.randrange(len(lines)) for _ in range(2))
        words = _PIECES.findall(lines[at])
        numbers = [place for place, word in enumerate(words) if re.search(r"\d", word)]
        way = random.random()
        if way < 0.3:
            lines[at : at + 1] = random.choice(([], [lines[at]] * 2, [lines[other], lines[at]], [lines[other]]))
        elif numbers and way < 0.9:
            place = random.choice(numbers)
            words[place] = re.sub(r"\d+", lambda found: _other(found.group(), random), words[place], count=1)
            lines[at] = "".join(words)
        else:
            known = _PIECES.findall(lines[other])
            words[random.randrange(len(words))] = random.choice(known)
            lines[at] = "".join(words)
        lines = lines or [""]
    return "".join(lines)


def _other(digits: str, random: random.Random) -> str:
    number = int(digits)
    many = (number + 1, number - 1, 2 * number, 16 * number, 1000 * number, 10**6 * number, -number, 0, 1, 3, 2**31)
    return str(random.choice((*many, 2**31 - 1, 2**63, 10**19, 0.5, "nan", "x")))


def mutated_tree(tree: Any, random: random.Random) -> Any:
    """Return a copy of nested dicts and lists in which something was exchanged, renamed, taken out or put in."""
    root = [copy.deepcopy(tree)]
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        places = _places(root)
        node, key = random.choice(places[1:] or places)
        other, there = random.choice(places)
        match random.randrange(6):
            case 0 if node is not root:
                del node[key]
            case 1 if isinstance(node, dict):
                node[random.choice((f"{key}x", *WORDS[:12]))] = node.pop(key)
            case 2:
                node[key] = copy.deepcopy(other[there])
            case _:
                node[key] = mutated_value(node[key], random)
    return root[0]


def _places(tree: Any) -> list[tuple[Any, Any]]:
    """Return each container with each of its keys, from all depths but the deepest."""
    found: list[tuple[Any, Any]] = []
    waiting = [(tree, 0)]
    while waiting:
        node, depth = waiting.pop()
        keys = list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
        found += [(node, key) for key in keys]
        waiting += [(node[key], depth + 1) for key in keys if depth < 50]
    return found


def mutated_value(value: Any, random: random.Random) -> Any:
    """Return something else, of the same type more often than of another."""
    if isinstance(value, str) and random.random() < 0.6:
        return mutated_text(value, random)
    if isinstance(value, (int, float)) and not isinstance(value, bool) and random.random() < 0.6:
        return random.choice((-value, 10 * value, value * 1e6, value / 7, value + 1))
    nested: Any = 1
    for _ in range(random.choice((60, 400))):
        nested = [nested]
    around = ([value], {"value": value}, [value] * 3, str(value), type(value)(), nested)
    return random.choice(random.choice((NUMBERS, NUMBERS, WORDS, VALUES, around)))


def _bytes(content: bytes, random: random.Random) -> bytes:
    start, end = sorted(random.randrange(len(content) + 1) for _ in range(2))
    encoding = random.choice(("utf-16", "utf-16-be", "utf-32", "utf-7", "utf-8-sig", "cp037"))
    length, byte = random.randrange(1, 200), random.choice((0, 9, 10, 32, 45, 48, 57, 123, 125, 255, 128, 194))
    return random.choice((
        content[:start],
        content.decode("latin-1").encode(encoding, "replace"),
        content[:start] + random.randbytes(length) + content[start + length :],
        content[:start] + content[start:end] + content[start:],
        content[:start] + bytes([byte]) + content[start + 1 :],
        random.choice((b"[", b"{a: ", b"- ", b'{"a":', b"(")) * random.choice((50, 900, 30_000)),
    ))  # fmt: skip
