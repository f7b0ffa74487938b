"""Features of descriptions against counts from the Scop of single configurations, and against hardware counters."""

import sys
from pathlib import Path

import pytest

from perflex import estimate_volumes, load_description, load_machine
from perflex.errors import UnsupportedKernelError
from perflex.features import count_features
from perflex.search.described.description import platform_of

sys.path.append(str(Path(__file__).parents[3] / "examples"))

from described_scops import described_scop

TURING = "RTX-2080-Ti"
CONVOLUTIONS = [
    {"block_size_x": 48, "block_size_y": 4, "tile_size_x": 2, "tile_size_y": 3, "use_shmem": 1, "use_padding": 0},
    {"block_size_x": 48, "block_size_y": 4, "tile_size_x": 2, "tile_size_y": 3, "use_shmem": 1, "use_padding": 1},
    {"block_size_x": 32, "block_size_y": 2, "tile_size_x": 1, "tile_size_y": 4, "use_shmem": 0, "use_padding": 0},
    {"block_size_x": 16, "block_size_y": 16, "tile_size_x": 3, "tile_size_y": 2, "use_shmem": 1, "use_padding": 0},
    {"block_size_x": 80, "block_size_y": 1, "tile_size_x": 1, "tile_size_y": 1, "use_shmem": 0, "use_padding": 0},
]
GEMMS = [
    {"MWG": 64, "NWG": 32, "MDIMC": 8, "NDIMC": 16, "MDIMA": 16, "NDIMB": 8, "VWM": 4, "VWN": 2, "SA": 1, "SB": 1},
    {"MWG": 32, "NWG": 64, "MDIMC": 16, "NDIMC": 8, "MDIMA": 8, "NDIMB": 16, "VWM": 1, "VWN": 4, "SA": 1, "SB": 0},
    {"MWG": 64, "NWG": 64, "MDIMC": 32, "NDIMC": 8, "MDIMA": 32, "NDIMB": 32, "VWM": 2, "VWN": 1, "SA": 0, "SB": 1},
    {"MWG": 128, "NWG": 16, "MDIMC": 16, "NDIMC": 16, "MDIMA": 16, "NDIMB": 16, "VWM": 8, "VWN": 1, "SA": 1, "SB": 1},
]


def features_of(name, settings):
    found = load_description(name).compute(settings, platform_of(TURING))
    return {feature: float(column[0]) for feature, column in found.items()}


def counted(scop, identifier, sub_group_size=32):
    found = count_features(scop, {}, identifiers=[identifier], sub_group_size=sub_group_size)
    return sum(feature.value for feature in found)


def convolution(settings):
    across = settings["block_size_x"] * settings["tile_size_x"]
    down = settings["block_size_y"] * settings["tile_size_y"]
    # 80 wide work-groups do not divide the image: the guarded form.
    width = 2 * across if settings["block_size_x"] != 80 else across + 40
    return {"read_only": 0, "image_width": width, "image_height": 3 * down, **settings}


@pytest.mark.parametrize("settings", CONVOLUTIONS)
def test_features_of_convolutions_are_counts_of_their_scops(settings):
    settings = convolution(settings)
    scop = described_scop(load_description("convolution"), settings)
    found = features_of("convolution", settings)
    items = settings["block_size_x"] * settings["block_size_y"]
    assert found["f_groups"] == counted(scop, "f_thread_groups")
    assert found["f_groups"] * found["f_sub_groups_per_group"] == counted(scop, "f_sub_groups")
    assert found["f_madds"] == counted(scop, "f_op_float32_madd")
    if settings["use_shmem"]:
        assert found["f_loads"] == counted(scop, "f_mem_access_local_float32_load")
        volumes = estimate_volumes(scop, {}, load_machine(TURING), registers=32).total
        assert found["f_local_wavefronts"] == pytest.approx(volumes.local_wavefronts_load, rel=1e-9)
        assert counted(scop, "f_sync_barrier_local") == 1
        # Copies are counted per sub-group as if all of its work-items took part in the last one.
        executed = counted(scop, "f_mem_access_array:image_global_float32_load", sub_group_size=1) / min(items, 32)
        assert executed <= found["f_staging"] <= 2.5 * executed
    else:
        # Global accesses are counted per work-item.
        loads = counted(scop, "f_mem_access_array:image_global_float32_load", sub_group_size=1)
        sub_groups = found["f_groups"] * found["f_sub_groups_per_group"]
        assert found["f_loads"] / sub_groups == loads / (found["f_groups"] * items)


