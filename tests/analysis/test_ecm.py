"""The ECM model as a model string: the reference's rows, overlap hypotheses, cores and domains, in-core time."""

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from perflex import Model, ecm_model, estimate_ecm, in_core_cycles, load_machine, using_machine
from perflex.errors import MachineError, UnsupportedKernelError
from support.ecm_kernels import jacobi3d
from uipick import ALL_GENERATORS, KernelCollection

REFERENCE = Path(__file__).parents[3] / "shared" / "data" / "ecm_reference" / "ecm_single_core_osaca_gcc.csv"
CLX, ROME = load_machine("Gold-6248-SNC-off"), load_machine("EPYC-7452")
TIMES = {"l1": 60.0, "l2": 50.0, "l3": 130.0, "mem": 200.0}


def cycles(machine, in_core, times, cores=1):
    """Return the cycles that the model string gives for so many cycles in core and at each level."""
    model = ecm_model(machine, cores=cores, in_core="3 * f_thread_items")
    on = "" if cores == 1 else f"_cores:{cores}"
    values = {f"f_ecm_cycles_{level}{on}": value for level, value in {"penalty": 0.0, **times}.items()}
    values["f_thread_items"] = np.asarray(in_core) / 3
    return model.evaluate({}, {name: values[name] for name in model.input_features()}) * machine.clock_hz


@pytest.mark.machine
def test_every_row_of_the_reference_recomputes_from_its_parts():
    if not REFERENCE.is_file():
        pytest.skip(f"the reference data are not there ({REFERENCE})")
    with REFERENCE.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 18
    for row in rows:
        times = {level: float(row[column]) for level, column in (("l1", "T_RegL1"), ("l2", "T_L2"), ("l3", "T_L3"))}
        times |= {"mem": float(row["T_MEM"]), "penalty": float(row["T_penalty"])}
        machine = load_machine({"clx": "Gold-6248", "rome": "EPYC-7452"}[row["machine"]])
        assert cycles(machine, float(row["T_comp"]), times) == pytest.approx(float(row["T_ECM"]), abs=0.011), row


def test_the_hypotheses_differ():
    times = {"l1": 1.0, "l2": 2.0, "l3": 4.0, "mem": 8.0}
    assert cycles(CLX, 3.0, times) == pytest.approx(15.0)
    assert cycles(ROME, 3.0, times) == pytest.approx(8.0)
    assert cycles(ROME, 9.0, times) == pytest.approx(9.0)
    first, second, last = ROME.levels
    mixed = replace(ROME, levels=(first, replace(second, overlap="sum"), last))
    many = {level: np.array([value, 20.0]) for level, value in times.items()}
    assert cycles(mixed, 0.0, many) == pytest.approx([10.0, 40.0])  # max(1, 2 + max(4, 8))


# By hand: the sum of all levels (CLX), or the largest (ROME), of one core, with 300 cycles in core.
@pytest.mark.parametrize(
    ("machine", "cores", "expected"),
    [
        (CLX, 1, 440),
        (CLX, 2, 220),
        (CLX, 3, 200),  # the memory limits
        (CLX, 20, 200),
        (ROME, 1, 300),
        (ROME, 8, 200),  # a domain
        (ROME, 16, 200 / (2 * 0.66)),  # two domains, 66 % efficient together
        (ROME, 17, 1 / (0.66 * (2 / 200 + 1 / 300))),
        (ROME, 32, 200 / (4 * 0.66)),
    ],
    ids=str,
)
def test_cores_share_a_domain_s_memory_and_speeds_of_domains_add_up(machine, cores, expected):
    """Not as Equation 7a is printed: that gives T_mem at once, and T(1)/cores from the saturation point on."""
    assert cycles(machine, 300.0, TIMES, cores) == pytest.approx(expected, rel=1e-12)


def test_what_machines_have_not_is_refused():
    for wrong in (0, 33):
        with pytest.raises(MachineError, match="has 32 cores"):
            ecm_model(ROME, cores=wrong)
    with pytest.raises(MachineError, match="has no cache levels"):
        ecm_model("V100")


def kernel(*tags):
    return KernelCollection(ALL_GENERATORS).generate_kernels(tags)[0]


