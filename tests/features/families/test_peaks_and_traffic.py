"""Times at the peaks of a machine, and the traffic of all cores: by hand and by enumeration of addresses."""

import csv
from dataclasses import replace
from itertools import product
from math import ceil
from pathlib import Path

import loopy as lp
import numpy as np
import pytest

from perflex import load_machine
from perflex.errors import MachineError
from perflex.features import Target, extract_scop, kernel_feature_values, parse_feature, source_kernel
from perflex.features.cpu.read_nests import read_nests
from perflex.features.families.peaks import PEAKS
from sample_kernels import make
from uipick import ALL_GENERATORS, KernelCollection

ALL = PEAKS.examples
SIMULATED = Path(__file__).parents[4] / "shared" / "data" / "gpu_kernels" / "simulated_gpu" / "simulated_gpu.csv"


def kernel(*tags):
    (found,) = KernelCollection(ALL_GENERATORS).generate_kernels(list(tags))
    return found


def copy(nelements):
    return kernel("gmem_copy", "dtype:float32", "lsize_0:256", "width:1", "groups_fit:True", f"nelements:{nelements}")


def values(one, machine="V100", names=ALL, **options):
    return kernel_feature_values(names, one, one.sizes, 32, machine=machine, **options)


def test_a_copy_by_hand():
    n = 1 << 24
    found = values(copy(n))
    groups, clock = n // 256, 1.38e9
    # 65536 work-groups on 80 units: the busiest has 820, the mean is 819.2.
    busiest = ceil(groups / 80) * 80 / groups
    assert found["f_peak_dram"] == pytest.approx(8 * n / 800e9, rel=1e-3)
    assert found["f_peak_l2"] == pytest.approx(8 * n / 2500e9, rel=1e-3)
    # A load and a store of each sub-group: one line, 0.75 cycles of look-up but a whole one of data.
    assert found["f_peak_l1"] == pytest.approx(2 * n / 32 / (80 * clock) * busiest, rel=1e-3)
    assert found["f_peak_group"] == pytest.approx(groups / 640e6)
    # 32 load/store units take the addresses of a sub-group's load or store in a cycle, 16 of a T4 in two.
    assert found["f_peak_ldst"] == pytest.approx(2 * n / 32 / (80 * clock) * busiest, rel=1e-3)
    turing = values(copy(n), "T4", ["f_peak_ldst"])["f_peak_ldst"]
    assert turing == pytest.approx(2 * 2 * n / 32 / (40 * 1.59e9) * ceil(groups / 40) * 40 / groups, rel=1e-3)
    # One load after the other: none, but it misses everywhere; of six instructions every other waits for four cycles;
    # 8 resident work-groups, so 103 waves.
    assert found["f_peak_latency"] == pytest.approx(ceil(groups / 640) * (316.7e-9 + 6 / 2 * 4 / clock), rel=1e-2)
    for absent in ("local", "fp32", "fp64", "special", "atomic", "atomic_local"):
        assert found[f"f_peak_{absent}"] == 0


def test_fewer_work_groups_than_units_use_only_so_many():
    tags = ("op_chain", "operation:madd", "dtype:float32", "lsize_0:128", "chains:8", "m:256")
    alone, one_each, one_more = (
        values(kernel(*tags, f"nitems:{128 * groups}"))["f_peak_fp32"] for groups in (1, 80, 81)
    )
    # 8 chains of 256 multiply-adds by 4 sub-groups, one on each scheduler with 16 lanes: 2 cycles each.
    assert alone == pytest.approx(8 * 256 * 2 / 1.38e9, rel=0.05)
    assert one_each == pytest.approx(alone)
    assert one_more == pytest.approx(2 * alone)


def test_each_sub_group_takes_a_cycle_at_each_barrier():
    one = kernel(
        "barrier_local", "dtype:float32", "lsize_0:16", "lsize_1:4", "groups_fit:True", "nelements:1048576", "m:64"
    )
    groups = 1048576 // 64
    expected = groups * 64 * 2 / (80 * 1.38e9) * ceil(groups / 80) * 80 / groups
    assert values(one)["f_peak_barrier"] == pytest.approx(expected, rel=1e-3)


UPDATES = """__global__ void add(int *count, double *sum, const int *bin) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < N) %s;
}"""


