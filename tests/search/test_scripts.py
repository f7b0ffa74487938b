"""Kernel Tuner's scripts, T1 files and perflex-source files as spaces: what they say, and what is wrong with them."""

import itertools
import json
import math
import sys
from pathlib import Path

import pytest

from perflex import PerflexError, load_space
from perflex.errors import FileFormatError, SpaceError, UnsupportedKernelError
from perflex.features import SourceKernel, count_features
from perflex.search.source_spaces import values_of

EXAMPLES = Path(__file__).parents[2] / "examples"
KERNEL = """
__kernel void add(__global float *c, __global const float *a, int n)
{
    int i = get_group_id(0) * block_size_x * width + get_local_id(0);
    for (int k = 0; k < width; ++k)
        c[i + k * block_size_x] = a[i + k * block_size_x] + 1.0f;
}
"""
SCRIPT = """
import pathlib
import sys
import numpy
import kernel_tuner
from kernel_tuner.observers.nvml import NVMLObserver
from kernel_tuner.observers import BenchmarkObserver

class Own(BenchmarkObserver):
    pass

n = numpy.int32({n})
problem = {problem}
a = numpy.zeros(n, dtype=numpy.float32)
parameters = {{"block_size_x": [32, 64, 128], "width": [1, 2, 4]}}
try:
    kernel_tuner.tune_kernel("add", {source}, problem, [a, a, n], parameters,
        {more}observers=[NVMLObserver(["power"]), Own()])
except Exception:
    print("not this way")
raise RuntimeError("must not come here")
"""


def script(folder, source="'add.cl'", problem="n", more="grid_div_x=['block_size_x', 'width'], "):
    (folder / "add.cl").write_text(KERNEL, encoding="utf-8")
    path = folder / "tune.py"
    path.write_text(SCRIPT.format(n=1 << 16, source=source, problem=problem, more=more), encoding="utf-8")
    return path


def test_modules_beside_a_script_are_its_own(tmp_path):
    for name, values in (("a", "[32]"), ("b", "[64, 128]")):
        folder = tmp_path / name
        folder.mkdir()
        path = script(folder)
        (folder / "common.py").write_text(f"sizes = {values}\n")
        text = path.read_text().replace("[32, 64, 128]", "common.sizes").replace("import sys\n", "import sys, common\n")
        path.write_text(text)
        assert load_space(path).values["block_size_x"] == tuple(json.loads(values))


def kernel_of(space, **settings):
    found = space.kernel(settings)
    assert isinstance(found, SourceKernel)
    return found


def test_a_script_is_read_as_it_is(tmp_path, capfd):
    before = dict(sys.modules)
    space = load_space(script(tmp_path))
    assert (space.name, space.sizes, len(list(space))) == ("tune", {"n": 65536}, 9)
    kernel = kernel_of(space, block_size_x=64, width=4)
    assert (kernel.local, kernel.groups) == ((64,), ("256",))
    # Every element is loaded once, whatever the settings.
    loads = count_features(kernel, space.sizes, identifiers=["f_mem_access_global_load"])
    assert [entry.value for entry in loads] == [65536]
    # What a script prints is not the command's output, and Kernel Tuner itself stays as it is.
    assert capfd.readouterr().out == ""
    assert {name for name in sys.modules if name.startswith("kernel_tuner")} == {
        name for name in before if name.startswith("kernel_tuner")
    }


OWN_NAMES = "block_size_names=['width'], defines={'width': 'width', 'block_size_x': lambda p: p['block_size_x']}, "


@pytest.mark.parametrize(
    ("problem", "more", "block", "width", "local", "groups"),
    [
        # The default divisor is the block's size, and there is none where that is not tuned.
        ("n", "", 64, 1, (64,), ("1024",)),
        ("1000", "grid_div_x=[], ", 32, 2, (32,), ("1000",)),
        ("'width * 7'", "grid_div_x=['2'], ", 32, 4, (32,), ("14",)),
        ("lambda p: p['width'] * 100", "grid_div_x=lambda p: 3, ", 32, 1, (32,), ("34",)),
        ("(n, 6)", "grid_div_y=['4'], ", 128, 1, (128, 1), ("512", "2")),
        ("n", OWN_NAMES, 64, 4, (4,), ("16384",)),
    ],
)
def test_launches_are_those_of_kernel_tuner(tmp_path, problem, more, block, width, local, groups):
    space = load_space(script(tmp_path, problem=problem, more=more))
    kernel = kernel_of(space, block_size_x=block, width=width)
    assert (kernel.local, kernel.groups) == (local, groups)


