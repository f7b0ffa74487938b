"""DG differentiation and finite differences are the paper's: access patterns and tags."""

import pytest

from perflex.features import Target, counts_of, extract_scop, parse_feature
from uipick import ALL_GENERATORS, KernelCollection
from uipick.generators.dg_diff import DG_DIFF_TAGS

VARIANTS = list(DG_DIFF_TAGS)
TILES = [
    # Work-group and tile, active and idle work-items, halo, stride of gid(0), lid(1) in local memory (Section 8.5).
    {"tile": 16, "active": 196, "idle": 60, "gid0": 14, "lid1": 16, "afr": 1.3061224489795917},
    {"tile": 18, "active": 256, "idle": 68, "gid0": 16, "lid1": 18, "afr": 1.265625},
]


def _dg(one, variant, *more):
    return one("dg_diff", "dtype:float32", "groups_fit:True", f"variant:{variant}", "nelements:4096", *more)


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


def test_the_tags_kept_are_the_variant_s():
    kernels = KernelCollection(ALL_GENERATORS).generate_kernels(
        ["dg_diff_mem", "dtype:float32", "groups_fit:True", "nelements:4096"]
    )
    found = [(kernel.arguments["variant"], kernel.arguments["keep"]) for kernel in kernels]
    assert found == [(v, k) for v, (d, u, _) in DG_DIFF_TAGS.items() for k in (d, u, f"{d}_{u}")]
