"""The ECM model as a model string: the reference's rows, overlap hypotheses, cores and domains, in-core time."""

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from perflex import Model, ecm_model, estimate_ecm, in_core_cycles, load_machine, using_machine
from perflex.errors import MachineError, UnsupportedKernelError
from uipick import ALL_GENERATORS, KernelCollection

REFERENCE = Path(__file__).parents[3] / "shared" / "data" / "ecm_reference" / "ecm_single_core_osaca_gcc.csv"
CLX, ROME = load_machine("Gold-6248-SNC-off"), load_machine("EPYC-7452")
TIMES = {"l1": 60.0, "l2": 50.0, "l3": 130.0, "mem": 200.0}


def cycles(machine, in_core, times, cores=1):
    """Return the cycles that the model string gives for so many cycles in core and at each level."""
    model = ecm_model(machine, cores=cores, in_core="3 * f_thread_items")
    values = {f"f_ecm_cycles_{level}": value for level, value in times.items()}
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
        # In the reference, the penalty is part of the memory's time.
        times["mem"] = float(row["T_MEM"]) + float(row["T_penalty"])
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
    with pytest.raises(UnsupportedKernelError, match=r"f_op_float32_sqrt.*supply its in-core time"):
        in_core_cycles(ROME, kernel("flops_sqrt_pattern", "dtype:float32"))


def test_the_model_of_a_kernel_is_its_estimate_composed():
    """All of it from a kernel and a machine: volumes and cycles of the estimator, Equations 6 and 7, no parameter."""
    step = kernel("pirk", "kernel:rhs", "dtype:float64", "lsize_0:32", "lsize_1:4", "nx:256", "ny:256", "nz:64")
    model = ecm_model(ROME, cores=4, in_core=in_core_cycles(ROME, step))
    with using_machine(ROME):
        seconds = model.eval_with_kernel({}, step, step.sizes, sub_group_size=32)
    of_levels = [level.launch_cycles for level in estimate_ecm(step, step.sizes, ROME).levels]
    # Each stage adds six neighbours up: five additions, one multiplication, one multiply-add; 8 in a cycle.
    single = max(4 * 7 * 256 * 256 * 64 / 8, *of_levels)
    assert seconds * ROME.clock_hz == pytest.approx(max(single / 4, of_levels[-1]), rel=1e-12)