READ = "pathlib.Path('add.cl').read_text()"


@pytest.mark.parametrize("source", [READ, f"lambda p: {READ}", "['add.cl', 'add.h']", "pathlib.Path('add.cl')"])
def test_sources_are_files_texts_or_functions(tmp_path, source, monkeypatch):
    path = script(tmp_path, source)
    monkeypatch.chdir(tmp_path)  # which Kernel Tuner's users are in
    assert kernel_of(load_space(path), block_size_x=32, width=1).local == (32,)


RESTRICTED = [(b, w) for b in (32, 64, 128) for w in (1, 2, 4) if b * w <= 128]


@pytest.mark.parametrize(
    "given", ["['block_size_x * width <= 128']", "lambda p: p['block_size_x'] * p['width'] <= 128"]
)
def test_restrictions_are_texts_or_functions(tmp_path, given):
    space = load_space(script(tmp_path, more=f"restrictions={given}, "))
    assert [(each["block_size_x"], each["width"]) for each in space] == RESTRICTED


def test_sizes_of_a_script_are_those_of_its_grid(tmp_path):
    space = load_space(script(tmp_path))
    features, (name, value) = ["f_thread_groups"], next(iter(space.sizes.items()))
    assert len(space.extract(features, {name: value})) == len(space.extract(features))
    with pytest.raises(SpaceError, match=f"its file states the grid in numbers, which are those of {name}={value}"):
        space.extract(features, {name: 2 * value})


def test_words_behind_a_script_are_its_arguments(tmp_path):
    path = script(tmp_path, problem="int(sys.argv[1])")
    assert kernel_of(load_space(f"{path} 640"), block_size_x=32, width=1).groups == ("20",)
    with pytest.raises(SpaceError, match=r"tune.py, line \d+: IndexError: .*'SCRIPT.py ARGUMENT \.\.\.'"):
        load_space(path)


CALL = "import kernel_tuner\nkernel_tuner.tune_kernel({})\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import nothing_of_this_name\n", "line 1: ModuleNotFoundError"),
        ("print('done')\n", "ended without a call of kernel_tuner.tune_kernel"),
        ("raise SystemExit(0)\n", "ended without a call"),
        ("x = (\n", "line 1: SyntaxError"),
        (CALL.format("'k', 5, 1, [], {'a': [1]}"), "int, which is no source"),
        (CALL.format("'k', 'x\\n', 1, [], 7"), "cannot use its call of tune_kernel"),
        (CALL.format("'k', 'nothing.cl', 1, [], {'a': [1]}"), "cannot read .*nothing.cl"),
        (CALL.format("'k', 'x\\n', 'm', [], {'a': [1]}"), "names 'm', which is no tunable"),
    ],
)
def test_scripts_that_cannot_be_used(tmp_path, text, message):
    path = tmp_path / "bad.py"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(PerflexError, match=message):
        load_space(path)


def test_the_example_is_the_same_as_a_script_and_as_a_file():
    by_script, by_file = (load_space(EXAMPLES / name) for name in ("convolution_tuner.py", "convolution_space.yaml"))
    assert by_script.sizes == by_file.sizes == {"nx": 1024, "ny": 1024}
    every = itertools.product((8, 16, 32, 64), (1, 2, 4, 8), (1, 2, 4), (1, 2, 4), (0, 1))
    wanted = [one for one in every if 32 <= math.prod(one[:2]) <= 256]
    assert [tuple(one.values()) for one in by_script] == [tuple(one.values()) for one in by_file] == wanted
    settings = {"block_size_x": 32, "block_size_y": 2, "tile_size_x": 4, "tile_size_y": 2, "use_local": 1}
    one, other = (count_features(space.kernel(settings), space.sizes) for space in (by_script, by_file))
    assert {entry.identifier: entry.value for entry in one} == {entry.identifier: entry.value for entry in other}
    # 49 multiply-adds of each result.
    madds = next(entry.value for entry in one if entry.identifier == "f_op_float32_madd")
    assert madds * 32 == 49 * 1024 * 1024


