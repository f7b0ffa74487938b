"""Command lines with something wrong in their words or in the files that they name."""

from __future__ import annotations

import io
import json
import sys
from contextlib import redirect_stderr, redirect_stdout
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from . import inputs
from .mutations import NUMBERS, TEXTS, mutated_document, mutated_text
from .readers import Kind, _tree, finite

if TYPE_CHECKING:
    import random

# Each file that command lines name: its content, and its form.
_KERNELS = """
from perflex.features import scop_from_yaml

def made():
    with open("k.yaml", encoding="utf-8") as stream:
        return scop_from_yaml(stream.read())

def wrong():
    return 3

def needs(argument):
    return argument
"""
_LINES = tuple(
    line.split()
    for line in """
features k.yaml n=64
features k.yaml n=64 --json --sub-group-size 16 -f f_op_float32_madd --per work-item
features k.yaml --machine m.yaml --registers 32
features k.yaml n=64 --branches domain --trip-count k=2 --access x[i]=4*i --subscripts
predict c.yaml k.yaml n=64,128 --json --confidence 0.9
predict c.yaml k.yaml n=64 --machine V100
rank c.yaml kernels.py:made kernels.py:made n=64 --json
volumes k.yaml --machine m.yaml n=64 --json
volumes k.yaml --machine V100 n=64 --registers 32 --variant paper2022
layers j.yaml --machine Gold-6248 M=40 N=60 --json --cores 2
layers j.yaml --machine Gold-6248 M=40 N=60 --block i=16 --convention paper
layers j.yaml --machine Gold-6248 M=40 --series N=20:60:20 --json
block j.yaml --machine Gold-6248 M=100 N=60 --criterion L2=plane --lanes 4 --tiles-per-core 2 --json
roofline kernels.py:made n=64 --machine V100 --time bound --json
roofline kernels.py:made n=64 --machine V100 --time predicted --calibration c.yaml --registers 40
prune-table cache.json d.yaml --samples 6 --keep 50% --json --seed 3
prune-table cache.json d.yaml --keep promise:0.05,0.95 --device V100
prune c.yaml kernels.py:made n=64 --keep 5% --measure 3
diagnose c.yaml --json
diagnose c.yaml --against c.yaml
machine show m.yaml --json
machine show V100
machine list --json
store list --store s.sqlite --json
store export --store s.sqlite --json
store export --store s.sqlite --out out.csv
store verify --store s.sqlite
store prune --store s.sqlite --older-than 90d --device pocl --keep-newest 2 --yes
catalog matmul_sq
calibrate model.yaml -o out.yaml --budget 30s
demo --sizes 256,512 --out demo-out --trials 3
evaluate matmul --out evaluation --device pocl
machine detect --out detected.yaml --quick
""".strip().splitlines()
)
_WORDS = ("--json", "--quiet", "-q", "--help", "--version", "--debugger", "--", "-", "=", "n=", "n==1", "n=1e3", "m=5")


@lru_cache(maxsize=1)
def _files() -> dict[str, tuple[bytes, str]]:
    return {
        "k.yaml": (inputs.TRANSPOSE.encode(), "yaml"),
        "j.yaml": (inputs.scops()[2].encode(), "yaml"),
        "c.yaml": (inputs.calibrations()[0].encode(), "yaml"),
        "m.yaml": (inputs.machines()[0].encode(), "yaml"),
        "d.yaml": (inputs.DESCRIPTION.encode(), "yaml"),
        "model.yaml": (inputs.MODEL.encode(), "yaml"),
        "cache.json": (inputs.caches()[0][0].encode(), "json"),
        "s.sqlite": (inputs.store(), "bytes"),
    }


def _make(random: random.Random) -> tuple[list[str], dict[str, bytes]]:
    words = list(random.choice(_LINES))
    named = [name for name in _files() if name in words]
    if named and random.random() < 0.4:
        name = random.choice(named)
        content, form = _files()[name]
        return words, {name: _damaged(content, random) if form == "bytes" else _document(content, form, random)}
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        at = random.randrange(len(words) + 1)
        match random.randrange(7):
            case 0 if words:
                del words[min(at, len(words) - 1)]
            case 1:
                words.insert(at, random.choice((*_WORDS, *words)))
            case 2:
                words[at : at + 1] = [random.choice(TEXTS)]
            case 3:
                # A name such as n, an option's name or a file's stays; what follows is another number.
                word = words[min(at, len(words) - 1)] if words else ""
                head, equals, _ = word.partition("=")
                words[at : at + 1] = [
                    f"{head}{equals}{random.choice(NUMBERS)}" if equals else str(random.choice(NUMBERS))
                ]
            case _:
                at = min(at, len(words) - 1)
                words[at : at + 1] = [mutated_text(words[at], random)] if words else ["x"]
    # The operating system hands over no words with a zero byte, and none that is no text.
    return [word.replace("\x00", "") for word in words], {}


def _document(content: bytes, form: str, random: random.Random) -> bytes:
    return mutated_document(content, random, partial(_tree, content.decode()), form)


def _damaged(content: bytes, random: random.Random) -> bytes:
    data = bytearray(content)
    for _ in range(random.choice((1, 1, 3))):
        length, at = random.randrange(1, 200), random.randrange(len(data))
        data[at : at + length] = random.randbytes(length)
    return bytes(data[: random.randrange(len(data))] if random.random() < 0.2 else data)


def _use(made: tuple[list[str], dict[str, bytes]]) -> None:
    from perflex.__main__ import main

    words, changed = made
    for name, (content, _) in _files().items():
        if name in words or name == "k.yaml":
            Path(name).write_bytes(changed.get(name, content))
    Path("kernels.py").write_text(_KERNELS, encoding="utf-8")
    for left in Path().glob("s.sqlite?*"):
        left.unlink()
    streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2)]
    with redirect_stdout(streams[0]), redirect_stderr(streams[1]):
        code = main(words)
    sys.stdout.flush()
    out, err = (stream.buffer.getvalue().decode("utf-8") for stream in streams)  # type: ignore[attr-defined]
    if code not in {0, 1, 2} or "Traceback" in err:
        msg = f"exit status {code}: {err[-500:]}"
        raise AssertionError(msg)
    if code == 0 and words[:1] in (["predict"], ["rank"]) and "--json" in words and out.startswith("["):
        for row in json.loads(out):
            for name in {"predicted_s", "low_s", "high_s"} & set(row):
                finite(float("nan") if row[name] is None else row[name])


def no_devices() -> None:
    """Let commands find no device: what they do with one is not for here."""
    from perflex.devices import listing

    setattr(listing, "_listed", lambda: ((), ()))  # noqa: B010 - of a module, which a type checker knows


COMMAND_LINE = Kind("command line", 13, _make, _use)
