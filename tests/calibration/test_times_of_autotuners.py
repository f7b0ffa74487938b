"""Times that Triton's and PyTorch's autotuners leave behind."""

from __future__ import annotations

import json
import math
import random
import sys
from contextlib import suppress
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from perflex import load_times
from perflex.calibration.times import tuning_files
from perflex.errors import FileFormatError, MissingExtraError, PerflexError
from perflex.triton import TritonLaunch

if TYPE_CHECKING:
    from pathlib import Path

TABLE = """\
W0000 some other line
AUTOTUNE mm(4096x512, 512x1024)
strides: [512, 1], [1, 512]
dtypes: torch.bfloat16, torch.bfloat16
  triton_mm_12 0.6123 ms 100.0% ACC_TYPE='tl.float32', BLOCK_K=32, BLOCK_M=128, BLOCK_N=64, num_stages=3, num_warps=4
  mm 0.6130 ms 94.6%
  triton_mm_3 0.8123 ms 70.0% ACC_TYPE='tl.float32', BLOCK_K=64, BLOCK_M=64, BLOCK_N=64, num_stages=4, num_warps=8
SingleProcess AUTOTUNE benchmarking takes 1.2 seconds and 0.1 seconds precompiling for 3 choices
AUTOTUNE convolution(1x3x224x224, 64x3x7x7)
strides: [1, 1, 1, 1], [1, 1, 1, 1]
dtypes: torch.float16, torch.float16
  triton_convolution_4 0.1 ms 100.0% BLOCK_K=16, BLOCK_M=64, BLOCK_N=64, num_stages=2, num_warps=4
"""
WINNER = """\
Triton autotuning for function matmul_kernel,
with key as (4096, 4096, 4096, 'torch.float16'),
finished after 5.35s,
best config selected: BLOCK_M: 128, BLOCK_N: 256, num_warps: 8, num_ctas: 1, num_stages: 3, maxnreg: None;
"""


def config(warps: int, **constants: int) -> dict[str, Any]:
    return {"kwargs": constants, "num_warps": warps, "num_stages": 3, "num_ctas": 1, "maxnreg": None, "pre_hook": None}


def tuned(*timings: Any, **more: Any) -> str:
    return json.dumps({"key": [512, 256, 128, "torch.float16"], "configs_timings": timings, **more})


def launch(K: int = 1, N: int = 1, M: int = 1) -> None:  # noqa: N803 - as the kernel's keys
    """Launches nothing: what is captured of it is a stand-in."""


@pytest.fixture
def captured(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, int]]:
    """Return the sizes that launches are captured with."""
    sizes: list[dict[str, int]] = []

    def capture(_make: Any, given: dict[str, int]) -> TritonLaunch:
        sizes.append(dict(given))
        return TritonLaunch(SimpleNamespace(__name__="matmul_kernel"), {}, 1, keys=("M", "N", "K"))

    monkeypatch.setattr(tuning_files, "captured_launch", capture)
    return sizes


