"""``perflex predict`` and ``rank``, with calibrations, for machines without one, and for kernels from source code."""

import csv
import json
import re
from pathlib import Path

import pytest

from perflex import Calibration, source_kernel
from perflex.cli.kernel_files import load_kernel
from perflex.errors import MeasurementError
from perflex.features import extract_scop, scop_to_yaml
from perflex.testing import FakeDevice
from support.small_source_space import SPACE

EXAMPLES = Path(__file__).parents[2] / "examples"
NAIVE, PREFETCHING = f"{EXAMPLES / 'matmul.py'}:naive", f"{EXAMPLES / 'matmul.py'}:prefetching"


def test_predict(calibration, run):
    code, out, err = run("predict", calibration, NAIVE, "n=512,1024")
    assert (code, err) == (0, "")
    assert [line.split()[0] for line in out.splitlines()[2:4]] == ["n=512", "n=1024"]
    # The model has an overlap, whose costs are told apart.
    assert "partial_overlap" not in out
    tables = [part.splitlines()[1:] for part in out.split("Costs at ")[1:]]
    for size, table in zip((512, 1024), tables, strict=True):
        assert table[0].split() == ["cost", "time", "(µs)", "share", "(%)"]
        assert sum(float(row.split()[-1]) for row in table[1:]) == pytest.approx(100, abs=0.5), size


def test_json_agrees_with_the_library(calibration, content):
    (entry,) = content("predict", calibration, PREFETCHING, "n=512", "--confidence", "0.9")
    assert entry["sizes"] == {"n": 512}
    assert sum(entry["terms"].values()) == pytest.approx(entry["predicted_s"])
    interval = Calibration.load(calibration).predict_interval(load_kernel(PREFETCHING), {"n": 512}, confidence=0.9)
    assert [entry[name] for name in ("predicted_s", "low_s", "high_s")] == [
        interval.predicted, interval.low, interval.high,
    ]  # fmt: skip


def test_predictions_beyond_the_calibration_are_marked(calibration, run, content):
    words = ("predict", calibration, NAIVE, "n=496,1008", "--confidence", "0.95")
    code, out, err = run(*words)
    assert (code, err) == (0, "")
    assert out.splitlines()[1].split() == ["sizes", "predicted", "(ms)", "from", "(ms)", "to", "(ms)"]
    assert re.search(r"^n=496 ( +[\d.]+){3}$", out, re.MULTILINE)
    assert "doubtful at n=1008: larger than all measurement kernels: f_mem_access_tag:" in out
    assert "doubtful at n=496" not in out
    entries = content(*words)
    assert [entry["extrapolated"] for entry in entries] == [False, True]
    assert entries[0]["doubts"] == []
    assert "times the largest" in entries[1]["doubts"][0]


def test_sizes_that_no_kernel_has_are_refused(calibration, refused, tmp_path):
    (tmp_path / "tiled.yaml").write_text(SPACE, encoding="utf-8")
    for words in (
        ("predict", calibration, NAIVE, "n=512", "m=3"),
        ("rank", calibration, NAIVE, PREFETCHING, "n=512", "m=3"),
        ("rank", "--machine", "V100", tmp_path / "tiled.yaml", "n=512", "m=3"),
        ("prune", "--machine", "V100", tmp_path / "tiled.yaml", "n=512", "m=3"),
    ):
        assert refused(*words) == "perflex: error: the kernel has no size m; its sizes are n\n"


def test_rank(calibration, content, shown, tmp_path):
    # A name that looks like a size.
    file = tmp_path / "n=1.yaml"
    file.write_text(scop_to_yaml(extract_scop(load_kernel(NAIVE))))
    words = ("rank", calibration, NAIVE, PREFETCHING, file, "n=1056")
    places = content(*words)
    assert [place["rank"] for place in places] == [1, 2, 3]
    assert [place["predicted_s"] for place in places] == sorted(place["predicted_s"] for place in places)
    times = {place["name"]: place["predicted_s"] for place in places}
    assert times[NAIVE] == times[str(file)]
    out = shown(*words)
    caption, _, *rows = out.splitlines()
    assert caption == "Variants by predicted time"
    assert [row.split()[0] for row in rows[:3]] == [place["name"] for place in places]
    # Each has the doubts that it has alone.
    for place in places:
        (alone,) = content("predict", calibration, place["name"], "n=1056")
        assert place["doubts"] == alone["doubts"]
    assert [row.endswith("yes") for row in rows[:3]] == [bool(one["doubts"]) for one in places]
    assert ": larger than all measurement kernels" in out


