"""The benchmark on measured times: two programs on two made-up GPUs whose law is known."""

from __future__ import annotations

import csv
import math
import os
import time
from dataclasses import replace
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING, Any

import loopy as lp
import numpy as np
import pytest

from perflex import Model, PerflexError
from perflex.errors import FileFormatError, MachineError
from sample_kernels import make
from tests.bench.real_gpus_parts import counting, experiments
from tests.bench.real_gpus_parts.counting import Counting, count
from tests.bench.real_gpus_parts.experiments import drawn
from tests.bench.real_gpus_parts.reading import choose, machines_of, read_rows
from tests.bench.real_gpus_parts.row import MeasuredRow
from tests.bench.real_gpus_parts.running import Options, run
from tests.bench.real_gpus_parts.scoring import COLUMNS
from tests.bench.real_gpus_parts.table import peaks_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

MODEL = Model(
    "f_cl_wall_time", "p_launch * f_sync_kernel_launch + p_group * f_thread_groups + p_add * f_op_float32_add"
)
# Seconds per launch, work-group and addition of 32 work-items.
LAWS = {"One": (5e-5, 4e-9, 2e-9), "Two": (2e-5, 3e-9, 1e-9)}
NOISE = 1e-4
SIZES, BLOCKS = (2**18, 2**19, 2**20), (64, 256)
MACHINE = """\
schema: perflex-machine/1
name: Made-Up-{name}
aliases: []
vendor: NVIDIA
kind: gpu
sources:
  here: {{kind: datasheet, text: made up}}
facts:
  compute_units: {{value: {units}, unit: '1', source: here}}
  clock_hz: {{value: 1, unit: GHz, source: here}}
  dram_bandwidth: {{value: {bandwidth}, unit: GB/s, source: here}}
  fp32_per_cycle: {{value: 64, unit: op/cycle, source: here}}
curves: {{}}
"""
BANDWIDTHS = {"One": 100e9, "Two": 400e9}
UNITS = {"One": 10, "Two": 20}


@lru_cache
def kernel(program: str, block: int) -> Any:
    right = {"copy": "a[i]", "add": "a[i] + 1"}[program]
    made = make("{[i]: 0 <= i < n}", f"out[i] = {right}", {"a": np.float32})
    made = lp.assume(made, f"n >= 1 and n mod {block} = 0")
    return lp.split_iname(made, "i", block, outer_tag="g.0", inner_tag="l.0")


def seconds(gpu: str, program: str, n: int, block: int) -> float:
    launch, group, add = LAWS[gpu]
    # As if measured: off by up to NOISE.
    off = NOISE * math.sin(n // 1000 + block)
    return (launch + group * n / block + (add * n / 32 if program == "add" else 0.0)) * (1 + off)


def row(gpu: str, program: str, n: int, block: int, **changed: Any) -> MeasuredRow:
    known: dict[str, Any] = {
        "data": "made up",
        "gpu": gpu,
        "machine": f"Made-Up-{gpu}",
        "program": program,
        "case": f"{program} n={n}",
        "label": f"{program} n={n} block={block}",
        "launches": ((kernel(program, block), {"n": n}, 1),),
        "sub_group_size": 32,
        "seconds": seconds(gpu, program, n, block),
        "warm": True,
    }
    return MeasuredRow(**{**known, **changed})


ROWS = [row(*one) for one in product(LAWS, ("copy", "add"), SIZES, BLOCKS)]


@pytest.fixture
def machines(tmp_path: Path) -> Path:
    folder = tmp_path / "machines"
    folder.mkdir()
    for name, bandwidth in BANDWIDTHS.items():
        text = MACHINE.format(name=name, units=UNITS[name], bandwidth=bandwidth / 1e9)
        (folder / f"Made-Up-{name}.yaml").write_text(text, encoding="utf-8")
    return folder


@pytest.fixture(autouse=True)
def one_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiments, "SEEDS", (3,))