def test_in_core_time_counts_slots_of_floating_point_units():
    """A step of implementation A's last kernel is one multiply-add per point: 8 in a cycle on a core of ROME."""
    up = kernel("pirk", "kernel:up", "dtype:float64", "lsize_0:8", "lsize_1:4", "nx:64", "ny:64", "nz:8")
    for lanes in (1, 32):
        model = Model("f_cl_wall_time", in_core_cycles(ROME, up, sub_group_size=lanes))
        assert model.eval_with_kernel({}, up, up.sizes, sub_group_size=lanes) == 64 * 64 * 8 / 8
    assert in_core_cycles(ROME, kernel("gmem_copy", "dtype:float32", "width:1")) == "0"
    # Groups of eight do not fill a sub-group.
    narrow = kernel("op_chain", "operation:madd", "dtype:float32", "lsize_0:8", "chains:8", "nitems:8192", "m:64")
    one, many = (
        Model("f_cl_wall_time", in_core_cycles(ROME, narrow, sub_group_size=lanes)).eval_with_kernel(
            {}, narrow, narrow.sizes, sub_group_size=lanes
        )
        for lanes in (1, 32)
    )
    assert one == many > 0
    # Five additions and a multiplication per update, of which a core of CLX does 16 in a cycle, one after the other.
    model = Model("f_cl_wall_time", in_core_cycles(CLX, jacobi3d()))
    assert model.eval_with_kernel({}, jacobi3d(), {"M": 18, "N": 34}) == 16 * 32 * 32 * 6 / 16
    with pytest.raises(UnsupportedKernelError, match=r"f_op_float32_sqrt.*supply its in-core time"):
        in_core_cycles(ROME, kernel("flops_sqrt_pattern", "dtype:float32"))


@pytest.mark.parametrize("cores", [1, 4])
def test_the_model_of_a_kernel_is_its_estimate_composed(cores):
    """All of it from a kernel and a machine: volumes and cycles of the estimator, Equations 6 and 7, no parameter."""
    step = kernel("pirk", "kernel:rhs", "dtype:float64", "lsize_0:32", "lsize_1:4", "nx:256", "ny:256", "nz:64")
    model = ecm_model(ROME, cores=cores, in_core=in_core_cycles(ROME, step))
    with using_machine(ROME):
        seconds = model.eval_with_kernel({}, step, step.sizes, sub_group_size=32)
    found = estimate_ecm(step, step.sizes, ROME, cores=cores)
    *of_caches, of_memory = [level.launch_cycles for level in found.levels]
    penalty = found.memory_penalty * found.iterations
    # Each stage adds six neighbours up: five additions, one multiplication, one multiply-add; 8 in a cycle.
    single = max(4 * 7 * 256 * 256 * 64 / 8, *of_caches, of_memory + penalty)
    assert penalty > 0
    assert seconds * ROME.clock_hz == pytest.approx(max(single / cores, of_memory), rel=1e-12)


def seconds_of_jacobi(machine, cores):
    with using_machine(machine):
        return ecm_model(machine, cores=cores).eval_with_kernel({}, jacobi3d(), {"M": 512, "N": 512})


def test_cores_that_share_a_cache_have_their_planes_in_it():
    """Ten cores touch 20 planes of 2 MiB at a time, which a cache of 28 MiB does not hold: three loads per update."""
    bytes_of_memory = 510**3 * (24 + 8 + 8)
    # One plane after the other fits for one core: a is loaded once.
    assert seconds_of_jacobi(CLX, 1) * CLX.clock_hz > estimate(1).level("mem").launch_cycles
    assert estimate(1).level("mem").launch_bytes == pytest.approx(510**3 * 24, rel=0.02)
    assert estimate(10).level("mem").launch_bytes == pytest.approx(bytes_of_memory, rel=0.02)
    assert seconds_of_jacobi(CLX, 10) == pytest.approx(bytes_of_memory / CLX.memory_streams[1].bandwidth, rel=0.06)


def estimate(cores):
    return estimate_ecm(jacobi3d(), {"M": 512, "N": 512}, CLX, cores=cores)


def test_a_penalty_of_the_memory_delays_one_core_but_not_a_full_domain():
    slow = replace(CLX, memory_load_penalty=10.0, memory_store_penalty=10.0)
    lines = 510**3 * 24 / 64
    assert seconds_of_jacobi(slow, 1) - seconds_of_jacobi(CLX, 1) == pytest.approx(10 * lines / CLX.clock_hz, rel=0.02)
    assert seconds_of_jacobi(slow, 20) == seconds_of_jacobi(CLX, 20)
