"""The benchmark on measured times: two programs on two GPUs with made-up times whose law is known."""

import math
import sys
from dataclasses import replace
from functools import lru_cache
from itertools import product
from pathlib import Path

import loopy as lp
import numpy as np
import pytest

from perflex import PerflexError, load_machine
from perflex.errors import FileFormatError, MachineError
from sample_kernels import make

sys.path.append(str(Path(__file__).parents[1] / "bench"))

import real_gpus
from real_gpus_parts import trials
from real_gpus_parts.counting import count, peaks_of
from real_gpus_parts.rows import MeasuredRow, choose, read_rows

MODEL = """\
schema: perflex-model/1
name: law
description: launches, work-groups and additions
output: f_cl_wall_time
expression: p_launch * f_sync_kernel_launch + p_group * f_thread_groups + p_add * f_op_float32_add
parameters:
  p_launch: {meaning: cost of a launch, unit: s per launch}
  p_group: {meaning: cost of a work-group, unit: s per work-group}
  p_add: {meaning: cost of an addition, unit: s per sub-group operation}
measurement_kernels:
- tags: [gmem_pattern]
"""
# Seconds per launch, work-group and addition of 32 work-items.
LAWS = {"V100": (5e-5, 4e-9, 2e-9), "T4": (2e-5, 3e-9, 1e-9)}
NOISE = 1e-4
SIZES, BLOCKS = (2**18, 2**19, 2**20), (64, 256)
EVERY = [*product(("copy", "add"), SIZES, BLOCKS)]


@lru_cache
def kernel(program, block):
    right = {"copy": "a[i]", "add": "a[i] + 1"}[program]
    made = make("{[i]: 0 <= i < n}", f"out[i] = {right}", {"a": np.float32})
    made = lp.assume(made, f"n >= 1 and n mod {block} = 0")
    return lp.split_iname(made, "i", block, outer_tag="g.0", inner_tag="l.0")