def test_what_the_model_leaves_out_is_said(calibration, tmp_path, run):
    text = (EXAMPLES / "matmul.py").read_text()
    text = text.replace('return tag_accesses(kernel, loads={"a": "aLD", "b": "bLD"})', "return kernel")
    (tmp_path / "untagged.py").write_text(text)
    code, _, err = run("predict", calibration, f"{tmp_path / 'untagged.py'}:prefetching", "n=512")
    assert code == 0
    assert err.startswith("warning: ")
    assert "the model has no feature for f_mem_access_global_float32_load" in err


@pytest.mark.parametrize("place", ["before", "after"])
def test_quiet_may_stand_anywhere(place, calibration, run):
    words = ["predict", calibration, NAIVE, "n=496"]
    code, out, err = run(*(["--quiet", *words] if place == "before" else [*words, "-q"]))
    assert (code, err) == (0, "")
    assert len(out.splitlines()) == 3


def test_a_gpu_needs_no_calibration(run, content, refused):
    kernel = (f"{EXAMPLES / 'matmul.cl'}:naive", "--local", "16,16", "--global", "n,n", "n=1024")
    code, out, err = run("predict", "--machine", "A100-40GB", *kernel, "--confidence", "0.95")
    assert (code, err) == (0, "")
    assert "no sample of this device" in out
    choices = ("--machine=T4",), ("--machine=H100-SXM", "general_gpu")
    found = [content("predict", *words, *kernel)[0] for words in choices]
    devices = [{"name": name, "calibration": "general_gpu"} for name in ("T4", "H100-SXM")]
    assert [each["device"] for each in found] == devices
    old, new = (each["predicted_s"] for each in found)
    # Peaks differ by about eight times.
    assert 3 < old / new < 30
    assert "machine" in refused("predict", "general_gpu", *kernel)


def test_a_description_that_begins_with_a_comment_is_no_calibration(tmp_path, run):
    scop = extract_scop(source_kernel(EXAMPLES / "matmul.cl", "naive", local=[16, 16], global_size=["n", "n"]))
    path = tmp_path / "naive.yaml"
    path.write_text(f"# naive.yaml\n{scop_to_yaml(scop)}", encoding="utf-8")
    code, out, err = run("predict", "--machine", "V100", path, "n=256")
    assert (code, err) == (0, "")
    assert "\nn=256 " in out


SAXPY = "void saxpy(int n, float a, {0}const float *x, {0}float *y) {{ int i = {1}; if (i < n) y[i] += a*x[i]; }}"
SOURCES = {
    "my.cl": f"__kernel {SAXPY.format('__global ', 'get_global_id(0)')}\n",
    "my.cu": f"__global__ {SAXPY.format('', 'blockIdx.x*blockDim.x + threadIdx.x')}\n",
}


@pytest.mark.parametrize("file", SOURCES)
def test_each_command_takes_source_code_with_its_launch(file, tmp_path, monkeypatch, shown):
    monkeypatch.chdir(tmp_path)
    Path(file).write_text(SOURCES[file])
    for command, expected in (
        ("features {}", "f_op_float32_madd"),
        ("volumes {} --machine V100", "kernel saxpy at n=4096 on V100"),
        ("roofline {} --machine V100", "saxpy"),
        ("predict --machine A100-40GB {}", "n=4096 "),
        ("rank --machine A100-40GB {}", "Variants by predicted time"),
    ):
        assert expected in shown(*command.format(f"{file}:saxpy").split(), "n=4096", "--local", "64", "--global", "n")


def test_template_arguments_may_lie_in_namespaces(tmp_path, monkeypatch, content, refused):
    monkeypatch.chdir(tmp_path)
    functor = "namespace op { struct Plus { __device__ float operator()(float a, float b) { return a + b; } }; }"
    body = "Op op; float s = 0; for (int i = 0; i < N; i++) s = op(s, x[i]); x[threadIdx.x] = s;"
    kernel = f"namespace lib {{ template <typename Op, int N> __global__ void sum(float *x) {{ {body} }} }}"
    Path("my.cu").write_text(f"{functor}\n{kernel}\n")
    launch = ("--local", "32", "--groups", "2")
    found = content("features", "my.cu:sum<op::Plus, 8>", *launch, "-f", "f_op_float32_add")
    assert found["f_op_float32_add"]["value"] == 2 * 8
    assert "write a function's name without its namespace" in refused(
        "features", "my.cu:lib::sum<op::Plus, 8>", *launch
    )


def test_sub_groups_are_those_of_the_machine(content):
    words = ("features", f"{EXAMPLES / 'matmul.cl'}:tiled", "--local", "16,16", "--global", "n,n", "n=1024")
    # A multiply-add of each work-item for each of n terms, counted by sub-groups.
    for options, items in (((), 32), (("--machine", "V100"), 32), (("--machine", "MI210"), 64)):
        found = content(*words, "-f", "f_op_float32_madd", *options)
        assert found["f_op_float32_madd"]["value"] == 1024**3 / items
    found = content(*words, "-f", "f_op_float32_madd", "--machine", "MI210", "--sub-group-size", "16")
    assert found["f_op_float32_madd"]["value"] == 1024**3 / 16