@pytest.mark.parametrize(
    ("update", "cycles"),
    [
        # Compilers add up what a sub-group adds to one integer, and hardware adds floats one after the other.
        ("atomicAdd(&count[0], 1)", 65536 / 32),
        ("atomicAdd(&sum[0], 1.0)", 65536 * 3.2),
        # What is swapped has no sum.
        ("atomicExch(&count[0], i)", 65536),
        # 256 words are 8 lines, which take three words in two cycles each.
        ("atomicAdd(&count[threadIdx.x], 1)", 65536 / 8 / 1.5),
        # 36 different words of the whole GPU in a cycle.
        ("atomicAdd(&count[i], 1)", 65536 / 36),
    ],
)
def test_updates_of_a_line_wait_for_one_another(update, cycles):
    scop = source_kernel(UPDATES % update, "add", local=256, groups=256, defines={"N": "65536"}, language="cuda").scop(
        {}
    )
    (found,) = kernel_feature_values(["f_peak_atomic"], scop, {}, machine="V100").values()
    assert found == pytest.approx(cycles / 1.38e9, rel=1e-3)


def test_integer_products_take_longer_where_they_are_made_of_others():
    one = kernel("op_chain", "operation:mul", "dtype:int32", "lsize_0:128", "chains:8", "nitems:65536", "m:64")
    v100, p100 = (values(one, machine)["f_peak_int32"] for machine in ("V100", "P100"))
    # Three instructions of 16 bits for each product, and fewer units at a lower clock.
    assert p100 / v100 == pytest.approx(3 * 80 * 1.38 / (56 * 1.303), rel=0.1)


@pytest.mark.parametrize(
    ("feature", "fact"),
    [
        ("f_peak_l2", "l2_bandwidth"),
        ("f_peak_group", "group_start_rate"),
        ("f_peak_issue", "clock_hz"),
        ("f_peak_issue", "schedulers_per_unit"),
    ],
)
def test_a_missing_fact_is_named(feature, fact):
    lacking = replace(load_machine("V100"), register_files_per_unit=4, **{fact: None})
    with pytest.raises(MachineError, match=fact):
        values(copy(1 << 20), lacking, [feature])


@pytest.mark.skipif(not SIMULATED.exists(), reason=f"no {SIMULATED}")
@pytest.mark.slow
def test_a_simulators_sectors_and_instructions():
    machine, name = load_machine("GPGPU-Sim-QV100-20SM"), "gpgpusim_20sm"
    with SIMULATED.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["device"] == name and "cal" in row["role"]]
    assert len(rows) == 28
    deviations = []
    for row in rows:
        one = kernel(*row["tags"].split())
        found = values(one, machine, ["f_vol_l2_l1_load", "f_vol_l2_l1_store", "f_peak_issue"])
        assert found["f_vol_l2_l1_load"] / 32 == pytest.approx(int(row["l2_read_sectors"]))
        assert found["f_vol_l2_l1_store"] / 32 == pytest.approx(int(row["l2_write_sectors"]))
        # The busiest unit's instructions, as if all had as many.
        busiest = ceil(int(row["groups"]) / 20) * 20 / int(row["groups"])
        issued = found["f_peak_issue"] * 20 * 4 * machine.clock_hz / busiest
        # Short kernels are mostly the arithmetic of addresses, which PTX spells out.
        if int(row["warp_instructions"]) > 90_000:
            deviations.append(abs(np.log(issued / int(row["warp_instructions"]))))
    assert len(deviations) > 10
    assert np.median(deviations) < np.log(1.25)


GOLD = load_machine("Gold-6248")  # 20 cores with 32 KiB and 1 MiB each, 64-byte lines
TARGET = Target(sub_group_size=16, machine=GOLD)
ONE_CORE = Target(sub_group_size=16, machine=replace(GOLD, cores=1))
LINE = 64


def value(scop, name, target=TARGET, **sizes):
    return float(parse_feature(f"f_traffic_{name}").value(scop, sizes, target))


def copied(wide, high):
    """Copy a matrix of n rows and m columns, in groups of so many columns and rows."""
    kernel = make("{[i,j]: 0<=i<n and 0<=j<m}", "out[i,j] = v[i,j]", {"v": np.float32})
    kernel = lp.assume(kernel, f"n mod {high} = 0 and m mod {wide} = 0 and n >= {high} and m >= {wide}")
    kernel = lp.split_iname(kernel, "j", wide, outer_tag="g.0", inner_tag="l.0")
    return extract_scop(lp.split_iname(kernel, "i", high, outer_tag="g.1", inner_tag="l.1"))