def seconds(gpu, program, n, block):
    launch, group, add = LAWS[gpu]
    # As if measured: off by up to NOISE.
    off = NOISE * math.sin(n // 1000 + block)
    return (launch + group * n / block + (add * n / 32 if program == "add" else 0.0)) * (1 + off)


def label(program, n, block):
    return f"{program} n={n} block={block}"


def row(gpu, program, n, block, **changed):
    known = MeasuredRow(
        data="made up",
        gpu=gpu,
        machine=gpu,
        program=program,
        case=f"{program} n={n}",
        label=label(program, n, block),
        launches=((kernel(program, block), {"n": n}, 1),),
        seconds=seconds(gpu, program, n, block),
    )
    return replace(known, **changed)


ROWS = [row(gpu, *one) for gpu, one in product(LAWS, EVERY)]


@pytest.fixture
def model(tmp_path):
    (tmp_path / "law.yaml").write_text(MODEL, encoding="utf-8")
    return str(tmp_path / "law.yaml")


@pytest.fixture(autouse=True)
def one_draw(monkeypatch):
    monkeypatch.setattr(trials, "SEEDS", (3,))


def said(found, method, knows, **wanted):
    """Return what a method predicts, by label, of cases with some properties."""
    (one,) = [one for one in found[0] if (one.name, one.knowledge) == (method, knows)]
    return {
        case.label: predicted
        for case, predicted in one.seconds.items()
        if all(getattr(case, key) == value for key, value in wanted.items())
    }


def test_every_method_predicts_what_is_computed_by_hand(model):
    found = real_gpus.predictions(ROWS, ["V100"], ["perflex", "factor", "roofline"], model, draws=9, workers=1)
    left_out = {"study": "one program left out", "gpu": "V100"}
    peaks = {gpu: load_machine(gpu) for gpu in LAWS}
    assert {(case.gpu, case.study) for case in found[1]} == {("V100", "one program left out"), ("V100", "few samples")}

    # The roofline: a copy and an addition move 8 bytes per element, and neither reaches the peak of operations.
    expected = {label(*one): 8 * one[1] / peaks["V100"].need("dram_bandwidth") for one in EVERY}
    assert said(found, "roofline", "nothing", **left_out) == pytest.approx(expected)

    # The model is the law: copies come out of additions exactly, but without additions their cost is not known.
    expected = {label(*one): seconds("V100", "copy", *one[1:]) for one in EVERY}
    assert said(found, "perflex", "nothing", **left_out) == pytest.approx(expected, rel=10 * NOISE)

    # One factor: that of the other program, on the times of the only other GPU.
    factors = {
        program: float(np.median([seconds("V100", *one) / seconds("T4", *one) for one in EVERY if one[0] != program]))
        for program in ("copy", "add")
    }
    expected = {label(*one): factors[one[0]] * seconds("T4", *one) for one in EVERY}
    assert said(found, "one factor", "timing on other devices", **left_out) == pytest.approx(expected)

    # Without samples it is the geometric mean of the ratios of both peaks.
    here, there = (peaks_of(peaks[gpu]) for gpu in ("V100", "T4"))
    faster = (here.bytes_per_s * here.operations_per_s / there.bytes_per_s / there.operations_per_s) ** 0.5
    expected = {label(*one): seconds("T4", *one) / faster for one in EVERY}
    assert said(found, "one factor", "timing on other devices", samples="0") == pytest.approx(expected)

    # Samples are not judged, and twelve rows leave nothing to judge beside twenty of them.
    taken = trials.drawn(range(12), "V100", 5, 3)
    assert trials.drawn(range(12), "V100", 10, 3)[:5] == taken
    factor = float(np.median([seconds("V100", *EVERY[i]) / seconds("T4", *EVERY[i]) for i in taken]))
    expected = {label(*one): factor * seconds("T4", *one) for i, one in enumerate(EVERY) if i not in taken}
    assert said(found, "one factor", "timing on other devices, 5 samples", samples="5") == pytest.approx(expected)
    assert {case.samples for case in found[1]} == {"other programs", "0", "5", "10"}

    text = real_gpus.report(*found)
    assert "| V100 | other programs | roofline | nothing | 12 |" in text
    assert "| V100 | 10 | perflex | 10 samples | 2 | 1.00 |" in text


def test_an_unknown_gpu_method_or_folder_is_an_error_that_helps(tmp_path):
    with pytest.raises(MachineError, match="no times of the GPU 'Three'; they have T4, V100"):
        choose(ROWS, ["Three"])
    with pytest.raises(PerflexError, match="no method is called 'guess'; there are perflex"):
        real_gpus.predictions(ROWS, names=["guess"])
    with pytest.raises(FileFormatError, match="has none of the folders nvbench"):
        read_rows(tmp_path)
    with pytest.raises(FileFormatError, match="no folder 'nvbench'"):
        read_rows(tmp_path, ["nvbench"])
    with pytest.raises(FileFormatError, match="1 labels stand for several rows"):
        choose([*ROWS, ROWS[0]])


def test_short_rows_and_repeats_are_left_out():
    short = row("V100", "copy", 64, 64, seconds=19e-6)
    again = row("V100", "copy", SIZES[0], 64, note="repeat", seconds=1.0)
    assert choose([*ROWS, short, again]) == (ROWS, [short])


def test_launches_add_up():
    launches = ((kernel("copy", 64), {"n": 128}, 3), (kernel("add", 64), {"n": 64}, 2))
    rows = [row("V100", "copy", 128, 64, launches=launches), ROWS[0]]
    values, roofline = count(rows, ["f_sync_kernel_launch", "f_thread_groups", "f_op_float32_add"])
    # Launches; groups of 64; additions by sub-groups of 32.
    assert values[0].tolist() == [5.0, 3 * 2 + 2 * 1, 2 * 2.0]
    assert roofline[0] == pytest.approx((3 * 128 + 2 * 64) * 8 / load_machine("V100").need("dram_bandwidth"))
