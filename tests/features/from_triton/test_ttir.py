"""TTIR that is damaged, of another stage, or holds what cannot be followed, and what is counted of samples."""

from __future__ import annotations

import gzip
import json
import random
from contextlib import suppress

import numpy as np
import pytest

from perflex.errors import PerflexError, UnsupportedKernelError
from perflex.features.from_triton.counting import TileCode
from perflex.features.from_triton.interpreter import Launch
from support.triton_data import DATA, code_of, launch_of, stored

# What the programs of these do, values in memory decide, which their launches here do not give.
BY_DATA = {"atomics", "branches", "casts", "descriptors", "functions", "loops", "returns", "dot_scaled"}


def further() -> dict[str, dict[str, dict[str, str]]]:
    return dict(json.loads(gzip.decompress((DATA / "more_operations.json.gz").read_bytes()))["ttir"])


@pytest.mark.parametrize("name", sorted(further()))
def test_further_operations_are_counted_or_refused(name: str) -> None:
    for texts in further()[name].values():
        for text in texts.values():
            code = TileCode(text)
            kernel, _ = code.parsed
            numbers = {name: 64 for name, kind in zip(kernel.names, kernel.types, strict=True) if not kind.pointer}
            launch = Launch(numbers, {}, (3, 1, 1))
            if name == "atomic_memory":
                # How often a program asks, others decide.
                with pytest.raises(UnsupportedKernelError, match=r"tt.atomic_poll .* what it does with memory"):
                    code.program(launch)
            elif name in BY_DATA:
                with pytest.raises(UnsupportedKernelError, match=r"depends on|with scales"):
                    code.program(launch)
            else:
                assert any(one.direction != "load" and one.elements for one in code.program(launch).accesses)


def test_atomic_loads_and_stores_count() -> None:
    text = further()["atomic_memory"]["3.9.0"]["80"]
    kept = [line for line in text.split("\n") if not any(word in line for word in ("%8", "%9"))]
    found = TileCode("\n".join(kept)).program(Launch({"arg2": 40}, {}, (3, 1, 1)))
    # Each of three programs has a tile of 64 integers, 40 of which its mask holds: five sectors.
    seen = [(one.array, one.direction, one.elements, one.sectors) for one in found.accesses]
    assert seen == [("arg0", "load", 120, 15), ("arg1", "store", 120, 15)]


def test_another_stage_is_refused() -> None:
    with pytest.raises(UnsupportedKernelError, match="this is TTGIR"):
        _ = TileCode("#blocked = #ttg.blocked<{sizePerThread = [1]}>\nmodule {}").parsed
    with pytest.raises(UnsupportedKernelError, match="0 kernels"):
        _ = TileCode("module {\n}").parsed


def test_names_must_be_those_of_the_arguments() -> None:
    text = next(iter(stored("add")["ttir"].values()))["80"]
    with pytest.raises(UnsupportedKernelError, match="has 4 arguments in its TTIR, not 1"):
        _ = TileCode(text, ("x",)).parsed


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("end = 64 :", "end = 2147483647 :", "an address depends on operation tt.make_range"),
        ("64x32x", "65536x65536x", "this is no TTIR"),
        ("to %47 step", "to %c9 step", "a loop of 9000000000000 iterations that must be followed one by one"),
        ("tt.addptr %arg10, %cst_3 :", "tt.addptr %36, %cst_3 :", "followed one by one"),
        ("tt.load %arg10, %73", "tt.load %71, %73", "what it accesses is no address"),
    ],
)
def test_huge_numbers_take_neither_time_nor_memory(old: str, new: str, said: str) -> None:
    case = stored("matmul")
    text = next(iter(case["ttir"].values()))["80"].replace(old, new)
    text = text.replace("%0 = tt.get", "%c9 = arith.constant 9000000000000 : i32\n    %0 = tt.get")
    launch = launch_of(case)
    sizes = {**launch.arguments, "K": 1 << 30} if "%36" in new else launch.arguments
    with pytest.raises(UnsupportedKernelError, match=said):
        code_of(case, text).program(Launch(sizes, launch.arrays, launch.grid), most=16)