def test_tables_of_pytorch(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_text(TABLE)
    with pytest.raises(FileFormatError, match="of an autotuner, without columns to choose rows by; leave only out"):
        load_times(path, only={"role": "cal"})
    first, second = load_times(path, device="NVIDIA A100-SXM4-80GB").rows
    assert first.seconds == pytest.approx(0.6123e-3)
    given = first.kernel.matrices
    assert (given.m, given.n, given.k, given.dtype) == (4096, 1024, 512, "bf16")
    assert (given.first, given.second) == ((512, 1), (1, 512))
    assert (first.kernel.tile, first.kernel.warps, first.kernel.stages) == ((128, 64, 32), 4, 3)
    assert (second.kernel.tile, second.kernel.warps, second.kernel.stages) == ((64, 64, 64), 8, 4)
    assert first.generator == second.generator == "mm(4096x512, 512x1024)"
    program = first.kernel.program({})
    assert program.grid == (32 * 16, 1, 1)
    assert sum(dot.flops for dot in program.dots) == 2 * 4096 * 1024 * 512


def times_of(path: Path, text: str) -> list[float]:
    path.write_text(text, encoding="utf-8")
    return [row.seconds for row in load_times(path).rows]


def test_tables_within_logs(tmp_path: Path) -> None:
    """Colours, times, levels, ranks whose lines alternate; microseconds; what did not run; other products."""
    path, expected = tmp_path / "inductor.log", pytest.approx([0.6123e-3, 0.8123e-3])
    assert times_of(path, TABLE.replace("0.8123 ms", "812.3 us")) == expected
    failed = "  triton_mm_4 inf ms 0.0% BLOCK_K=64, BLOCK_M=256, BLOCK_N=64, num_stages=4, num_warps=8\nSingle"
    assert times_of(path, TABLE.replace("Single", failed)) == expected
    assert times_of(path, TABLE.replace("\n", "\r\n")) == expected
    for before in ("\x1b[32mINFO\x1b[0m ", "[rank0]:V1124 10:11:12.345000 99 torch/select.py:1]\x1b[1m ", "    "):
        assert times_of(path, "".join(f"{before}{line}\n" for line in TABLE.splitlines())) == expected
    other = TABLE.replace("4096x512", "128x512").replace("0.6123", "0.1").replace("0.8123", "0.2")
    pairs = zip(TABLE.splitlines(), other.splitlines(), strict=True)
    assert times_of(path, "".join(f"[rank0]:{one}\n[rank1]:{two}\n" for one, two in pairs)) == pytest.approx(
        [0.6123e-3, 0.1e-3, 0.8123e-3, 0.2e-3]
    )
    first, second, *_ = load_times(path).rows
    assert (first.kernel.matrices.m, second.kernel.matrices.m) == (4096, 128)
    # A bias comes first, and its shape may be a row.
    added = (
        TABLE.replace("mm(", "addmm(1024, ").replace("strides: ", "strides: [1], ").replace("dtypes: ", "dtypes: a, ")
    )
    assert times_of(path, added + TABLE) == pytest.approx([0.6123e-3, 0.8123e-3] * 2)


def test_recording_needs_a_listener(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = SimpleNamespace(knobs=SimpleNamespace(autotuning=SimpleNamespace()))
    for there in (None, old):
        monkeypatch.setitem(sys.modules, "triton", there)
        with pytest.raises(MissingExtraError, match=r"needs Triton 3\.8"):
            tuning_files.record(tmp_path / "times.jsonl")


def test_tritons_files(tmp_path: Path, captured: list[dict[str, int]]) -> None:
    path = tmp_path / "matmul_kernel.autotune.json"
    path.write_text(
        tuned([config(4, BLOCK=64), [0.5, 0.4, 0.6]], [config(8, BLOCK=128), 0.25], [config(8), float("inf")])
    )
    first, second = load_times(path, {"launch": launch}).rows
    assert (first.seconds, second.seconds) == (0.5e-3, 0.25e-3)
    assert second.kernel.configuration.warps == 8
    assert second.kernel.configuration.constants == {"BLOCK": 128}
    assert first.generator == "matmul_kernel(512, 256, 128, torch.float16)"
    # By the names of the autotuner's keys, not by their order in the function.
    assert captured[-1] == {"M": 512, "N": 256, "K": 128}


def test_lines_of_a_listener(tmp_path: Path, captured: list[dict[str, int]]) -> None:
    path = tmp_path / "times.jsonl"
    lines = [tuned([config(4, BLOCK=64), [0.5]], kernel="matmul_kernel") for _ in range(2)]
    path.write_text("\n".join(lines) + "\n")
    rows = load_times(path, {"launch": launch}).rows
    assert [row.seconds for row in rows] == [0.5e-3, 0.5e-3]
    assert captured


def test_all_that_a_configuration_says_counts(tmp_path: Path, captured: list[dict[str, int]]) -> None:
    """What cannot be predicted is no row."""
    path = tmp_path / "matmul_kernel.autotune.json"
    others = [{"num_ctas": 2}, {"ir_override": "own.ttgir"}, {"maxnreg": 64}]
    path.write_text(tuned(*([config(4, BLOCK=64) | other, [0.5]] for other in others)))
    rows = load_times(path, {"launch": launch}).rows
    assert [row.kernel.configuration.options["maxnreg"] for row in rows] == [64]
    assert captured


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (WINNER, "says only which configurations were best, without times; set TRITON_CACHE_AUTOTUNING=1"),
        (tuned([config(4), [0.5]], kernel="another"), "line 1: no function launches 'another'"),
        (tuned([{"kwargs": {}}, [0.5]]), "line 1: this is not what Triton's autotuner writes"),
        (tuned([config(4) | {"maxnreg": -1}, [0.5]]), "line 1: this is not what Triton's autotuner writes"),
        (tuned([config(4) | {"num_warps": math.inf}, [0.5]]), "line 1: this is not what Triton's autotuner writes"),
        (TABLE.replace("512x1024", "77x1024"), "line 2: perflex knows no such product"),
        (TABLE.replace("bfloat16, torch.bfloat16", "bfloat16, torch.int8"), "knows no such product .*bfloat16, int8"),
        (TABLE.replace("mm(4096x512", "mm(4096x512x2"), "line 2: this is no product of two matrices"),
        (TABLE.replace("[512, 1], [1, 512]", "[512, 1]"), "line 2: this is no product of two matrices"),
        (TABLE.replace("[1, 512]", "[s0, 512]"), "line 2: this is no product of two matrices"),
        (TABLE.replace("[1, 512]", "[2, 1024]"), "line 2: perflex knows no product of matrices without neighbours"),
        (TABLE.replace("strides", "# stride"), "line 2: the table has no line of strides"),
        (TABLE.replace("dtypes: torch.bf", "# torch.bf"), "line 2: the table has no line of dtypes"),
        (TABLE.replace("BLOCK_M=64", "BLOCK_M=65"), "line 7: this choice has no number for BLOCK_M"),
        (TABLE.replace("4096x", "4096000000000x"), "line 2: perflex knows no such product"),
        (TABLE.replace("4096x512, 512x1024", "2147483647x512, 512x2147483647"), "more programs than a launch"),
        (TABLE.replace("0.8123", "nan"), "line 7: 'nan' is no time in ms"),
        (TABLE.replace("0.8123", "-0.8123"), "line 7: '-0.8123' is no time in ms"),
        (TABLE.replace("0.8123 ms", "0.8123"), "line 7: '0.8123' needs a unit, ms or us"),
        (TABLE.replace("0.8123 ms", "0.8123 s"), "line 7: '0.8123' needs a unit, ms or us"),
        (TABLE.replace("0.8123 ms 70.0%", "0.0000 ms <DIVIDED BY ZERO ERROR>"), "line 7: '0.0000' is no time in ms"),
        ("\n".join(reversed(TABLE.splitlines())), "has no times"),
        (TABLE.replace("triton_mm_", "triton_mm_persistent_tma_"), "has no times"),
        *(
            (tuned([config(4), [time]], kernel="matmul_kernel"), "line 1: this is not what Triton's autotuner writes")
            for time in (float("nan"), -0.5, 0.0, True, "0.5", None, 10**400, 5e-324)
        ),
        *(
            (tuned([{**config(4), **wrong}, [0.5]]), "line 1: this is not what Triton's autotuner writes")
            for wrong in ({"num_warps": 3}, {"num_warps": 4.0}, {"num_warps": True}, {"num_stages": "3"})
        ),
        (tuned([config(4), [0.5]], kernel=7), "line 1: this is not what Triton's autotuner writes"),
        (tuned([config(4), [0.5]]).replace('"key": [', '"key": "x", "other": ['), "line 1: this is not"),
        (TABLE.replace("num_warps=8", "num_warps=x"), "line 7: this choice has no number for num_warps"),
        (TABLE.replace("0.8123", "0.0"), "line 7: '0.0' is no time in ms"),
        (TABLE.replace(" mm(", " bmm("), "has no times of Triton's for mm or addmm"),
        ('{"some": 1}', "is JSON"),
    ],
)
def test_what_has_no_times_is_refused(tmp_path: Path, captured: list[dict[str, int]], text: str, said: str) -> None:
    path = tmp_path / "matmul_kernel.autotune.json"
    path.write_text(text)
    with pytest.raises(FileFormatError, match=said):
        load_times(path, {"launch": launch})
    assert len(captured) <= 2


@pytest.mark.parametrize("seed", range(60))
def test_damaged_files_end_in_an_error_of_ours(tmp_path: Path, captured: list[dict[str, int]], seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - no secret
    path = tmp_path / "matmul_kernel.autotune.json"
    text = chance.choice([TABLE, WINNER, tuned([config(4, BLOCK=64), [0.5]], [config(8, BLOCK=128), 0.25])])
    for _ in range(8):
        place, length = chance.randrange(len(text)), chance.randrange(12)
        middle = chance.choice(["", "{", "]", '"', "-1", "1e999", "null", "\n", ", ", "x", "é", "99999999999999999999"])
        path.write_text(text[:place] + middle + text[place + length :], encoding="utf-8")
        with suppress(PerflexError):
            load_times(path, {"launch": launch})
    assert captured or text
