"""Data volumes and cache volumes of launches in a loop: as often as the loop runs."""

from __future__ import annotations

from dataclasses import replace

import loopy as lp
import pytest

from perflex import estimate_ecm, estimate_volumes, load_machine
from perflex.errors import UnsupportedKernelError
from perflex.features import Scop, Target, extract_scop, parse_feature, scop_from_yaml, scop_to_yaml
from perflex.features.cpu.read_nests import read_nests
from perflex.features.cpu.stream_groups import blocked_nests
from perflex.features.polynomials.cardinality import TooManyOperationsError


def steps(number: int) -> Scop:
    """Two launches with an own array each way, `number` times."""
    kernel = lp.make_kernel(
        [f"{{[s]: 0<=s<{number}}}", "{[i]: 0<=i<n}", "{[k]: 0<=k<n}"],
        """
        for s
            for i
                y[i] = x[i]*2 {id=a}
            end
            ... gbarrier {id=bar, dep=a}
            for k
                z[k] = z[k] + y[n-1-k] {id=c, dep=bar}
            end
            ... gbarrier {id=again, dep=c}
        end
        """,
        [lp.GlobalArg("x, y, z", dtype="float32", shape="n"), ...],
        lang_version=(2018, 2),
    )
    for name in "ik":
        kernel = lp.split_iname(kernel, name, 128, outer_tag="g.0", inner_tag="l.0")
    return extract_scop(lp.assume(kernel, "n mod 128 = 0 and n >= 128"))


def test_loops_that_cannot_be_counted_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """How often something is launched has to be a formula: the description holds nothing else."""

    def too_many(*_: object) -> None:
        raise TooManyOperationsError

    monkeypatch.setattr("perflex.features.from_loopy.extract.card", too_many)
    with pytest.raises(UnsupportedKernelError, match="the loops s around a launch are too complex to count; simplify"):
        steps(7)


@pytest.mark.parametrize("number", [2, 5])
def test_as_often_as_the_loop_runs(number: int) -> None:
    one, many = steps(1), steps(number)
    assert {launch.host_loops for launch in many.launches} == {("s",)}
    assert scop_from_yaml(scop_to_yaml(many)).launches == many.launches
    sizes = {"n": 8192}
    once, often = (estimate_volumes(scop, sizes, load_machine("V100")).features() for scop in (one, many))
    for identifier in ("f_l1_wavefronts", "f_vol_l2_l1_load", "f_vol_dram_load", "f_vol_dram_store"):
        assert often[identifier] == pytest.approx(number * once[identifier])
    target = Target(machine=load_machine("V100"))
    for identifier in ("f_txn_global", "f_txn_l1", "f_txn_l2", "f_inst_ldst_global"):
        feature = parse_feature(identifier)
        assert feature.value(many, sizes, target) == pytest.approx(number * feature.value(one, sizes, target))
    # 64 KiB of a launch do not stay in 32 KiB of L1; all three arrays do in L2.
    once, often = (estimate_ecm(scop, sizes, "clx") for scop in (one, many))
    assert often.iterations == number * once.iterations
    for level in ("L1", "L2"):
        assert often.level(level).launch_load_bytes == pytest.approx(number * once.level(level).launch_load_bytes)
    assert often.level("L3").launch_load_bytes == 0


def test_blocks_are_inside_of_the_loop_around_launches() -> None:
    kernel = lp.make_kernel(
        ["{[s]: 0<=s<4}", "{[i, j]: 0<=i,j<n}", "{[k]: 0<=k<n}"],
        """
        for s
            for i, j
                y[j, i] = x[j, i]*2 {id=a}
            end
            ... gbarrier {id=bar, dep=a}
            for k, j
                z[j, k] = z[j, k] + y[j, k] {id=c, dep=bar}
            end
            ... gbarrier {id=again, dep=c}
        end
        """,
        [lp.GlobalArg("x, y, z", dtype="float32", shape="n, n"), ...],
        lang_version=(2018, 2),
    )
    for name in "ik":
        kernel = lp.split_iname(kernel, name, 128, outer_tag="g.0", inner_tag="l.0")
    kernel = lp.duplicate_inames(kernel, "j", "id:c")
    scop = extract_scop(lp.assume(kernel, "n mod 128 = 0 and n >= 128"))
    nests = read_nests(scop)
    assert [loop.name for loop in nests.nests[0].loops] == ["s", "gid0", "lid0", "j"]
    first = blocked_nests(replace(nests, nests=nests.nests[:1]), ["j"]).nests[0]
    assert [loop.name for loop in first.loops] == ["s", "gid0", "j_blocks", "lid0", "j"]