def t1(folder, **changes):
    (folder / "add.cl").write_text(KERNEL, encoding="utf-8")
    vector = {"Type": "float", "MemoryType": "Vector", "Size": 65536}
    kernel = {
        "Language": "OpenCL", "KernelName": "add", "KernelFile": "add.cl",
        "LocalSize": {"X": "block_size_x"}, "GlobalSize": {"X": "65536 // width"},
        "Arguments": [
            {"Name": "c", **vector}, {"Name": "a", **vector},
            {"Name": "n", "Type": "int32", "MemoryType": "Scalar", "FillValue": 65536},
        ],
    }  # fmt: skip
    tuned = {
        "TuningParameters": [
            {"Name": "block_size_x", "Values": "[32] + [2**i for i in range(6, 8)]"},
            {"Name": "width", "Values": [1, 2, 4]},
        ],
        "Conditions": [{"Expression": "block_size_x * width <= 128", "Parameters": ["block_size_x", "width"]}],
    }
    path = folder / "add.json"
    content = {"ConfigurationSpace": tuned, "KernelSpecification": {**kernel, **changes}}
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("changes", "groups"),
    [
        ({}, ("512",)),  # work-items
        ({"Language": "CUDA"}, ("32768",)),  # blocks
        ({"GlobalSizeType": "CUDA"}, ("32768",)),
        ({"ProblemSize": [65536], "GridDivX": ["block_size_x", "width"]}, ("512",)),
    ],
)
def test_t1_files(tmp_path, changes, groups):
    space = load_space(t1(tmp_path, **changes))
    assert [(each["block_size_x"], each["width"]) for each in space] == RESTRICTED
    assert space.sizes == {"n": 65536}
    kernel = kernel_of(space, block_size_x=64, width=2)
    assert (kernel.local, kernel.groups) == ((64,), groups)


VALUES = {
    "[1, 2.5, -3]": [1, 2.5, -3], "list(range(4, 13, 4))": [4, 8, 12], "range(3)": [0, 1, 2],
    "(1,) + [i * 2 for i in [3, 5]]": [1, 6, 10], "['a', 'b']": ["a", "b"],
}  # fmt: skip


def test_values_in_words():
    assert {text: values_of(text) for text in VALUES} == VALUES


HOSTILE = "__import__('os').getcwd()", "[open('x')]", "range(10**9)", "list(9)", "x", "[", "[i.real for i in [1]]"


@pytest.mark.parametrize("text", [*HOSTILE, "[i for i in range(3) if i]"])
def test_values_are_never_executed(tmp_path, text):
    path = t1(tmp_path)
    content = json.loads(path.read_text(encoding="utf-8"))
    content["ConfigurationSpace"]["TuningParameters"][0]["Values"] = text
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(PerflexError):
        load_space(path)


@pytest.mark.parametrize(
    "text", ["{}", "[]", "[1", "5", '{"results": []}', '{"ConfigurationSpace": 1, "KernelSpecification": 2}']
)
def test_other_json_is_refused(tmp_path, text):
    path = tmp_path / "x.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(FileFormatError, match="is no T1 file"):
        load_space(path)


FILE = """schema: perflex-source/1
source: add.cl
kernel: add
local: [block_size_x]
global: [n / width]
tunables: {block_size_x: [32, 64], width: [1, 2]}
sizes: {n: 4096}
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("global:", "groups: [8]\nglobal:", "'groups' or by 'global', one of them"),
        ("local: [block_size_x]", "local: [block_size_x, 2]", "line 4, field local: it must have as many extents"),
        ("kernel: add", "kernel: sub", "no kernel 'sub'"),
        ("[block_size_x]", "[size]", "names 'size', which is no tunable"),
        ("width: [1, 2]", "width: []", "parameter width has no values"),
        ("perflex-source/1", "perflex-source/9", "perflex-source"),
        ("source: add.cl", "source: none.cl", "cannot read"),
        ("sizes:", "tile:", "tile"),
        ("[block_size_x]", "[block_size_x / 3]", r"block_size_x / 3 = 10.6667 work-items; write // to divide"),
        ("sizes:", "defines: {width: 8}\nsizes:", "field defines.width: it is a tunable, too, whose values would not"),
    ],
)
def test_files_that_cannot_be_used(tmp_path, old, new, message):
    (tmp_path / "add.cl").write_text(KERNEL, encoding="utf-8")
    path = tmp_path / "add.yaml"
    path.write_text(FILE.replace(old, new), encoding="utf-8")
    with pytest.raises((FileFormatError, SpaceError, UnsupportedKernelError), match=message):
        load_space(path)
