"""The general models: they leave nothing out that their features count, and their kernels determine their costs."""

import re

import numpy as np
import pytest

from perflex import TimingOptions, calibrate, gather_feature_values, load_machine, using_machine
from perflex.features import Target, extract_scop, kernel_feature_values, parse_feature
from perflex.models import load_model, measurement_kernels
from perflex.testing import FakeDevice
from sample_kernels import matmul, pointwise

CPU, CODE, GPU = (load_model(name).model() for name in ("general_cpu", "general_cpu_code", "general_gpu"))
# Costs of any size from 0.1 to 1 ns; the greater ones of what happens once.
TRUE = {name: 1e-10 * (1 + 7 * number % 10) for number, name in enumerate(CPU.params())}
TRUE |= {"p_launch": 5e-6, "p_group": 1e-7, "p_l2": 2e-11, "p_far": 8e-11}
TRUE_OF_GPU = dict(load_model("general_gpu").usual) | {
    "p_launch": 4e-6, "p_l1": 1.3, "p_local": 1.2, "p_fp64": 1.1, "p_l2": 1.2, "p_dram": 1.15,
    "p_issue": 0.9, "p_barrier": 2.3,
}  # fmt: skip
ONCE = TimingOptions(trials=1, min_trials=1)
KERNELS = {
    "tiled": matmul(prefetch=True),
    "plain": matmul(prefetch=False, fit=False),
    "functions": pointwise("exp(x[i]) * tanh(y[i]) + x[i] ** 2.5 + erf(y[i]) / sqrt(x[i])"),
}


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("lanes", [8, 16, 64])
def test_all_work_has_a_cost(name, lanes):
    scop = extract_scop(KERNELS[name])
    counted = parse_feature("f_simd_arith_vector_loop").inventory(scop)
    executed = {one for one in counted if parse_feature(one).value(scop, {"n": 64}, Target(lanes))}
    assert executed
    assert executed <= set(CPU.all_features())


def test_all_calls_have_a_cost():
    listed = parse_feature("f_code_cycles").inventory(extract_scop(matmul(prefetch=False)))
    calls = {name for name in listed if name.startswith("f_code_calls_")}
    assert calls
    assert calls <= set(CODE.all_features())


def test_accesses_and_transfers_of_the_model_with_code_are_those_of_the_other():
    chosen = re.compile(r"f_(?:simd_(?:load|store|item|barrier)|traffic)_\w+")
    own, others = ({name for name in model.all_features() if chosen.fullmatch(name)} for model in (CODE, CPU))
    # These two terms were chosen for counts alone, without a look at code.
    assert others - own == {"f_traffic_store_streams_l2", "f_traffic_bytes_tlb"}
    assert own <= others


def _contained(kernels):
    """Return the model's features that the kernels have; what runs in short loops or not depends on the lanes."""
    target = Target(16, machine=load_machine("Gold-6248"))
    cases = [(extract_scop(one.kernel), one.sizes) for one in kernels]
    parsed = {name: parse_feature(name) for name in CPU.input_features()}
    return tuple(
        name for name, feature in parsed.items() if any(feature.value(scop, sizes, target) for scop, sizes in cases)
    )


@pytest.mark.slow
def test_known_costs_come_back_on_a_cpu():
    kernels = measurement_kernels(load_model("general_cpu"))
    contained = _contained(kernels)
    with using_machine("Gold-6248"):
        table = gather_feature_values(contained, kernels, sub_group_size=16)
    values = dict.fromkeys(CPU.input_features(), 0.0) | {name: table.column(name) for name in contained}
    times = dict(zip(table.kernels, np.broadcast_to(CPU.evaluate(TRUE, values), (len(table),)), strict=True))
    device = FakeDevice(lambda label, _: times[label], sub_group_size=16)
    with using_machine("Gold-6248"):
        found = calibrate("general_cpu", kernels, device=device, timing=ONCE)
    assert found.fit.residual == "logarithmic"
    assert not found.dropped
    # Beside costs of nothing that the kernels have: no array here is beyond what so many TLBs map, and not its pages.
    unknown = set(found.fit.undetermined)
    assert len(unknown - {"p_unmapped", "p_page"}) <= len(CPU.input_features()) - len(contained)
    known = {name: value for name, value in found.params.items() if name not in unknown}
    assert known == pytest.approx({name: TRUE[name] for name in known}, rel=1e-3)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::perflex.errors.PerflexWarning")
def test_known_costs_come_back_on_a_gpu():
    times = {}
    for kernel in (kernels := measurement_kernels(load_model("general_gpu"))):
        values = kernel_feature_values(GPU.input_features(), kernel, kernel.sizes, 32, machine="V100")
        times[kernel.name] = GPU.evaluate(TRUE_OF_GPU, values)
    with using_machine("V100"):
        found = calibrate("general", kernels, device=FakeDevice(lambda label, _: times[label]), timing=ONCE)
    # About the usual values, from which the times move the costs that they determine.
    usual = load_model("general_gpu").usual
    assert dict(found.params) == pytest.approx(TRUE_OF_GPU, rel=0.12)
    for name in ("p_launch", "p_local", "p_dram"):
        assert abs(found.params[name] / TRUE_OF_GPU[name] - 1) < abs(usual[name] / TRUE_OF_GPU[name] - 1) / 4
    predicted = found.evaluate(found.table.columns(GPU.input_features()))
    assert predicted == pytest.approx([times[name] for name in found.table.kernels], rel=0.08)
    # No measurement kernel updates atomically.
    assert found.params["p_atomic"] == pytest.approx(usual["p_atomic"])
    assert not found.dropped
    assert found.machine == "V100"