def cells(path: Path, **wanted: str) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as stream:
        reader = csv.DictReader(stream)
        assert tuple(reader.fieldnames or ()) == COLUMNS
        return [line for line in reader if all(line[key] == value for key, value in wanted.items())]


def expected(predicted: list[float], measured: list[float], spearman: float, loss: float) -> dict[str, float]:
    errors = [abs(p / t - 1) for p, t in zip(predicted, measured, strict=True)]
    ordered = sorted(errors)
    middle = len(ordered) // 2
    place = 0.9 * (len(ordered) - 1)
    low = int(place)
    return {
        "median": ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2,
        "p90": ordered[low] + (place - low) * (ordered[min(low + 1, len(ordered) - 1)] - ordered[low]),
        "max": ordered[-1],
        "geomean": float(np.prod([max(e, 1e-6) for e in errors]) ** (1 / len(errors))),
        "spearman": spearman,
        "choice_loss": loss,
    }


def check(line: dict[str, str], wanted: dict[str, float], **tolerance: float) -> None:
    assert {key: float(line[key]) for key in wanted} == pytest.approx(wanted, **(tolerance or {"rel": 1e-5}))


def loss_of_a_blind_choice(gpu: str, program: str) -> float:
    """Mean over sizes of what either block costs on average, over the better one."""
    losses = []
    for n in SIZES:
        both = [seconds(gpu, program, n, block) for block in BLOCKS]
        losses.append(sum(both) / 2 / min(both) - 1)
    return sum(losses) / len(losses)


