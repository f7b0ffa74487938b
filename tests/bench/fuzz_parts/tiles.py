"""What autotuners of Triton's kernels leave behind, and TTIR."""

from __future__ import annotations

import json
import sys
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np

import perflex
import uipick  # noqa: F401 - before the tests' folder of this name can be taken for it
from fuzz_parts.common import Input, finite, text_of, written
from perflex.calibration.times import tuning_files
from perflex.errors import PerflexError
from perflex.features.from_triton.launches import TritonLaunch, captured_launch
from perflex.features.tiles.costs import tile_costs
from perflex.models import load_model

sys.path.append(str(Path(__file__).parents[2]))

from support.triton_data import NAMES, code_of, launch_of, stored

KEY = [512, 256, 128, "torch.float16", "torch.float16"]
CONSTANTS = {"BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 32, "GROUP_SIZE_M": 8}
CHOICE = "ms 100.0% ACC_TYPE='tl.float32', ALLOW_TF32=False, BLOCK_K=32, BLOCK_M=128, BLOCK_N=64, EVEN_K=True"
STAGES = "GROUP_M=8, USE_FAST_ACCUM=False, num_stages=3, num_warps=4"
TABLE = f"""\
Autotune Choices Stats:
{{"num_choices": 3, "best_kernel": "mm", "best_time": 0.6130, "best_triton_kernel": "triton_mm_12"}}
AUTOTUNE mm(4096x512, 512x1024)
strides: [512, 1], [1, 512]
dtypes: torch.bfloat16, torch.bfloat16
  mm 0.6130 ms 100.0%
  triton_mm_12 0.6288 {CHOICE}, {STAGES}
  triton_mm_13 inf {CHOICE.replace("100", "0").replace("M=128", "M=256")}, {STAGES}
SingleProcess AUTOTUNE benchmarking takes 1.2 seconds and 0.1 seconds precompiling for 3 choices
AUTOTUNE bmm(12x512x64, 12x64x512)
strides: [32768, 64, 1], [32768, 1, 64]
dtypes: torch.float16, torch.float16
  triton_bmm_3 0.1 {CHOICE}, {STAGES}
AUTOTUNE addmm(1024, 333x100, 100x1024)
strides: [1], [100, 1], [1024, 1]
dtypes: torch.float32, torch.float32, torch.float32
  bias_addmm 0.0214 ms 100.0%
  triton_mm_40 18.5 {CHOICE.replace("ms", "us")}, {STAGES}
"""
WINNER = """\
Triton autotuning for function matmul_kernel,
with key as (512, 256, 128, 'torch.float16'),
finished after 5.35s,
best config selected: BLOCK_M: 128, BLOCK_N: 256, num_warps: 8, num_ctas: 1, num_stages: 3, maxnreg: None;
"""
# Some have a loop, jumps, functions, contents of arrays, descriptors.
CODES = (
    "matmul",
    "attention_causal",
    "called",
    "csr",
    "descriptor_matmul",
    "early",
    "recurrent",
    "grouped_matmul",
    "add",
)


def document(**more: Any) -> str:
    timings = [
        ({"kwargs": CONSTANTS, "num_warps": 4, "num_ctas": 1, "num_stages": 3, "maxnreg": None}, [0.5, 0.4, 0.6]),
        ({"kwargs": {**CONSTANTS, "BLOCK_SIZE_K": 64}, "num_warps": 8, "num_ctas": 1, "num_stages": 4}, 0.25),
    ]
    return json.dumps({"key": KEY, "configs_timings": timings, **more})


def files() -> list[Input]:
    return [(document().encode(), "json", "matmul_kernel.autotune.json")]


def recorded() -> list[Input]:
    return [("\n".join([document(kernel="matmul_kernel")] * 2).encode(), "jsonl", "times.jsonl")]


def tables() -> list[Input]:
    logged = "".join(
        f"\x1b[32m[rank{rank}]:V1124 select.py:9]\x1b[0m {line}\n" for line in TABLE.splitlines() for rank in "01"
    )
    return [(text.encode(), "code", "inductor.log") for text in (TABLE, logged)]


def winners() -> list[Input]:
    return [(WINNER.encode(), "code", "best.txt")]


@cache
def _cases() -> list[tuple[dict[str, Any], str]]:
    assert set(CODES) <= set(NAMES)
    cases = [stored(name) for name in CODES]
    return [(case, next(iter(case["ttir"]["3.9.0"].values()))) for case in cases]


@cache
def codes() -> list[Input]:
    return [(text.encode(), "code", case) for case, text in _cases()]


def launch(M: int = 512, N: int = 256, K: int = 128) -> None:  # noqa: N803 - as the kernel's keys
    """Launch the kernel of the files where there is Triton."""
    from support.triton_products import matmul_kernel

    a, b, c = (perflex.triton.tensor("float16", *shape) for shape in ((M, K), (K, N), (M, N)))

    def grid(given: dict[str, Any]) -> tuple[int]:
        return (-(-M // given["BLOCK_SIZE_M"]) * -(-N // given["BLOCK_SIZE_N"]),)

    matmul_kernel[grid](a, b, c, M, N, K, K, 1, N, 1, N, 1, ACTIVATION="")


def _stand_in(make: Any, sizes: dict[str, Any]) -> TritonLaunch:
    return TritonLaunch(SimpleNamespace(__name__="matmul_kernel"), sizes, 1, keys=("M", "N", "K"))


@cache
def _triton() -> bool:
    try:
        import triton  # noqa: F401
    except ImportError:
        return False
    return True


def costs(program: Any) -> None:
    """Predict the time of a tile program with the usual values."""
    found = tile_costs(program, perflex.load_machine("A100-80GB"))
    finite(*found.values())
    read = load_model("general_tile")
    columns = {name: np.array([found[name.removeprefix("f_tile_")]]) for name in read.model().input_features()}
    (seconds,) = np.atleast_1d(read.model().evaluate(dict(read.usual), columns)).tolist()
    finite(seconds)
    assert seconds > 0, f"{seconds} s was predicted"


def use_times(content: bytes, name: str) -> None:
    captured = captured_launch if _triton() else _stand_in
    with mock.patch.object(tuning_files, "captured_launch", captured):
        rows = one_line(lambda: perflex.load_times(written(content, name), {"launch": launch})).rows
    finite(*(row.seconds for row in rows))
    assert all(row.seconds > 0 for row in rows)
    for row in rows[:2]:
        if _triton() or name == "inductor.log":
            costs(one_line(lambda row=row: row.kernel.program({})))


def use_winner(content: bytes, name: str) -> None:
    """Read a file without times, which is never a table of times."""
    try:
        one_line(lambda: perflex.load_times(written(content, name), {"launch": launch}))
    except PerflexError:
        return
    msg = "times were read where there are none"
    raise AssertionError(msg)


def use_code(content: bytes, case: dict[str, Any]) -> None:
    code = code_of(case, text_of(content))
    costs(one_line(lambda: code.program(launch_of(case), most=16)))


def one_line(read: Any) -> Any:
    """Return what is read; its error must be one line."""
    try:
        return read()
    except PerflexError as error:
        if "\n" in str(error):
            msg = f"lines: {str(error)!r}"
            raise AssertionError(msg) from error
        raise
