"""Traffic of all cores: bytes, contiguous pieces and pages, against counts by hand and by enumeration of addresses."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import loopy as lp
import numpy as np
import pytest

from perflex import load_machine
from perflex.features import Scop, Target, extract_scop, parse_feature
from sample_kernels import make

GOLD = load_machine("Gold-6248")  # 20 cores with 32 KiB and 1 MiB each, 64-byte lines
TARGET = Target(sub_group_size=16, machine=GOLD)
ONE_CORE = Target(sub_group_size=16, machine=replace(GOLD, cores=1))
LINE = 64


def value(scop: Scop, name: str, target: Target = TARGET, **sizes: int) -> float:
    return float(parse_feature(f"f_traffic_{name}").value(scop, sizes, target))


def copied(wide: int, high: int) -> Scop:
    """Copy a matrix of n rows and m columns, in groups of so many columns and rows."""
    kernel = make("{[i,j]: 0<=i<n and 0<=j<m}", "out[i,j] = v[i,j]", {"v": np.float32})
    kernel = lp.assume(kernel, f"n mod {high} = 0 and m mod {wide} = 0 and n >= {high} and m >= {wide}")
    kernel = lp.split_iname(kernel, "j", wide, outer_tag="g.0", inner_tag="l.0")
    return extract_scop(lp.split_iname(kernel, "i", high, outer_tag="g.1", inner_tag="l.1"))


def pieces_by_enumeration(rows: int, columns: int, wide: int, high: int) -> int:
    """Return how often the address jumps when a matrix is walked group by group, row by row in each."""
    groups = product(range(rows // high), range(columns // wide), range(high), range(wide))
    addresses = np.array([(gi * high + i) * columns + gj * wide + j for gi, gj, i, j in groups])
    return 1 + int(np.sum(np.diff(addresses) != 1))


@pytest.mark.parametrize(("wide", "high"), [(16, 16), (32, 4), (64, 2), (256, 1)])
def test_pieces_of_a_copy(wide: int, high: int) -> None:
    scop, rows, columns = copied(wide, high), 256, 1024
    # Loads, lines fetched for stores, and lines written back.
    assert value(scop, "bytes_l2", n=rows, m=columns) == pytest.approx(3 * 4 * rows * columns)
    expected = 3 * pieces_by_enumeration(rows, columns, wide, high)
    # At the ends of rows some pieces join, which the formula leaves out.
    assert value(scop, "streams_l2", n=rows, m=columns) == pytest.approx(expected, rel=0.05)
    assert value(scop, "store_streams_l2", n=rows, m=columns) == pytest.approx(expected / 3, rel=0.05)


def test_data_that_fit_the_caches_together_stay_there() -> None:
    scop = copied(64, 4)
    # 20 cores have 20 MiB of second levels together.
    assert value(scop, "bytes_l3", n=1024, m=2048) == 0  # 16 MiB
    assert value(scop, "bytes_l3", n=2048, m=2048) == pytest.approx(3 * 4 * 2048**2)  # 32 MiB


def test_one_work_group_has_the_caches_of_one_core() -> None:
    kernel = make("{[i,j]: 0<=i<256 and 0<=j<n}", "out[256*j + i] = v[256*j + i]", {"v": np.float32})
    scop = extract_scop(lp.tag_inames(kernel, {"i": "l.0"}))
    assert value(scop, "bytes_l3", n=256) == 0  # 0.5 MiB
    assert value(scop, "bytes_l3", n=4096) == pytest.approx(3 * 4 * 256 * 4096)  # 8 MiB: less than 20 cores hold
    assert value(scop, "bytes_mem", n=4096) == 0
    found = parse_feature("f_traffic_bytes_l3").value(scop, {"n": np.array([256, 4096])}, TARGET)
    assert found.tolist() == pytest.approx([0, 3 * 4 * 256 * 4096])


def column_sums() -> Scop:
    kernel = make("{[i,j]: 0<=i<n and 0<=j<m}", "out[j] = sum(i, v[i,j])", {"v": np.float32})
    kernel = lp.assume(kernel, "n >= 1 and m mod 64 = 0 and m >= 64")
    return extract_scop(lp.split_iname(kernel, "j", 64, outer_tag="g.0", inner_tag="l.0"))


def test_walks_down_columns_jump_at_each_vector() -> None:
    scop, rows, columns = column_sums(), 4096, 4096
    lines = rows * columns * 4 // LINE
    # A vector of 16 floats is a line: each row that it walks over is another piece (and few for the sums).
    assert value(scop, "streams_l2", n=rows, m=columns) == pytest.approx(lines, rel=0.01)
    assert value(scop, "bytes_l2", n=rows, m=columns) == pytest.approx(lines * LINE, rel=0.01)


def test_pages_are_forgotten_where_a_column_has_more_than_the_tlb() -> None:
    scop, columns = column_sums(), 2048
    # A row is two pages. 1024 of them are in the TLB for the next vector, of 4096 each step is another page.
    few, many = (value(scop, "pages", ONE_CORE, n=rows, m=columns) for rows in (1024, 4096))
    vectors = columns // 16
    assert many == pytest.approx(4096 * vectors, rel=0.05)
    assert few < 0.1 * 1024 * vectors


def test_bytes_stream_beyond_what_the_tlb_maps() -> None:
    scop = copied(64, 4)
    # The pages of 8 MiB stay mapped; with 20 cores, those of 160 MiB. Second levels are smaller.
    assert value(scop, "bytes_tlb", ONE_CORE, n=1024, m=512) == 0  # 4 MiB
    assert value(scop, "bytes_l3", ONE_CORE, n=1024, m=512) > 0
    assert value(scop, "bytes_tlb", ONE_CORE, n=2048, m=1024) == pytest.approx(3 * 4 * 2048 * 1024)  # 16 MiB
    assert value(scop, "bytes_tlb", n=4096, m=4096) == 0  # 128 MiB