def test_every_column_is_that_computed_by_hand(machines: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    methods = ("perflex", "factor", "roofline")
    text = run(ROWS, Options(MODEL, gpus=("One",), methods=methods, machines=machines), out)
    left_out = {"data": "made up", "gpu": "One", "samples": "other programs", "seed": ""}
    configurations = list(product(SIZES, BLOCKS))

    # The roofline: a copy and an addition move 8 bytes per element, and neither reaches the peak of operations.
    measured = [seconds("One", "copy", n, block) for n, block in configurations]
    predicted = [8 * n / BANDWIDTHS["One"] for n, _ in configurations]
    (line,) = cells(out, method="roofline", program="copy", **left_out)
    check(line, expected(predicted, measured, 0.0, loss_of_a_blind_choice("One", "copy")))

    # The model is the law: copies come out of additions exactly, but without additions their cost is not known.
    (line,) = cells(out, method="perflex", program="copy", **left_out)
    check(line, expected(measured, measured, 1.0, 0.0), abs=10 * NOISE)
    measured = [seconds("One", "add", n, block) for n, block in configurations]
    predicted = [seconds("One", "copy", n, block) for n, block in configurations]
    (line,) = cells(out, method="perflex", program="add", **left_out)
    check(line, expected(predicted, measured, 1.0, 0.0), abs=10 * NOISE)

    # One factor: that of the other program, on the times of the only other GPU.
    ratios = [seconds("One", "copy", *one) / seconds("Two", "copy", *one) for one in configurations]
    factor = sum(sorted(ratios)[2:4]) / 2
    predicted = [factor * seconds("Two", "add", *one) for one in configurations]
    (line,) = cells(out, method="one factor", program="add", **left_out)
    check(line, expected(predicted, measured, 1.0, 0.0))

    # Without samples it is the geometric mean of the ratios of both peaks: 4 and 2.
    everything = [*product(("copy", "add"), SIZES, BLOCKS)]
    measured = [seconds("One", *one) for one in everything]
    predicted = [seconds("Two", *one) * np.sqrt(8) for one in everything]
    (line,) = cells(out, method="one factor", program="all", gpu="One", samples="0")
    check(line, expected(predicted, measured, 1.0, 0.0))
    assert "| One | one factor | timing on other devices |" in text
    assert "| One | roofline | nothing |" in text
    assert "| One | one factor | timing on other devices, 5 samples |" in text
    assert "| One | perflex | 5 samples |" in text


def test_intervals_are_judged_where_they_are_asked_for(machines: Path, tmp_path: Path) -> None:
    options = Options(MODEL, gpus=("One",), methods=("perflex",), intervals=True, machines=machines)
    text = run(ROWS, options, tmp_path / "out.csv")
    (line,) = [line for line in text.splitlines() if line.startswith("| One | perflex | 10 samples |")]
    assert line.endswith("% of 2 |")


def test_samples_are_not_judged(machines: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    run(ROWS, Options(MODEL, methods=("factor",), machines=machines), out)
    everything = [*product(("copy", "add"), SIZES, BLOCKS)]
    taken = drawn(range(12), "One", 5, 3)
    assert drawn(range(12), "One", 10, 3)[:5] == taken
    ratios = [seconds("One", *everything[i]) / seconds("Two", *everything[i]) for i in taken]
    factor = sorted(ratios)[2]
    rest = [one for i, one in enumerate(everything) if i not in taken]
    (line,) = cells(out, gpu="One", program="all", samples="5", seed="3")
    wanted = expected([factor * seconds("Two", *one) for one in rest], [seconds("One", *one) for one in rest], 1.0, 0.0)
    check(line, wanted)
    # Twelve rows leave nothing to judge beside twenty samples.
    assert cells(out, samples="20") == []


def test_few_programs_are_predicted_from_those_of_other_data(
    machines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(experiments, "_FEW_PROGRAMS", ("few",))
    monkeypatch.setattr(experiments, "_MANY_PROGRAMS", ("made up",))
    # The GPU called Two has timed nothing but the few.
    few = [replace(one, data="few", program="few", label=f"few {one.label}") for one in ROWS if one.program == "add"]
    rows = [*few, *(one for one in ROWS if one.gpu == "One")]
    out = tmp_path / "out.csv"
    run(rows, Options(MODEL, methods=("perflex", "factor", "roofline"), machines=machines), out)
    judged = [seconds("One", "add", n, block) for n, block in product(SIZES, BLOCKS)]
    (line,) = cells(out, data="few", gpu="One", program="all", method="perflex", samples="other programs")
    check(line, expected(judged, judged, 1.0, 0.0), abs=10 * NOISE)
    there = "other programs and GPUs"
    assert {one["method"] for one in cells(out, data="few", gpu="Two", samples=there)} == {"one factor", "roofline"}
    # The data of many programs are not predicted from others.
    assert not cells(out, data="made up", gpu="Two")
    found = {one["samples"] for one in cells(out, data="made up", gpu="One")}
    assert found == {"0", "5", "10", "other programs"}


def test_of_chosen_gpus_only_those_are_judged(machines: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    options = Options(MODEL, gpus=("Two",), methods=("factor", "trees_elsewhere"), machines=machines)
    run(ROWS, options, out)
    assert {line["gpu"] for line in cells(out)} == {"Two", "all"}
    (line,) = cells(out, gpu="Two", program="all", method="ExtraTrees, other GPUs too", samples="0")
    assert float(line["median"]) > 0


def test_an_unknown_gpu_or_method_is_an_error_that_helps(machines: Path, tmp_path: Path) -> None:
    with pytest.raises(MachineError, match="no times of the GPU 'Three'; they have One, Two"):
        choose(ROWS, ["Three"])
    with pytest.raises(MachineError, match=r"no machine file Made-Up-Three\.yaml .*'Three'.*--machines DIR"):
        machines_of([*ROWS, replace(ROWS[0], gpu="Three", machine="Made-Up-Three")], machines)
    with pytest.raises(PerflexError, match="no method is called 'guess'; there are perflex"):
        run(ROWS, Options(MODEL, methods=("guess",), machines=machines), tmp_path / "out.csv")
    with pytest.raises(FileFormatError, match="has none of the folders nvbench"):
        read_rows(tmp_path)
    with pytest.raises(FileFormatError, match="no folder 'nvbench'"):
        read_rows(tmp_path, ["nvbench"])


def test_what_is_left_out_is_listed(machines: Path, tmp_path: Path) -> None:
    odd = row("One", "copy", 2**18 + 1, 64)
    short = row("One", "copy", 64, 64, seconds=19e-6)
    again = row("One", "copy", SIZES[0], 64, note="repeat", seconds=1.0)
    out = tmp_path / "out.csv"
    text = run([*ROWS, odd, short, again], Options(MODEL, methods=("roofline",), machines=machines), out)
    left_out = text[text.index("## Left out") :]
    assert "- 1 rows are shorter than 20 us" in left_out
    assert "- 1 rows repeat another one" in left_out
    assert "refused: made up, copy: MissingSizeError" in left_out
    assert "One copy n=262145 block=64" in left_out
    with pytest.raises(FileFormatError, match="1 labels stand for several rows"):
        choose([*ROWS, ROWS[0]])


def test_launches_add_up_and_counts_are_kept(machines: Path, tmp_path: Path) -> None:
    launches = ((kernel("copy", 64), {"n": 128}, 3), (kernel("add", 64), {"n": 64}, 2))
    rows = [row("One", "copy", 128, 64, launches=launches)]
    seen: list[tuple[int, int]] = []
    how = Counting(
        tuple(MODEL.input_features()),
        machines_of(rows, machines),
        tmp_path / "cache.jsonl",
        progress=lambda done, total, _: seen.append((done, total)),
    )
    first = count(rows, how)
    # Launches; groups of 64; additions by sub-groups of 32.
    assert first.values == [(5.0, 3 * 2 + 2 * 1, 2 * 2.0)]
    # Operations and bytes of each.
    assert first.work == [((0.0, 128 * 8.0, 3), (64.0, 64 * 8.0, 2))]
    assert seen == [(1, 2), (2, 2)]
    assert count(rows, how) == first
    assert len(seen) == 2
    # Another model has only its further features counted.
    more = count(rows, replace(how, features=(*how.features, "f_thread_items")))
    assert more.values == [(*(first.values[0] or ()), 3 * 128.0 + 2 * 64.0)]
    assert len(seen) == 3
    # A line that a run did not finish is counted again.
    text = (tmp_path / "cache.jsonl").read_text(encoding="utf-8")
    (tmp_path / "cache.jsonl").write_text(text[: len(text) - 9], encoding="utf-8")
    assert count(rows, replace(how, features=(*how.features, "f_thread_items"))) == more
    assert len(seen) == 4


def test_a_row_that_hangs_or_crashes_is_refused_and_the_others_are_counted(
    machines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [row("One", "copy", n, 64) for n in SIZES]
    really = counting._features_of

    def features_of(one: MeasuredRow, how: Counting, names: Sequence[str]) -> dict[str, Any]:
        n = one.launches[0][1]["n"]
        if n == SIZES[0]:
            time.sleep(60)
        if n == SIZES[1]:
            os._exit(1)
        return really(one, how, names)

    features, known, cache = tuple(MODEL.input_features()), machines_of(rows, machines), tmp_path / "cache.jsonl"
    monkeypatch.setattr(counting, "_features_of", features_of)
    found = count(rows, Counting(features, known, cache, limit_s=3.0))
    assert found.refused == {0: "took longer than 3 s", 1: "the process that counted it ended"}
    assert found.values == [None, None, (1.0, SIZES[2] / 64, 0.0)]
    # Neither is kept: another run tries again.
    monkeypatch.undo()
    again = count(rows, Counting(features, known, cache))
    assert again.values == [(1.0, n / 64, 0.0) for n in SIZES]


def test_peaks_are_those_of_the_machine_file(machines: Path) -> None:
    found = peaks_of(machines_of(ROWS, machines)["Made-Up-Two"])
    assert found.bytes_per_s == 400e9
    assert found.operations_per_s == 20 * 64 * 1e9
