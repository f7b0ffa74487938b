"""Comparing two versions of a kernel: what counts as a change, and what does not."""

import re
from pathlib import Path

import pytest

from perflex import Calibration
from perflex.analysis.comparison import Version, compare
from perflex.features import source_kernel
from support.source_samples import SAMPLES

EXAMPLES = Path(__file__).parents[2] / "examples"
GENERAL = Calibration.load("general_gpu")
WORDS = {"n", "m", "k"}  # sizes and the kernel
CHOSEN = (
    "guarded axpy", "strided loop", "downward while", "triangle", "halving sum", "tiled product", "vectors",
    "constants and columns", "data decide",
)  # fmt: skip


def commented(text):
    """Add comments and blank lines."""
    lines = [line if line.startswith("//") else line.replace(";", "; /* i = 0; */\n\n") for line in text.splitlines()]
    return "// begins\n\n" + "\n".join(lines).replace("for (", "\nfor ( // a loop\n")


def renamed(text):
    """Rename all variables of one letter, and arrays, but sizes."""
    return re.sub(r"(?<![.\w])([a-jl-z])\b", lambda one: one[0] if one[0] in WORDS else f"{one[0]}_of_ours", text)


def reformatted(text):
    """Break lines at other places."""
    lines = [
        line if line.startswith("#") else line.replace("{", "\n{\n").replace(" + ", "\n + ")
        for line in text.splitlines()
    ]
    return re.sub(r"for \((.*?);(.*?);", r"for(\1 ;\n   \2 ;", "\n".join(lines))


def versions(text, name, sizes, machine="V100", **launch):
    kernel = source_kernel(text, name, language="opencl", **launch)
    return Version(kernel, sizes, GENERAL, machine)


# Ten kernels: text, name, sizes, launch.
KERNELS = {
    title: (one.source, "k", one.sizes, {"groups": one.groups, "local": one.local})
    for title, one in SAMPLES.items()
    if title in CHOSEN
}
KERNELS["matmul"] = (
    (EXAMPLES / "matmul.cl").read_text(), "tiled", {"n": 64}, {"local": (16, 16), "global_size": ("n", "n")}
)  # fmt: skip


@pytest.mark.parametrize(("text", "name", "sizes", "launch"), KERNELS.values(), ids=KERNELS)
def test_comments_names_and_lines_change_nothing(text, name, sizes, launch):
    old = versions(text, name, sizes, **launch)
    for written in (commented(text), renamed(text), reformatted(text)):
        assert written != text
        found = compare(old, versions(written, name, sizes, **launch))
        assert (found.verdict, found.counts.rows, found.lines.rows) == ("no change", [], [])
        assert (found.change.low, found.change.ratio, found.change.high) == (1, 1, 1)


AXPY = """
__kernel void axpy(__global float *y, __global const float *x, int n)
{
    int i = get_global_id(0);
    if (i < n)
        y[i] += 2.5f * x[i];
}
"""


def axpy(text=AXPY, machine="V100"):
    return versions(text, "axpy", {"n": 1 << 22}, machine, local=(128,), global_size=("n",))


def test_what_differs_is_told():
    found = compare(axpy(), axpy(AXPY.replace("x[i];", "x[8 * i];\n        y[i] += 1.0f;").replace("2.5f *", "2.5f *")))
    names = {row[0]: row for row in found.counts.rows}
    _, old, new, ratio, unit = names["f_vol_dram_load"]
    assert (new / old, unit) == (ratio, "B")
    assert ratio > 2
    assert found.change.ratio > 1.5
    assert found.change.low < found.change.ratio < found.change.high
    assert found.verdict == "slower"
    assert found.limiters == ("DRAM bandwidth", "DRAM bandwidth")
    lines = {row[2]: row for row in found.lines.rows}
    # One line went, two came; the guard's line takes no time of its own.
    assert lines["y[i] += 2.5f * x[i];"][:2] == (6, None)
    assert lines["y[i] += 2.5f * x[8 * i];"][:2] == (None, 6)
    assert [table.caption for table in found.tables()] == [
        "Predicted change of axpy", "Counts that differ at n=4194304", found.lines.caption,
    ]  # fmt: skip


def test_small_changes_are_within_the_uncertainty():
    found = compare(axpy(), axpy(AXPY.replace("2.5f * x[i]", "2.5f * x[i] * x[i]")))
    assert found.change.low < 1 < found.change.high
    assert found.verdict == "within the model's uncertainty"
    back = compare(axpy(AXPY.replace("2.5f * x[i]", "2.5f * x[i] * x[i]")), axpy())
    assert back.change.ratio == pytest.approx(1 / found.change.ratio)


def test_values_of_compiled_code_need_a_machine():
    text = "__global__ void axpy(float *y, int n) { int i = blockIdx.x * 128 + threadIdx.x; if (i < n) y[i] *= 2; }"
    one = Version(source_kernel(text, "axpy", local=(128,), groups=("n/128",)), {"n": 4096}, GENERAL, "H100-SXM")
    assert one.value("f_spill_bytes") == 0
    assert 4 <= one.value("f_registers") <= 32