@pytest.mark.parametrize(
    ("words", "stores"),
    [
        ("my.cpp:f --language cuda --machine V100", 64),
        ("my.cpp:f --language cuda --machine A100-40GB", 128),
        ("my.cpp:f --language hip --machine MI250X", 64 * 64),
        ("my.cpp:f --language hip --machine W7800", 64 * 32),
        ("my.cpp:f --language cuda -D __CUDA_ARCH__=900", 128),
    ],
)
def test_language_and_machine_decide_what_macros_hide(words, stores, tmp_path, monkeypatch, shown):
    monkeypatch.chdir(tmp_path)
    text = """
    GLOBAL void f(float *a) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
    #ifdef __HIP__
        for (int k = 0; k < warpSize; k++) a[i + k * 64] = 1;
    #else
        a[i] = 1;
        if (__CUDA_ARCH__ >= 800) a[i] = 2;
    #endif
    }"""
    Path("my.cpp").write_text(text)
    counted = "-f f_mem_access_global_float32_store --local 32 --groups 2 -D GLOBAL=__global__ --json"
    found = json.loads(shown("features", *words.split(), *counted.split()))
    assert [entry["value"] for entry in found.values()] == [stores]


# Times beside predictions


@pytest.fixture
def timed_on(monkeypatch):
    """Make a device with some law that of all calibrations; give how often it was opened."""

    def place(law):
        opened = []

        class Counted(FakeDevice):
            def backend(self):
                opened.append(self.name)
                return super().backend()

        device = Counted(law)
        monkeypatch.setattr("perflex.calibration.device_match.device_of_calibration", lambda *_: device)
        return opened

    return place


def failing(name, sizes):
    msg = "it does not run"
    raise MeasurementError(msg)


def test_predict_says_what_was_measured_beside(calibration, content, run, timed_on):
    opened = timed_on(lambda _label, _sizes: 5e-4)
    words = ["predict", calibration, NAIVE, "n=512,1024"]
    alone, timed = content(*words), content(*words, "--time")
    assert len(opened) == 1
    for entry, before in zip(timed, alone, strict=True):
        low, high = entry.pop("measured_low_s"), entry.pop("measured_high_s")
        assert [low, high, entry.pop("measured_s")] == pytest.approx([5e-4] * 3)
        assert entry.pop("measured_on") == str(FakeDevice(failing))
        assert entry.pop("disturbed") is False
        # A second may lie between the two.
        assert entry | {"date": ""} == before | {"date": ""}
    code, out, err = run(*words, "--time")
    assert (code, err) == (0, "")
    assert out.count(f"measured on {FakeDevice(failing)}\n") == 1
    times = [line.split() for line in out.splitlines()[2:4]]
    for (_, predicted, measured, error), entry in zip(times, alone, strict=True):
        assert float(predicted) == pytest.approx(1e3 * entry["predicted_s"], rel=0.02)
        assert (float(measured), float(error)) == (0.5, pytest.approx(100 * (entry["predicted_s"] / 5e-4 - 1), abs=0.1))


def test_predict_times_on_the_device_that_is_named(calibration, content, refused, monkeypatch):
    named = []
    monkeypatch.setattr(
        "perflex.calibration.device_match.chosen_device",
        lambda word: named.append(word) or FakeDevice(lambda _label, _sizes: 5e-4),
    )
    (entry,) = content("predict", calibration, NAIVE, "n=512", "--time", "-d", "my GPU")
    assert (named, entry["measured_s"]) == (["my GPU"], pytest.approx(5e-4))
    assert "give --time, too" in refused("predict", calibration, NAIVE, "n=512", "-d", "my GPU")


def test_predict_writes_a_table_and_a_page(calibration, content, run, tmp_path):
    words = ("predict", calibration, NAIVE, "n=496,1008", "--confidence", "0.9")
    code, out, _ = run(*words, "--out", tmp_path / "new")
    assert code == 0
    assert out.endswith(f"{tmp_path / 'new/predictions.csv'}\n{tmp_path / 'new/report.html'}\n")
    with (tmp_path / "new/predictions.csv").open() as file:
        rows = list(csv.DictReader(file))
    for row, entry in zip(rows, content(*words), strict=True):
        assert int(row["n"]) == entry["sizes"]["n"]
        assert [float(row[name]) for name in ("predicted_s", "low_s", "high_s")] == [
            entry["predicted_s"], entry["low_s"], entry["high_s"]
        ]  # fmt: skip
    page = (tmp_path / "new/report.html").read_text()
    for said in ("Predicted times of naive", "Costs at n=496", "Costs at n=1008", "doubtful at n=1008: larger than"):
        assert said in page