def pieces_by_enumeration(rows, columns, wide, high):
    """Return how often the address jumps when cores walk parts of a matrix group by group, row by row in each."""
    groups = product(range(rows // high), range(columns // wide), range(high), range(wide))
    addresses = np.array([(gi * high + i) * columns + gj * wide + j for gi, gj, i, j in groups])
    jumps = np.diff(addresses) != 1
    jumps[[part[-1] for part in np.array_split(np.arange(len(addresses)), GOLD.cores)][:-1]] = True
    return 1 + int(np.sum(jumps))


@pytest.mark.parametrize(("wide", "high"), [(16, 16), (32, 4), (64, 2), (256, 1)])
def test_pieces_of_a_copy(wide, high):
    scop, rows, columns = copied(wide, high), 256, 1024
    # Loads, lines fetched for stores, and lines written back.
    assert value(scop, "bytes_l2", n=rows, m=columns) == pytest.approx(3 * 4 * rows * columns)
    expected = 3 * pieces_by_enumeration(rows, columns, wide, high)
    # At the ends of rows some pieces join, which the formula leaves out.
    assert value(scop, "streams_l2", n=rows, m=columns) == pytest.approx(expected, rel=0.05)
    assert value(scop, "store_streams_l2", n=rows, m=columns) == pytest.approx(expected / 3, rel=0.05)


ROW_BY_ROW = copied(64, 4)
ONE_GROUP = make("{[i,j]: 0<=i<256 and 0<=j<n}", "out[256*j + i] = v[256*j + i]", {"v": np.float32})
ONE_GROUP = extract_scop(lp.tag_inames(ONE_GROUP, {"i": "l.0"}))


@pytest.mark.parametrize(("scop", "name", "cores", "shape", "stays"), [
    # 20 cores have 20 MiB of second levels together, one work-group has the MiB of one: 16 and 32, 0.5 and 8 MiB.
    (ROW_BY_ROW, "l3", 20, (1024, 2048), True), (ROW_BY_ROW, "l3", 20, (2048, 2048), False),
    (ONE_GROUP, "l3", 20, (256, 256), True), (ONE_GROUP, "l3", 20, (4096, 256), False),
    (ONE_GROUP, "mem", 20, (4096, 256), True),
    # The pages of 8 MiB stay mapped; with 20 cores, those of 160 MiB: 4, 16 and 128 MiB.
    (ROW_BY_ROW, "tlb", 1, (1024, 512), True), (ROW_BY_ROW, "l3", 1, (1024, 512), False),
    (ROW_BY_ROW, "tlb", 1, (2048, 1024), False), (ROW_BY_ROW, "tlb", 20, (4096, 4096), True),
])  # fmt: skip
def test_what_fits_caches_or_mapped_pages_stays_there(scop, name, cores, shape, stays):
    moved = value(scop, f"bytes_{name}", ONE_CORE if cores == 1 else TARGET, n=shape[0], m=shape[1])
    assert moved == pytest.approx(0 if stays else 3 * 4 * shape[0] * shape[1])


def test_work_groups_need_a_number_of_cores():
    lacking = replace(TARGET, machine=replace(GOLD, cores=None))
    with pytest.raises(MachineError, match="no fact cores"):
        value(ROW_BY_ROW, "bytes_l2", lacking, n=1024, m=1024)
    # One work-group runs on one core, and so do loops alone.
    plain = extract_scop(make("{[i]: 0<=i<n}", "out[i] = v[i]", {"v": np.float32}))
    assert value(plain, "bytes_l2", lacking, n=1 << 20) == value(plain, "bytes_l2", n=1 << 20) > 0


def test_traffic_at_arrays_of_sizes():
    found = parse_feature("f_traffic_bytes_l3").value(ONE_GROUP, {"n": np.array([256, 4096])}, TARGET)
    assert found.tolist() == pytest.approx([0, 3 * 4 * 256 * 4096])


def column_sums():
    kernel = make("{[i,j]: 0<=i<n and 0<=j<m}", "out[j] = sum(i, v[i,j])", {"v": np.float32})
    kernel = lp.assume(kernel, "n >= 1 and m mod 64 = 0 and m >= 64")
    return extract_scop(lp.split_iname(kernel, "j", 64, outer_tag="g.0", inner_tag="l.0"))


@pytest.mark.parametrize("name", ["bytes_l2", "streams_l3", "bytes_mem", "bytes_tlb", "pages"])
def test_traffic_at_sizes_of_which_some_fit_all_caches_is_that_of_each(name):
    scop, rows = column_sums(), [1, 64, 4096, 65536]
    together = parse_feature(f"f_traffic_{name}").value(scop, {"n": np.array(rows), "m": np.array(2048)}, TARGET)
    assert together.tolist() == pytest.approx([value(scop, name, n=one, m=2048) for one in rows])
    assert together[0] == 0 < together[-1]


def test_walks_down_columns_jump_at_each_vector():
    scop, rows, columns = column_sums(), 4096, 4096
    lines = rows * columns * 4 // LINE
    # A vector of 16 floats is a line: each row that it walks over is another piece (and few for the sums).
    assert value(scop, "streams_l2", n=rows, m=columns) == pytest.approx(lines, rel=0.01)
    assert value(scop, "bytes_l2", n=rows, m=columns) == pytest.approx(lines * LINE, rel=0.01)


def test_pages_are_forgotten_where_a_column_has_more_than_the_tlb():
    scop, columns = column_sums(), 2048
    # A row is two pages. 1024 of them are in the TLB for the next vector, of 4096 each step is another page.
    few, many = (value(scop, "pages", ONE_CORE, n=rows, m=columns) for rows in (1024, 4096))
    vectors = columns // 16
    assert many == pytest.approx(4096 * vectors, rel=0.05)
    assert few < 0.1 * 1024 * vectors


def test_work_items_that_end_their_loop_before_the_next_one_begins():
    scop, rows, columns = column_sums(), 2048, 65 * 64
    alone = replace(TARGET, lock_step=False)
    # A column's lines, 128 KiB, are more than L1: each work-item fetches them anew. L2 keeps them for the next 15.
    assert value(scop, "bytes_l2", alone, n=rows, m=columns) == pytest.approx(rows * columns * LINE, rel=0.01)
    assert value(scop, "bytes_l3", alone, n=rows, m=columns) == pytest.approx(rows * columns * 4, rel=0.01)


@pytest.mark.parametrize("lock_step", [True, False])
def test_rows_written_side_by_side_do_not_bring_in_what_is_between_them(lock_step):
    # Rows of 2 KiB: in a cache of 64 sets, lines of all of them meet in two sets, and none stays.
    rows, wide = 100, 512
    terms = " + ".join(f"v[i + {wide * row}]" for row in range(rows))
    kernel = lp.split_iname(make(f"{{[i]: 0<=i<{wide}}}", f"out[i] = {terms}", {"v": np.float32}), "i", 256,
                            outer_tag="g.0", inner_tag="l.0")  # fmt: skip
    scop, target = extract_scop(kernel), replace(TARGET, lock_step=lock_step)
    # A vector takes all of a line; beside the rows are the results, whose lines are fetched and written back.
    assert value(scop, "bytes_l2", target) == pytest.approx((rows + 2) * wide * 4, rel=0.02)
    assert value(scop, "bytes_l2", Target(1, GOLD)) == pytest.approx((rows + 2) * wide * LINE, rel=0.02)


@pytest.mark.parametrize(("index", "offset", "streams"), [
    # 16 groups of 32 work-items reach over 512 elements in a row; side by side with a stride of 64, over 2000.
    ("get_global_id(0)", 511, {2, 1}), ("get_global_id(0)", 512, {1}),
    ("get_group_id(0) + 64*get_local_id(0)", 640, {2, 1}), ("get_group_id(0) + 64*get_local_id(0)", 4096, {1}),
    # Elements in one line stay together.
    ("0", 15, {2, 1}), ("0", 16, {1}),
])  # fmt: skip
def test_accesses_that_never_meet_are_apart(index, offset, streams):
    code = f"kernel void f(global float *y, global float *x) {{ size_t i = {index}; y[i] = x[i] + x[i + {offset}]; }}"
    nests = read_nests(source_kernel(code, "f", local=32, groups=16).scop({}), (16, 16)).nests
    assert {len(group.streams) for group in nests[0].groups} == streams


def latency(body, groups, machine="V100", **options):
    text = "__global__ void f(float *x, float *y) {\n__shared__ float part[256];\nint i = threadIdx.x;\n%s\n}"
    scop = source_kernel(text % body, "f", local=256, groups=groups, language="cuda", **options).scop({})
    (found,) = kernel_feature_values(["f_peak_latency"], scop, {}, machine=machine).values()
    return found * 1.38e9


SERIAL = "for (int j = 1; j < 4000; j++) x[j] = x[j] + x[j - 1];"


def test_one_work_item_that_runs_long_delays_the_launch():
    alone = latency(f"if (blockIdx.x == 0 && i == 0) {SERIAL}", 1)
    # A load waits in one of four iterations at least, here for L1.
    assert alone > 1000 * load_machine("V100").need("l1_latency")
    # As long with other work-groups beside it, of which none waits; its own instructions (4 %) count as a mean.
    assert latency(f"if (blockIdx.x == 0 && i == 0) {SERIAL}", 640) == pytest.approx(alone, rel=0.05)
    # Where each work-group has one, each of ten waves takes as long, or longer where they get in each other's way.
    assert 10 * alone <= latency(f"if (i == 0) {SERIAL}", 6400) < 20 * alone


def test_a_work_group_waits_for_the_sub_group_that_does_most():
    steps = "".join(f"if (i < {s}) part[i] += part[i + {s}]; __syncthreads();" for s in (128, 64, 32, 16, 8, 4, 2, 1))
    started, reduced = (latency(f"part[i] = x[i]; __syncthreads(); {body}", 1) for body in ("", steps))
    # Eight steps, of which the first sub-group does all: a load of local memory, and a barrier with 30 cycles more.
    assert reduced - started > 8 * (2 * load_machine("V100").need("local_latency") + 30)
    assert reduced - started < 8 * (2 * load_machine("V100").need("local_latency") + 30 + 30)


def test_updates_of_a_float_in_local_memory_follow_one_another():
    update = "__syncthreads(); atomicAdd(&part[%s], 1.0f);"
    nothing, own, one = (latency(update % where if where else "__syncthreads();", 1) for where in ("", "i", "0"))
    # Loops of compare-and-swap: 255 more of them for one word than for a word each.
    assert one - own == pytest.approx(255 * 127, rel=0.01)
    assert 127 <= own - nothing < 200


def test_work_groups_that_take_turns_add_waits_and_instructions():
    # All local memory of a unit for each work-group, whose barriers end what may be hidden.
    body = "__shared__ float part[8000]; part[i] = x[i]; __syncthreads(); for (int k = 0; k < 2000; k++) "
    body += "x[i] += part[(7 * i + k) % 8000]; __syncthreads(); x[i] = part[i];"
    text = f"__global__ void one(float *x) {{ int i = threadIdx.x; {body} }}"
    scop = source_kernel(text, "one", local=256, groups=8000).scop()
    names = ["f_peak_local", "f_peak_issue", "f_peak_ldst", "f_peak_latency"]
    alone = kernel_feature_values(names, scop, {}, machine=replace(load_machine("V100"), local_bytes=32000))
    together = kernel_feature_values(names, scop, {}, machine="V100")
    spent = max(alone[name] for name in names[:3])
    # Of one that is alone the smooth maximum is the sum of what it waits for and executes.
    smooth = (alone["f_peak_latency"] ** 3.5 + spent**3.5) ** (1 / 3.5)
    assert smooth > 1.05 * spent
    assert together["f_peak_latency"] < 0.5 * alone["f_peak_latency"]


def test_banks_of_turing_serve_a_word_in_every_other_cycle():
    tags = ["lmem_load", "dtype:float32", "lsize_0:64", "lid_stride_0:1", "chains:2", "ngroups:1024", "m:512"]
    (one,) = KernelCollection(ALL_GENERATORS).generate_kernels(tags)
    turing = load_machine("T4")
    found = [
        values(one, machine, ["f_peak_local"])["f_peak_local"]
        for machine in (turing, replace(turing, compute_capability=8.6))
    ]
    assert found[0] == pytest.approx(2 * found[1], rel=1e-12)
