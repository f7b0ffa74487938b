"""Kernels in OpenCL C that are damaged, or nested deeper than anything written by hand."""

import ctypes
import random
import re
import sys

import pytest

from perflex.errors import PerflexError, UnsupportedKernelError
from perflex.features import source_kernel
from perflex.features.from_source import source
from perflex.features.from_source.parsing import raising
from support.source_samples import SAMPLES

_TOKENS = re.compile(r"\w+|[^\w\s]|\s+")


def mutated(source, chance):
    """Return a source with a token deleted, doubled, swapped with its neighbour, or replaced."""
    tokens = _TOKENS.findall(source)
    place = chance.randrange(len(tokens) - 1)
    way = chance.randrange(4)
    if way == 0:
        del tokens[place]
    elif way == 1:
        tokens.insert(place, tokens[place])
    elif way == 2:
        tokens[place], tokens[place + 1] = tokens[place + 1], tokens[place]
    else:
        tokens[place] = chance.choice(["n", "x", "0", "-1", "*", "&", "(", "float4", "x[0]", "i", "goto", "1.5f", "&&"])
    return "".join(tokens)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)])
def test_damaged_sources_are_refused_in_one_line(seed):
    chance = random.Random(seed)  # noqa: S311
    described, refused = 0, []
    for sample in SAMPLES.values():
        for _ in range(3 if seed == 0 else 40):
            source = mutated(sample.source, chance)
            kernel = source_kernel(source + "\n", "k", local=sample.local, groups=sample.groups)
            try:
                kernel.scop(sample.sizes)
                described += 1
            except PerflexError as error:
                refused.append(error.message)
    assert described
    assert refused
    assert not [message for message in refused if "\n" in message]


@pytest.mark.parametrize(("body", "cause"), [
    ("a[0] = " + "n ? 1 : " * 1000 + "2;", "'k' is nested too deep"),
    ("if (a[0]) " * 1000 + "a[0] = 1;", "'k' is nested too deep"),
    ("for (int i = 0; i < n; i++) " * 17 + "a[0] = 1;", r"more than 16 loops inside each other are not read"),
])  # fmt: skip
def test_what_is_nested_too_deep_is_refused(body, cause):
    kernel = source_kernel(f"kernel void k(global int *a, int n) {{ {body} }}\n", "k", local=64, groups=1)
    with pytest.raises(UnsupportedKernelError, match=cause):
        kernel.scop()


def test_what_a_callback_of_c_raises_is_not_lost():
    """Else a part of the source is missing without a word, such as behind an interrupt."""

    @ctypes.CFUNCTYPE(ctypes.c_int)
    def interrupted():
        raise KeyboardInterrupt

    hook = sys.unraisablehook
    with pytest.raises(KeyboardInterrupt), raising():
        interrupted()
    assert sys.unraisablehook is hook


@pytest.mark.parametrize("body", [
    "unsigned long long x = 1; for (int j = 0; j < n; j++) x = (x << 1) ^ ((long long)x < 0 ? 7 : 0); a[i] = x;",
    "struct two { char x, y; }; float4 v = b[i]; two *h = (two *)&v.x; a[i] = h->y;",
    "float4 v = b[i]; __half2 *h = (__half2 *)&v.x; a[i] = (float)h->y;",
])  # fmt: skip
def test_wide_integers_and_bits_of_vectors_are_read_or_refused(body):
    text = f"__global__ void k(float *a, float4 *b, int n) {{ int i = threadIdx.x;\n{body} }}\n"
    try:
        assert source_kernel(text, "k", local=64, groups=1).scop({"n": 3}).statements
    except UnsupportedKernelError as error:
        assert "kernel.cu:2: " in error.message  # noqa: PT017


_CASES = "a[i] = " + " + ".join(f"(i / {each} % 7 == n ? m / {each} : i)" for each in range(2, 9)) + ";"
_ARITHMETIC = "float x = i;\nfor (int j = 1; j < 999; j *= 2) { " + "x = sin(x) * x + x; " * 40 + "}\na[i] = x;"


# Cases are isl's work, the arithmetic is the reader's own: the same limit holds for both.
@pytest.mark.parametrize(("body", "line"), [(_CASES, 3), (_ARITHMETIC, 4)])
def test_what_takes_too_long_is_refused_by_its_line(body, line, monkeypatch):
    for name in ("_MOST_OPERATIONS", "_MOST_WITHOUT_NUMBERS"):
        monkeypatch.setattr(source, name, 20_000)
    text = f"kernel void k(global int *a, int n, int m) {{\nint i = get_global_id(0);\n{body}\n}}\n"
    kernel = source_kernel(text, "k", local=64, groups=4)
    with pytest.raises(UnsupportedKernelError, match=rf"kernel.cl:{line}: .* takes too long .*; give numbers for"):
        kernel.scop()
    with pytest.raises(UnsupportedKernelError, match=rf"kernel.cl:{line}: .* takes too long .*; split the kernel"):
        kernel.scop({"n": 3, "m": 5})
