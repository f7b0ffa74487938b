"""DG differentiation and finite differences are the paper's: generated code, access patterns, executed loads."""

from __future__ import annotations

import re

import loopy as lp
import pytest

from oracles.oclgrind import needs_oclgrind, run_jobs
from perflex.features import Target, counts_of, extract_scop, parse_feature
from uipick import ALL_GENERATORS, KernelCollection
from uipick.generators.dg_diff import DG_DIFF_TAGS

VARIANTS = list(DG_DIFF_TAGS)
TILES = [
    # Work-group and tile, active and idle work-items, halo, stride of gid(0), lid(1) in local memory (Section 8.5).
    {"tile": 16, "active": 196, "idle": 60, "gid0": 14, "lid1": 16, "afr": 1.3061224489795917},
    {"tile": 18, "active": 256, "idle": 68, "gid0": 16, "lid1": 18, "afr": 1.265625},
]


def _lines(kernel):
    code = lp.generate_code_v2(kernel.kernel).device_code()
    code = re.sub(r" ?/\*.*?\*/", "", code[code.index("__kernel") :])
    code = re.sub(r"acc_\w+", "acc", code)
    return [line.strip() for line in code.splitlines() if line.strip() not in {"", "{", "}"}][1:]


def _dg(one, variant, *more):
    return one("dg_diff", "dtype:float32", "groups_fit:True", f"variant:{variant}", "nelements:4096", *more)


def test_plain_dg(one):
    assert _lines(_dg(one, "plain")) == [
        "float acc;",
        "for (int m = 0; m <= -1 + nmatrices; ++m)",
        "acc = 0.0f;",
        "for (int j = 0; j <= -1 + nunit_nodes; ++j)",
        (
            "acc = acc + diff_mat[nunit_nodes * nunit_nodes * m + nunit_nodes * (16 * gid(1) + lid(1)) + j] * "
            "u[nunit_nodes * (16 * gid(0) + lid(0)) + j];"
        ),
        "res[nunit_nodes * nelements * m + nunit_nodes * (16 * gid(0) + lid(0)) + 16 * gid(1) + lid(1)] = acc;",
    ]


def test_dg_with_tiles_of_u(one):
    assert _lines(_dg(one, "u_prefetch")) == [
        "float acc[3];",
        "__local float u_fetch[16 * 16];",
        "for (int m_0 = 0; m_0 <= 2; ++m_0)",
        "acc[m_0] = 0.0f;",
        "for (int j_outer = 0; j_outer <= (-16 + nunit_nodes) / 16; ++j_outer)",
        "barrier(CLK_LOCAL_MEM_FENCE);",
        "u_fetch[16 * lid(1) + lid(0)] = u[nunit_nodes * (16 * gid(0) + lid(1)) + 16 * j_outer + lid(0)];",
        "barrier(CLK_LOCAL_MEM_FENCE);",
        "for (int j_inner = 0; j_inner <= 15; ++j_inner)",
        "for (int m = 0; m <= 2; ++m)",
        (
            "acc[m] = acc[m] + diff_mat[nunit_nodes * nunit_nodes * m + nunit_nodes * (16 * gid(1) + lid(1)) + "
            "16 * j_outer + j_inner] * u_fetch[16 * lid(0) + j_inner];"
        ),
        "for (int m_1 = 0; m_1 <= 2; ++m_1)",
        "res[nunit_nodes * nelements * m_1 + nunit_nodes * (16 * gid(0) + lid(0)) + 16 * gid(1) + lid(1)] = acc[m_1];",
    ]


@pytest.mark.parametrize("variant", ["diff_mat_prefetch", "diff_mat_prefetch_transposed"])
def test_dg_with_tiles_of_diff_mat(one, variant):
    place = "16 * gid(0) + lid(0)"
    u = f"nunit_nodes * ({place}) + 16 * j_outer + j_inner"
    res = f"nunit_nodes * nelements * m + nunit_nodes * ({place}) + 16 * gid(1) + lid(1)"
    if variant.endswith("transposed"):
        u = f"{place} + nelements * (16 * j_outer + j_inner)"
        res = f"nelements * nunit_nodes * m + {place} + nelements * (16 * gid(1) + lid(1))"
    assert _lines(_dg(one, variant)) == [
        "float acc;",
        "__local float diff_mat_fetch[16 * 16];",
        "for (int m = 0; m <= -1 + nmatrices; ++m)",
        "acc = 0.0f;",
        "for (int j_outer = 0; j_outer <= (-16 + nunit_nodes) / 16; ++j_outer)",
        "barrier(CLK_LOCAL_MEM_FENCE);",
        (
            "diff_mat_fetch[16 * lid(1) + lid(0)] = diff_mat[nunit_nodes * nunit_nodes * m + "
            "nunit_nodes * (16 * gid(1) + lid(1)) + 16 * j_outer + lid(0)];"
        ),
        "barrier(CLK_LOCAL_MEM_FENCE);",
        "for (int j_inner = 0; j_inner <= 15; ++j_inner)",
        f"acc = acc + diff_mat_fetch[16 * lid(1) + j_inner] * u[{u}];",
        f"res[{res}] = acc;",
    ]