def test_sizes_that_fail_are_told(calibration, shown, refused, timed_on):
    timed_on(lambda name, sizes: 5e-4 if sizes["n"] < 1000 else failing(name, sizes))
    out = shown("predict", calibration, NAIVE, "--time", "n=512,1024")
    assert out.count("measured on ") == out.count("not measured at n=1024: ") == 1
    assert "it does not run" in out
    assert "it does not run" in refused("predict", calibration, NAIVE, "--time", "n=1024", code=1)


def test_rank_orders_by_what_was_measured(calibration, run, content, timed_on):
    timed_on(lambda name, sizes: 5e-4 if "naive" in name else failing(name, sizes))
    words = ["rank", calibration, PREFETCHING, NAIVE, "n=512", "--time"]
    code, out, err = run(*words)
    caption, _, first, last, *more = out.splitlines()
    assert caption == "Variants by measured time"
    assert more[-1].startswith("measured on ")
    assert code == 0
    assert first.split()[:2] == [NAIVE, "1"]
    assert last.split()[:2] == [PREFETCHING, "2"]
    assert "0.50" in first
    assert "nan" not in out
    assert "the variant is not timed" in err
    best, worst = content(*words)
    assert (best["measured_s"], worst["measured_s"]) == (pytest.approx(5e-4), None)
    assert best["knowledge"] == "nothing"
    assert {f"measured on {one['measured_on']}" for one in (best, worst)} == {more[-1]}


LAUNCHED = """
__global__ void scaled(float *a, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) a[i] *= 2; }
template <typename T, int K> __global__ void filled(T *a) { a[blockIdx.x * blockDim.x + threadIdx.x] = K; }
void run(float *a, int N) {
    scaled<<<(N + 127) / 128, 128>>>(a, N);
}
"""


@pytest.mark.parametrize(
    ("kernel", "options", "groups", "items"),
    [
        ("scaled", "", 8, 1024),
        ("scaled<<<n/64, 64>>>", "", 15, 960),
        ("scaled<<<(2, n/100), (8, 4)>>>", "", 20, 640),
        ("scaled<<<dim3(2, n/100), dim3(8, 4)>>>", "", 20, 640),
        ("scaled<<<(n + 7)/8, 8>>>", "", 125, 1000),
        ("filled<float, 4><<<n/64, 64>>>", "", 15, 960),
        ("scaled", "--local 32 --groups 3", 3, 96),
    ],
)
def test_launches_stand_behind_kernels_or_in_their_file(kernel, options, groups, items, tmp_path, run):
    (tmp_path / "my.cu").write_text(LAUNCHED)
    words = ("features", f"{tmp_path}/my.cu:{kernel}", "n=1000", "--json", *options.split())
    _, out, err = run(*words, "-f", "f_thread_groups", "-f", "f_thread_items")
    found = json.loads(out)
    assert (found["f_thread_groups"]["value"], found["f_thread_items"]["value"]) == (groups, items)
    taken = f"launch of {tmp_path}/my.cu, line 5: <<<(N + 127) / 128, 128>>>\n"
    assert err == (taken if (kernel, options) == ("scaled", "") else "")


def test_kernels_with_launches_of_their_own_are_ranked(tmp_path, content, refused):
    (tmp_path / "my.cu").write_text(LAUNCHED)
    words = [f"{tmp_path}/my.cu:scaled<<<n/{items}, {items}>>>" for items in (32, 256)]
    places = content("rank", "--machine", "V100", *words, f"{tmp_path}/my.cu:scaled", "n=1048576")
    assert {place["name"] for place in places} == {*words, f"{tmp_path}/my.cu:scaled"}
    assert places[-1]["name"] == words[0]
    told = refused("rank", "--machine", "V100", *words, "n=64", "--local", "32")
    assert "--local: each kernel has its launch behind its name" in told
    for wrong in ("<<<n/32>>>", "<<<n/32, 32, 0>>>", "<<<n/32, k>>>", "<<<n/32, 32"):
        told = refused("features", f"{tmp_path}/my.cu:scaled{wrong}", "n=64")
        assert "write groups and work-group, such as '<<<(n/32, m/8), (32, 8)>>>'" in told


def test_lists_are_of_what_comes_with_perflex(content, shown):
    assert "general_gpu" in {row["name"] for row in content("list", "models")}
    rows = {row["name"]: row for row in content("list", "calibrations")}
    assert rows["general_gpu_h100_cuda"]["device"] == "NVIDIA H100 80GB HBM3"
    assert shown("list", "models").split()[:2] == ["name", "description"]