@pytest.mark.parametrize("seed", range(40))
def test_damaged_text_ends_in_an_error_of_ours(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - no secret
    case = stored(chance.choice(["matmul", "softmax", "fused_moe", "called", "attention_causal", "grouped_matmul"]))
    text = next(iter(case["ttir"].values()))["80"]
    for _ in range(5):
        place, length = chance.randrange(len(text)), chance.randrange(1, 12)
        middle = chance.choice(["", "%", "}", "{", "(", "999999999", "tensor<", "f16", "-1", text[:length]])
        damaged = text[:place] + middle + text[place + length :]
        with suppress(PerflexError):
            code_of(case, damaged).program(launch_of(case), most=8)


def test_what_data_decide_is_named() -> None:
    case = stored("fused_moe")
    case["arrays"]["sorted_token_ids_ptr"].pop("values")
    text = next(iter(case["ttir"].values()))["80"]
    with pytest.raises(UnsupportedKernelError, match="array sorted_token_ids_ptr; give its contents"):
        code_of(case, text).program(launch_of(case))


def test_a_read_beyond_the_given_contents_is_refused() -> None:
    case = stored("fused_moe")
    launch = launch_of(case)
    arrays = {**launch.arrays, "sorted_token_ids_ptr": np.arange(3)}
    text = next(iter(case["ttir"].values()))["80"]
    with pytest.raises(UnsupportedKernelError, match="reads beyond the 3 elements"):
        code_of(case, text).program(Launch(launch.arguments, arrays, launch.grid))


def test_some_programs_stand_for_all() -> None:
    case = stored("matmul_even")
    code = code_of(case, next(iter(case["ttir"].values()))["80"])
    launch = launch_of(case)
    exact, sample = code.program(launch), code.program(launch, most=3)
    assert exact.exact
    assert not sample.exact
    # All of its programs do the same.
    for one, other in zip(exact.accesses, sample.accesses, strict=True):
        assert (one.array, one.elements, one.sectors) == (other.array, other.elements, other.sectors)


def test_neighbours_share_tiles_as_the_grouped_order_says() -> None:
    """8 tiles of rows by 4 of columns, in groups of 2 rows: two programs share a column, four share two rows."""
    case = stored("matmul_even")
    launch = launch_of(case)
    size = {**launch.arguments, "M": 8 * 64, "N": 4 * 32}
    text = next(iter(case["ttir"].values()))["80"]
    group = case["constexprs"]["GROUP_SIZE_M"]
    program = code_of(case, text).program(Launch(size, launch.arrays, (32, 1, 1)))
    rows, columns = (next(one for one in program.accesses if one.array == name) for name in ("a_ptr", "b_ptr"))
    assert rows.different(32) == pytest.approx(8)
    assert columns.different(32) == pytest.approx(4)
    assert rows.different(1) == columns.different(1) == 1
    whole = group * 4
    # Counted by hand: windows of a whole group hold its rows, or those of two groups where they begin inside one.
    order = [(first + place % group, place // group) for first in range(0, 8, group) for place in range(whole)]
    windows = [{row for row, _ in order[start : start + whole]} for start in range(32 - whole + 1)]
    assert rows.different(whole) == pytest.approx(sum(map(len, windows)) / len(windows))


def test_more_programs_stand_for_all_where_data_decide() -> None:
    """Of products of experts, programs beyond the last token have nothing to do; which, contents decide."""
    case = stored("fused_moe_even")
    launch = launch_of(case)
    code = code_of(case, case["ttir"]["3.9.0"]["80"])
    columns = 100
    numbers = {**launch.arguments, "N": 32 * columns}
    many = Launch(numbers, launch.arrays, (5 * columns, 1, 1))
    less = Launch(numbers, {**launch.arrays, "num_tokens_post_padded_ptr": np.array([16])}, many.grid)
    for one in (many, less):
        exact, sample = code.program(one), code.program(one, most=16)
        stores = [next(it for it in found.accesses if it.direction == "store") for found in (exact, sample)]
        assert stores[1].executions == pytest.approx(stores[0].executions, rel=0.05)
    assert code.program(less).accesses[-1].executions == columns