@pytest.mark.parametrize("settings", GEMMS)
def test_features_of_gemms_are_counts_of_their_scops(settings):
    settings = {"M": 2 * settings["MWG"], "N": 2 * settings["NWG"], "K": 64, **settings}
    scop = described_scop(load_description("gemm"), settings)
    found = features_of("gemm", settings)
    items = settings["MDIMC"] * settings["NDIMC"]
    assert found["f_madds"] == counted(scop, "f_op_float32_madd")
    tiles = {"a": ("SA", "f_loads_a", "f_stage_a"), "b": ("SB", "f_loads_b", "f_stage_b")}
    for array, (staged, loads, copies) in tiles.items():
        executed = counted(scop, f"f_mem_access_array:{array}_global_load", sub_group_size=1)
        sub_groups = found["f_groups"] * found["f_sub_groups_per_group"]
        from_global = found[copies if settings[staged] else loads]
        assert executed / (found["f_groups"] * items) == from_global / sub_groups
        if settings[staged]:
            assert counted(scop, f"f_mem_access_array:{array}_tile_local_load") == found[loads]
    barriers = 2 * 64 / 32 if settings["SA"] or settings["SB"] else 0
    assert found["f_barriers"] == barriers * found["f_groups"] * found["f_sub_groups_per_group"]
    if settings["SA"] and not settings["SB"]:
        volumes = estimate_volumes(scop, {}, load_machine(TURING), registers=64)
        assert found["f_wavefronts_a"] == pytest.approx(volumes.total.local_wavefronts_load, rel=1e-9)
        assert found["f_stage_wavefronts"] == pytest.approx(volumes.total.local_wavefronts_store, rel=1e-9)


@pytest.mark.parametrize("settings", [s for s in GEMMS if s["SB"]])
def test_vectors_that_neighbours_share_are_served_at_once(settings):
    """Wavefronts of B: distinct words on one bank over the whole sub-group, by enumeration."""
    settings = {"M": settings["MWG"], "N": settings["NWG"], "K": 32, **settings}
    found = features_of("gemm", settings)
    wide, each = min(settings["VWN"], 4), settings["NWG"] // settings["NDIMC"]
    words = {each * (lane // settings["MDIMC"]) + part for lane in range(32) for part in range(wide)}
    conflicts = max(sum(word % 32 == bank for word in words) for bank in range(32))
    assert found["f_wavefronts_b"] == found["f_loads_b"] * conflicts


# Work-group, tile, wavefronts of local loads counted by an RTX 2080 Ti per sub-group (benchmark_hub of
# AutoTuningAssociation, commit 8eeb99e, KTT's 15 x 15 convolution of 4096 x 4096).
COUNTERS = [
    ((32, 2), (1, 4), 316.90), ((32, 4), (1, 2), 285.0), ((32, 4), (1, 6), 527.21), ((32, 4), (2, 2), 570.48),
    ((32, 8), (1, 2), 345.0), ((32, 8), (1, 5), 706.38), ((32, 16), (1, 2), 450.0), ((32, 16), (2, 2), 900.0),
]  # fmt: skip


@pytest.mark.parametrize(("items", "tile", "wavefronts"), COUNTERS)
def test_loads_of_rows_shared_by_outputs_are_those_of_hardware(items, tile, wavefronts):
    settings = dict(zip(("block_size_x", "block_size_y", "tile_size_x", "tile_size_y"), (*items, *tile), strict=True))
    found = features_of("convolution", {**settings, "read_only": 0, "use_padding": 0, "use_shmem": 1})
    sub_groups = found["f_groups"] * found["f_sub_groups_per_group"]
    assert found["f_local_wavefronts"] / sub_groups == pytest.approx(wavefronts, rel=0.01)


def test_what_has_no_scop_is_refused():
    with pytest.raises(UnsupportedKernelError, match="has no Scops"):
        described_scop(load_description("pnpoly"), {})
    with pytest.raises(UnsupportedKernelError, match="breaks a constraint"):
        described_scop(load_description("gemm"), {**GEMMS[0], "MWG": 8})
