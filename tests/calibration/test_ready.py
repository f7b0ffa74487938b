"""Ready models by name, and the machine that a calibration on a CPU brings itself."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from perflex import Calibration, FeatureTable, Model, TimingOptions, calibrate, using_machine
from perflex.calibration.ready import own_cpu, ready_model
from perflex.errors import CalibrationError, FileFormatError, ModelSyntaxError
from perflex.testing import FakeDevice
from sample_kernels import matmul
from support.fitted import fitted
from uipick import ALL_GENERATORS, KernelCollection

VOLUMES = ["f_ecm_vol_l2"]


def fake():
    return FakeDevice(lambda _, sizes: 1e-6 * sizes["ngroups"])


def test_general_is_the_model_of_the_devices_kind(default_device):
    on_gpu = ready_model("general", fake())
    assert on_gpu.description.name == "general_gpu"
    assert on_gpu.timing == TimingOptions(trials=12, budget_s=0.15, precision=0.03)
    on_cpu = ready_model("general", replace(default_device, kind="cpu"))
    assert on_cpu.description.name == "general_cpu"
    # Made for the sizes of caches, its kernels keep theirs.
    assert on_cpu.scale == 1.0
    assert ready_model("madd_only", fake()).timing == TimingOptions()
    with pytest.raises(FileFormatError, match="did you mean 'general_"):
        ready_model("general_xpu", fake())


def test_a_general_model_of_a_user_is_treated_like_the_shipped_ones(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("""\
schema: perflex-model/1
name: mine
description: Groups.
output: f_cl_wall_time
expression: p_group * f_thread_groups
parameters:
  p_group: {meaning: starting a group, unit: s per work-group}
measurement_kernels:
  - tags: [empty, "ngroups:16,64"]
general: true
fixed_sizes: true
timing: {trials: 3}
""")
    assert ready_model(str(path), fake()).scale == 1.0
    calibration = calibrate(str(path), device=fake())
    assert calibration.options["trials"] == calibration.options["min_trials"] == 3
    path.write_text(path.read_text().replace("work-group}", "banana}"))
    with pytest.raises(CalibrationError, match="'s per banana' as the unit of p_group, which is 's per work-group' by"):
        calibrate(str(path), device=fake())
    with pytest.raises(CalibrationError, match="no measurement kernels; pass some"):
        calibrate(Model("f_cl_wall_time_fake", "p_group * f_thread_groups"), device=fake())


def test_a_model_string_is_used_as_one():
    found = ready_model("p_group * f_thread_groups", fake())
    assert (found.model.expression, found.scale, found.kernels()) == ("p_group * f_thread_groups", 1.0, [])
    kernels = KernelCollection(ALL_GENERATORS).generate_kernels(["empty", "ngroups:16,64"])
    found = calibrate("p_group * f_thread_groups", kernels, device=fake())
    assert dict(found.params) == pytest.approx({"p_group": 1e-6})
    with pytest.raises(CalibrationError, match="no measurement kernels; pass some, times of kernels, or"):
        calibrate("p_group * f_thread_groups", device=fake())
    with pytest.raises(ModelSyntaxError, match="did you mean"):
        calibrate("p_group * thread_groups", device=fake())


def test_a_cpu_is_asked_about_only_where_a_feature_needs_it(default_device):
    here = replace(default_device, kind="cpu", name="a processor without a file")
    assert own_cpu(here, VOLUMES).caches[0].level == 1
    assert own_cpu(here, ["f_thread_groups"]) is None
    for other in (replace(here, kind="gpu"), replace(here, name="AMD EPYC 7452 32-Core Processor"), fake()):
        assert own_cpu(other, VOLUMES) is None
    with using_machine("EPYC-7452"):
        assert own_cpu(here, VOLUMES) is None


@pytest.mark.filterwarnings("ignore::perflex.errors.PerflexWarning")
def test_a_calibration_keeps_the_machine_it_made(tmp_path, default_device):
    here = own_cpu(replace(default_device, kind="cpu", name="a processor without a file"), VOLUMES)
    assert here is not None
    first, second, *_ = here.caches
    second = msgspec.structs.replace(second, size_bytes=262144, ways=None)
    cpu = msgspec.structs.replace(here, model="Tiny", caches=(first, second), missing=())
    kernels = KernelCollection(ALL_GENERATORS).generate_kernels(["empty", "ngroups:16,64"])
    model = Model("f_cl_wall_time_fake", "p_group * f_thread_groups")
    plain = calibrate(model, kernels, device=fake())
    assert plain.cpu is None
    path = tmp_path / "c.yaml"
    volumes = Model("f_cl_wall_time_fake", "p_group * f_thread_groups * f_ecm_vol_l2")
    columns = tuple(volumes.all_features())
    table = FeatureTable(columns[0], columns, plain.table.kernels, np.column_stack([plain.table.values, [1.0, 3.0]]))
    replace(fitted(volumes, table), cpu=cpu, machine="Tiny").save(path)
    loaded = Calibration.load(path)
    assert loaded.cpu == cpu
    machine = loaded.target().machine
    assert machine is not None
    assert [level.size_bytes for level in machine.levels] == [first.size_bytes, 262144]
    # Without a machine being named, though none that comes with perflex has this name.
    assert loaded.feature_values(matmul(prefetch=False), {"n": 64})["f_ecm_vol_l2"] > 0
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("size_bytes: 262144", "size_bytes: -1"), encoding="utf-8")
    with pytest.raises(FileFormatError, match="size_bytes"):
        Calibration.load(path)
