"""The general model of CPUs leaves nothing out that its features count."""

import numpy as np
import pytest

from perflex import Model, PerflexWarning, TimingOptions, calibrate, gather_feature_values, load_machine, using_machine
from perflex.features import Target, extract_scop, parse_feature
from perflex.models import load_model, measurement_kernels
from perflex.testing import FakeDevice
from sample_kernels import matmul, pointwise

MODEL = Model("f_cl_wall_time", load_model("general_cpu").expression)
# Costs of any size from 0.1 to 1 ns; the greater ones of what happens once.
TRUE = {name: 1e-10 * (1 + 7 * number % 10) for number, name in enumerate(MODEL.params())} | {
    "p_launch": 5e-6,
    "p_group": 1e-7,
    "p_l2": 2e-11,
    "p_far": 8e-11,
}
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
    assert executed <= set(MODEL.all_features())


def _contained(kernels):
    """Return the model's features that the kernels have; what runs in short loops or not depends on the lanes."""
    scops = [extract_scop(one.kernel) for one in kernels]
    target = Target(16, machine=load_machine("Gold-6248"))
    cases = list(zip(scops, (one.sizes for one in kernels), strict=True))
    parsed = {name: parse_feature(name) for name in MODEL.input_features()}
    return tuple(
        name for name, feature in parsed.items() if any(feature.value(scop, sizes, target) for scop, sizes in cases)
    )


@pytest.mark.slow
def test_known_costs_come_back():
    kernels = measurement_kernels(load_model("general_cpu"))
    contained = _contained(kernels)
    with using_machine("Gold-6248"):
        table = gather_feature_values(contained, kernels, sub_group_size=16)
    values = dict.fromkeys(MODEL.input_features(), 0.0) | {name: table.column(name) for name in contained}
    times = dict(zip(table.kernels, np.broadcast_to(MODEL.evaluate(TRUE, values), (len(table),)), strict=True))
    device = FakeDevice(lambda label, _: times[label], sub_group_size=16)
    timing = TimingOptions(trials=1, min_trials=1)
    with using_machine("Gold-6248"), pytest.warns(PerflexWarning, match="do not determine"):
        found = calibrate("general_cpu", kernels, device=device, timing=timing)
    assert found.fit.residual == "logarithmic"
    assert not found.dropped
    # Beside costs of nothing that the kernels have: no array here is beyond what so many TLBs map, and not its pages.
    unknown = set(found.fit.undetermined)
    assert len(unknown - {"p_unmapped", "p_page"}) <= len(MODEL.input_features()) - len(contained)
    known = {name: value for name, value in found.params.items() if name not in unknown}
    assert known == pytest.approx({name: TRUE[name] for name in known}, rel=1e-3)
