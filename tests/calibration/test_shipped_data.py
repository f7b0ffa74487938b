from dataclasses import replace

import msgspec
import pytest

from perflex import Calibration
from perflex.calibration.calibration import calibration_names
from perflex.calibration.gathering import info_of
from perflex.errors import CalibrationError, FileFormatError
from perflex.features import source_kernel
from perflex.models import load_model
from sample_kernels import matmul
from uipick import ALL_GENERATORS, KernelCollection, tag_accesses


def test_names_and_paths_are_read_alike(tmp_path, monkeypatch):
    name = "general_gpu_h100_cuda"
    by_name = Calibration.load(name)
    by_name.save(tmp_path / "mine.yaml")
    assert (
        dict(Calibration.load(tmp_path / "mine.yaml").params)
        == dict(Calibration.load(str(tmp_path / "mine.yaml")).params)
        == by_name.params
    )
    # A file of that name comes first.
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text("no calibration", encoding="utf-8")
    with pytest.raises(FileFormatError):
        Calibration.load(name)


@pytest.mark.filterwarnings("ignore:this prediction is doubtful")
@pytest.mark.parametrize("name", [name for name in calibration_names() if name not in {"general_gpu", "general_tile"}])
def test_calibrations_load_and_predict(name):
    calibration = Calibration.load(name)
    assert calibration.device["name"]
    assert calibration.noise_floor is not None
    assert len(calibration.fit.kernels) > len(calibration.params)
    kernel = tag_accesses(matmul(prefetch=False), loads={"a": "aLD", "b": "bLD"})
    small, large = (calibration.predict(kernel, {"n": n}) for n in (960, 2880))
    assert 10 < large / small < 60


@pytest.mark.parametrize("name", calibration_names())
def test_units_are_those_of_the_features(name):
    calibration = Calibration.load(name)
    info = info_of(calibration.model.input_features())
    assert {name: calibration.table.info[name].unit for name in info} == {name: one.unit for name, one in info.items()}
    assert not [one.name for one in calibration.fit.parameters if "f_" in one.unit]


@pytest.mark.filterwarnings("ignore:this prediction is doubtful")
def test_the_calibration_of_other_gpus_predicts_for_each_machine_file_with_intervals():
    """It has no samples of its own: times of other GPUs, scaled by the peaks of a machine file."""
    calibration = Calibration.load("general_gpu")
    assert not len(calibration.table)
    kernel, times = matmul(prefetch=False), {}
    for name in ("T4", "V100", "H100-SXM"):
        found = calibration.predict_interval(kernel, {"n": 2048}, machine=name)
        assert found.low < found.predicted < found.high
        times[name] = found.predicted
    assert times["T4"] > times["V100"] > times["H100-SXM"]
    first, *others = calibration.fit.parameters
    next_to_nothing = replace(calibration.fit, parameters=(msgspec.structs.replace(first, value=1e-320), *others))
    with pytest.raises(CalibrationError, match="the interval is infinite"):
        replace(calibration, fit=next_to_nothing).predict_interval(kernel, {"n": 2048}, machine="V100")
    with pytest.raises(FileFormatError, match=f"there are {calibration_names()[0]}"):
        Calibration.load("none")


@pytest.mark.filterwarnings("ignore:this prediction is doubtful")
def test_predictions_are_of_the_launches_and_caches_that_are_assumed():
    calibration, (small, large) = Calibration.load("general_gpu"), ({"n": 64}, {"n": 512})
    kernel, costs = matmul(prefetch=False), calibration.transferred.launches
    by_launch = {
        name: calibration.assuming(launches=name).predict(kernel, small, machine="A40")
        for name in ("gpu", "queued", "host")
    }
    assert by_launch["gpu"] == calibration.predict(kernel, small, machine="A40")
    for name, seconds in by_launch.items():
        assert seconds - by_launch["gpu"] == pytest.approx(getattr(costs, name) - costs.gpu)
    cold = calibration.assuming(caches="cold")
    warm, loaded = (one.feature_values(kernel, large, machine="A40")["f_peak_dram"] for one in (calibration, cold))
    # Two matrices from memory, one to it; all three fit the 6 MiB of L2.
    assert loaded == pytest.approx(3 * 4 * 512**2 / 670e9, rel=0.01)
    assert warm < loaded / 1000
    assert cold.predict_interval(kernel, large, machine="A40").predicted > calibration.predict(
        kernel, large, machine="A40"
    )
    with pytest.raises(CalibrationError, match="launches are one of gpu, queued, host, not 'device'"):
        calibration.assuming(launches="device")
    with pytest.raises(CalibrationError, match="as its own times have them"):
        Calibration.load("general_gpu_h100_cuda").assuming(launches="queued")
    with pytest.raises(CalibrationError, match="no feature that depends on what a GPU's L2 holds"):
        Calibration.load("matmul_sq_amd_epyc_4cores_pocl").assuming(caches="cold")


def test_the_matmul_model_counts_all_that_both_variants_do():
    from perflex.features.report import uncounted

    features = load_model("matmul_sq").model().input_features()
    for prefetch in ("True", "False"):
        (kernel,) = KernelCollection(ALL_GENERATORS).generate_kernels(
            ["matmul_sq", "dtype:float32", f"prefetch:{prefetch}", "groups_fit:True", "n:64"]
        )
        assert uncounted(features, kernel.kernel, kernel.sizes) == []


STREAM = """__global__ void scale(double *a, const double *b, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) a[i] = 0.25 * b[i];
}"""


@pytest.mark.parametrize(
    ("machine", "n", "named"),
    [
        # The rate of starting work-groups was measured on an A40 and is assumed of other GPUs; bandwidths are stated.
        ("RTX-4070", 200_000, "group_start_rate of RTX-4070"),
        ("A40", 200_000, ""),
        ("RTX-4070", 100_000_000, ""),
    ],
)
def test_facts_that_decide_and_are_assumed_are_told(machine, n, named):
    kernel = source_kernel(STREAM, "scale", local=32, global_size="(n+31)//32*32", language="cuda")
    doubts = Calibration.load("general_gpu").doubts(kernel, {"n": n}, machine=machine)
    assert any(named in doubt for doubt in doubts if "nobody measured" in doubt) == bool(named)