def test_dg_has_seven_patterns_by_strides_and_twelve_by_tags(one):
    tags, patterns = set(), set()
    for variant in VARIANTS:
        for item in counts_of(extract_scop(_dg(one, variant).kernel)).accesses:
            if item.array.space == "global":
                sizes = {"nmatrices": 3, "nunit_nodes": 64, "nelements": 4096}
                afr = item.work_item_count.evaluate(sizes) / item.footprint.evaluate(sizes)
                strides = (*map(str, item.local_strides), "|", *map(str, item.group_strides))
                tags.add(item.access.tag)
                patterns.add((item.array.name, strides, afr))
    assert tags == {tag for variant in DG_DIFF_TAGS.values() for tag in variant}
    assert len(tags) == 12
    assert len(patterns) == 7


def test_the_layout_gives_lid_0_stride_1(one):
    sizes = {"nmatrices": 3, "nunit_nodes": 64, "nelements": 4096}
    for variant, stride in (("diff_mat_prefetch", "nunit_nodes"), ("diff_mat_prefetch_transposed", "1")):
        scop = extract_scop(_dg(one, variant).kernel)
        _, u, res = DG_DIFF_TAGS[variant]
        for tag, count in ((u, 3 * 64 * 64 * 4096), (res, 3 * 64 * 4096)):
            assert (
                parse_feature(f"f_mem_access_tag:{tag}_lstrides:{{0:{stride}}}").value(scop, sizes, Target()) == count
            )


@pytest.mark.parametrize("row", TILES)
def test_fdiff_tiles_are_the_paper_s(one, row):
    tile, inner = row["tile"], row["tile"] - 2
    kernel = one("fdiff", "dtype:float32", f"tile:{tile}", "groups_fit:True", f"n:{inner}")
    scop, sizes = extract_scop(kernel.kernel), {"n": inner}

    def value(feature, sizes=sizes):
        return parse_feature(feature).value(scop, sizes, Target(1))

    assert value("f_thread_items") == value(f"f_mem_access_tag:uLD_lstrides:{{0:1}}_gstrides:{{0:{row['gid0']}}}")
    assert value("f_thread_items") == tile**2 == row["active"] + row["idle"]
    stores = value(f"f_mem_access_tag:resST_lstrides:{{0:1;1:n}}_gstrides:{{0:{row['gid0']}}}")
    assert stores == row["active"]
    local = f"lstrides:{{0:1;1:{row['lid1']}}}"
    assert value(f"f_mem_access_local_float32_store_{local}") == tile**2
    assert value(f"f_mem_access_local_float32_load_{local}") == 5 * row["active"]
    assert value("f_sync_barrier_local") == 1
    large = {"n": inner * 10**6}
    (u,) = (item for item in counts_of(scop).accesses if item.access.tag == "uLD")
    assert u.work_item_count.evaluate(large) / u.footprint.evaluate(large) == pytest.approx(row["afr"], rel=1e-6)


@pytest.mark.parametrize("tile", [16, 18])
def test_fdiff_code(one, tile):
    lines = _lines(one("fdiff", "dtype:float32", f"tile:{tile}", "groups_fit:True", "n:1008"))
    assert lines[:4] == [
        f"__local float u_fetch[{tile} * {tile}];",
        (
            f"u_fetch[{tile} * lid(1) + lid(0)] = "
            f"u[(n + 2) * ({tile - 2} * gid(1) + lid(1)) + {tile - 2} * gid(0) + lid(0)];"
        ),
        "barrier(CLK_LOCAL_MEM_FENCE);",
        f"if ({tile - 3} + -1 * lid(0) >= 0 && {tile - 3} + -1 * lid(1) >= 0)",
    ]
    assert lines[4].startswith(f"res[n * ({tile - 2} * gid(1) + lid(1)) + {tile - 2} * gid(0) + lid(0)] = u_fetch[")
    assert len(lines) == 5


@pytest.mark.slow
@needs_oclgrind
def test_optimised_code_still_loads_everything():
    collection = KernelCollection(ALL_GENERATORS)
    fit, dg = ["dtype:float32", "groups_fit:True"], ["lsize_0:8", "lsize_1:8", "nunit_nodes:16", "nelements:16"]
    jobs = collection.generate_kernels(["dg_diff", *fit, *dg])
    jobs += collection.generate_kernels(["dg_diff_mem", *fit, *dg])
    jobs += collection.generate_kernels(["fdiff", *fit, "tile:10", "n:16"])
    jobs += collection.generate_kernels(["fdiff_mem", *fit, "tile:10", "n:16", "keep:uLD"])
    results = run_jobs([(job.kernel, job.sizes) for job in jobs], options=[])
    every, tiles = 3 * 16 * 16 * 16, {"diff_mat": 3 * 16 * 16 * 2, "u": 16 * 16 * 2}
    loads = {tag: every for tags in DG_DIFF_TAGS.values() for tag in tags[:2]}
    loads |= {"uUpreLD": tiles["u"], "diffDpreLD": tiles["diff_mat"], "diffDtransLD": tiles["diff_mat"], "uLD": 400}
    for job, found in zip(jobs, results, strict=True):
        if job.generator.endswith("_mem"):
            kept = str(job.arguments["keep"]).split("_")
            assert found.adds == sum(loads[tag] for tag in kept), job.name
        else:
            kept = DG_DIFF_TAGS[job.arguments["variant"]][:2] if job.generator == "dg_diff" else ["uLD"]
            assert found.madds("float32") == (every if job.generator == "dg_diff" else 256), job.name
        assert found.load("global").count == sum(loads[tag] for tag in kept), job.name
