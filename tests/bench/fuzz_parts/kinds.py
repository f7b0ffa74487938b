"""Kinds of input: valid ones, who reads them in the library, and what is done with what was read."""

from __future__ import annotations

import gzip
import io
import json
import re
import sys
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stores import write

import perflex
from fuzz_parts import tiles
from fuzz_parts.common import Input, Kind, finite, text_of, written
from perflex.__main__ import main
from perflex.cli.kernel_files import load_kernel
from perflex.features import Target, count_features, extract_scop, parse_feature, scop_from_yaml, scop_to_yaml
from perflex.features.cpu.ecm_estimate import estimate_ecm
from perflex.models import load_model, measurement_kernels
from perflex.search.measured_times import measured_times
from perflex.store.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

TOP = Path(__file__).parents[3]
TIMES = """\
items,unroll,size,time_ms
64,1,1048576,3.0
64,2,1048576,2.0
128,1,1048576,1.0
128,4,1048576,9.0
32,1,1048576,5.0
32,2,1048576,7.0
64,1,1048576,5.0
128,2,1048576,1.5
64,4,1048576,2.5
"""
# Macros beside the tunables of the reference's source.
DEFINED = "defines: {FACTOR: 1, EXTRA: 0}\n"
T1 = """\
{"General": {"BenchmarkName": "tiled", "OutputFormat": "JSON"},
 "ConfigurationSpace": {
  "TuningParameters": [{"Name": "TILE", "Type": "int", "Values": "[4, 8, 16]", "Default": 8},
                       {"Name": "UNROLL", "Type": "int", "Values": "[1, 2]", "Default": 1}],
  "Conditions": [{"Expression": "TILE * UNROLL <= 16", "Parameters": ["TILE", "UNROLL"]}]},
 "KernelSpecification": {
  "Language": "OpenCL", "KernelName": "tiled", "KernelFile": "matmul.cl", "GlobalSizeType": "OpenCL",
  "GlobalSize": {"X": "64", "Y": "64"}, "LocalSize": {"X": "TILE", "Y": "TILE"},
  "Arguments": [{"Name": "a", "Type": "float", "MemoryType": "Vector", "Size": 4096, "FillType": "Random"},
                {"Name": "n", "Type": "int32", "MemoryType": "Scalar", "FillValue": 64}]}}
"""
TABLE = "kernel,rows,n,time_us,launches,spread,registers,device,note\n" + "".join(
    f"made,{rows},{64 * n},{0.5 * n},{n},0.0{n},,a,x\n" for n in (1, 2, 3) for rows in (1, 4)
)
BY_TAGS = "kernel,seconds,device,tags\n" + "".join(
    f'"empty(ngroups={n}, lsize_0=16, lsize_1=16)",{n}e-6,a,\n,{n}e-5,a,empty ngroups:{4 * n} lsize_0:16 lsize_1:16\n'
    for n in (16, 32)
)
TEXTS = {
    "model string": (
        "p_a * f_op_float32_madd + p_b * f_mem_access_tag:aLD",
        "smooth_max(p_a * f_op_float32_madd, p_b * f_sync_barrier_local, p_edge) + p_l * f_sync_kernel_launch",
        "overlap(p_a * f_op_float32_madd, p_b * f_mem_access_tag:aLD, p_e) ** 2 / (1 + exp(-p_c * f_thread_groups))",
    ),
    "feature": (
        "f_mem_access_global_float32_load_lstrides:{0:1;1:n}_gstrides:{0:16*n;1:16}_afr:>1", "f_mem_access_tag:aLD",
        "f_op_float32_madd", "f_thread_groups", "f_sync_barrier_local", "f_vol_dram_load", "f_peak_local",
        "f_mem_access_local_float32_load_lstrides:{0:17}",
    ),
    "constraint": (
        "wide * high <= 256", "2 <= wide and (high, wide) != (1, 2)", "name in ('a', 'b') or wide ** 2 == 4",
    ),
}  # fmt: skip
# The files that they name are the valid inputs of these names (`named`).
LINES = """
features k.yaml n=64
features k.yaml n=64 --json --sub-group-size 16 -f f_op_float32_madd
features k.yaml --machine m.yaml --registers 32
features kernels.py:made n=64 --state k=2 --state x[i]=4*i
predict c.yaml k.yaml n=64,128 --json --confidence 0.9
predict c.yaml k.yaml n=64 --machine Gold-6248
rank c.yaml kernels.py:made kernels.py:made n=64 --json
volumes k.yaml --machine m.yaml n=64 --json
volumes k.yaml --machine V100 n=64 --registers 32
layers j.yaml --machine Gold-6248 M=40 N=60 --json --cores 2
layers j.yaml --machine Gold-6248 M=40 N=20:60:20 --json
block j.yaml --machine Gold-6248 M=100 N=60 --criterion L2=plane --lanes 4 --tiles-per-core 2 --json
roofline kernels.py:made n=64 --machine V100 --time bound --registers 40
prune c.yaml kernels.py:made n=64 --keep 5% --measure 3
diagnose c.yaml --json
machine show m.yaml --json
store list --store s.sqlite --json
store export --store s.sqlite --out out.csv
store verify --store s.sqlite
store prune --store s.sqlite --older-than 90d --yes
list generators matmul_sq
calibrate model.yaml -o out.yaml --budget 30s
demo --sizes 256,512 --out demo-out --trials 3
evaluate matmul --out evaluation --device pocl
""".strip().splitlines()
KERNELS = """
from perflex.features import scop_from_yaml

def made():
    with open("k.yaml", encoding="utf-8") as stream:
        return scop_from_yaml(stream.read())
"""


# What is read.


@cache
def documented(schema: str) -> list[str]:
    """Return the files of a format that the reference shows."""
    pages = (path.read_text(encoding="utf-8") for path in sorted((TOP / "docs" / "reference").glob("*.md")))
    blocks = [text for page in pages for text in re.findall(r"(?ms)^```yaml[^\n]*\n(.+?)^```", page)]
    return [text for text in blocks if f"schema: {schema}/" in text]


@cache
def scops() -> list[str]:
    """Return descriptions of kernels: that of the reference, and of loopy kernels."""
    examples = (f"{TOP}/examples/{name}" for name in ("matmul.py:prefetching", "jacobi.py:seven_point"))
    return [*documented("perflex-scop"), *(scop_to_yaml(extract_scop(load_kernel(name))) for name in examples)]


@cache
def scop(number: int = 0) -> Any:
    return scop_from_yaml(scops()[number])


def shipped(*names: str) -> Callable[[], list[str]]:
    places = [files("perflex.calib_data") / f"{name}.yaml" for name in names]
    return lambda: [place.read_text(encoding="utf-8") for place in places]


# Of one device, and what others' times say of GPUs.
calibrations = shipped("calibrations/matmul_sq_amd_epyc_4cores_pocl", "calibrations/general_gpu")
machines = shipped("machines/V100", "machines/Gold-6248")


def caches() -> list[tuple[str, str]]:
    """Return the measured configurations of `TIMES` in the forms in which such files come."""
    rows = [[float(word) for word in line.split(",")] for line in TIMES.splitlines()[1:]]
    settings = [{"items": int(items), "unroll": int(unroll)} for items, unroll, *_ in rows]
    tuner = {
        "device_name": "A GPU", "kernel_name": "k", "problem_size": [1024], "tune_params_keys": ["items", "unroll"],
        "tune_params": {"items": [32, 64, 128], "unroll": [1, 2, 4]}, "objective": "time",
        "cache": {f"{n}": {**one, "time": rows[n][3], "times": [rows[n][3]]} for n, one in enumerate(settings)},
    }  # fmt: skip
    results = [
        {"configuration": one, "measurements": [{"name": "time", "value": row[3], "unit": "ms"}]}
        for one, row in zip(settings, rows, strict=True)
    ]
    t4 = {"schema_version": "1.0.0", "results": results, "device_name": "A GPU"}
    return [(json.dumps(tuner), "json"), (json.dumps(t4), "json"), (TIMES, "csv")]


def packed(inputs: list[tuple[str, str]]) -> list[Input]:
    plain = [(text.encode(), form, form) for text, form in inputs]
    return [*plain, (gzip.compress(plain[0][0], 1), "bytes", f"{plain[0][1]}.gz")]


def store() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder, "store.sqlite")
        write(0, place, 6)
        Store(place).close()
        return place.read_bytes()


@cache
def named() -> dict[str, tuple[bytes, str]]:
    texts = {"k.yaml": scops()[0], "j.yaml": scops()[2], "c.yaml": calibrations()[0], "m.yaml": machines()[0]}
    texts["model.yaml"] = documented("perflex-model")[0]
    found = {name: (text.encode(), name.partition(".")[2]) for name, text in texts.items()}
    return {**found, "s.sqlite": (store(), "bytes")}


def named_files() -> list[Input]:
    return [(*named()[name], (line, name)) for line in LINES for name in named() if name in line.split()]


def sources() -> list[Input]:
    """Return kernels in OpenCL C, each with its name, work-group, grid and sizes."""
    sys.path.append(str(TOP))
    from support.source_samples import SAMPLES

    own = [(one.source.encode(), "text", ("k", one.local, one.groups, dict(one.sizes))) for one in SAMPLES.values()]
    text = (TOP / "examples" / "matmul.cl").read_bytes()
    return [*own, *((text, "text", (name, (16, 16), (4, 4), {"n": 64})) for name in ("naive", "tiled"))]


# Who reads it.


def count(kernel: Any, sizes: Any) -> None:
    finite(*(counted.value for counted in count_features(kernel, sizes) if counted.value is not None))


def use_calibration(content: bytes, _: Any) -> None:
    read = perflex.Calibration.load(written(content, "c.yaml"))
    repr(read)
    with perflex.using_machine("Gold-6248" if read.device.get("kind") == "cpu" else "V100"):
        interval = read.predict_interval(scop(), {"n": 64})
    finite(interval.predicted, interval.low, interval.high)
    read.save("again.yaml")
    finite(*perflex.Calibration.load("again.yaml").params.values())


def use_scop(content: bytes, _: Any) -> None:
    read = load_kernel(str(written(content, "k.yaml")))
    scop_to_yaml(read)
    count(read, dict.fromkeys(read.parameters, 64))


def use_machine(content: bytes, _: Any) -> None:
    read = perflex.load_machine(str(written(content, "m.yaml")))
    if read.kind == "gpu":
        found = perflex.estimate_volumes(scop(), scop().checked({"n": 64}), read).features()
        # Where the machine states no rules of L1, its wavefronts are nan, not known.
        finite(*(value for name, value in found.items() if name != "f_l1_wavefronts" or read.l1_rules is not None))
    else:
        finite(*(level.bytes for level in estimate_ecm(scop(2), {"M": 40, "N": 60}, read).levels))


def use_model(content: bytes, _: Any) -> None:
    read = load_model(written(content, "model.yaml"))
    read.model()
    measurement_kernels(read, 3.0)


def use_cache(content: bytes, form: str) -> None:
    settings = [{"items": items, "unroll": unroll} for items in (32, 64, 128) for unroll in (1, 2, 4)]
    finite(*measured_times(written(content, f"cache.{form}"), [str(one) for one in settings], settings).values())


def made(rows: int, shift: float = 0.0) -> Any:
    if isinstance(rows, int) and rows > 0:
        return scop()
    # A user's function refuses what it cannot make in the project's own way.
    msg = f"no kernel of {rows} rows shifted by {shift}"
    raise perflex.PerflexError(msg)


def use_times(content: bytes, form: str) -> None:
    read = perflex.load_times(written(content, f"times.{form}"), {"made": made})
    finite(*perflex.gather_feature_values(["f_cl_wall_time", "f_sync_kernel_launch"], times=read).values.flat)


def use_expression(content: bytes, _: Any) -> None:
    model = perflex.Model("f_cl_wall_time", text_of(content))
    parameters, values = dict.fromkeys(model.params(), 2.0), model.feature_values(scop(), {"n": 64}, Target())
    model.evaluate(parameters, values)
    model.terms(parameters, values)
    str(model)


def use_feature(content: bytes, _: Any) -> None:
    parse_feature(text_of(content)).value(scop(), {"n": 64}, Target(32, perflex.load_machine("V100")))


def use_constraint(content: bytes, _: Any) -> None:
    values = {"wide": (1, 2, 4), "high": (1, 2), "name": ("a", "b")}
    perflex.VariantSpace(lambda **_: None, values, [text_of(content)]).enumerated()


def use_source(content: bytes, launch: tuple[str, Any, Any, Any]) -> None:
    name, local, groups, sizes = launch
    # A text of one line would be a path.
    count(perflex.source_kernel(f"{text_of(content)}\n", name, local=local, groups=groups), sizes)


def use_space(content: bytes, form: str) -> None:
    for name in ("matmul.cl", "convolution.cl"):
        written((TOP / "examples" / name).read_bytes(), name)
    space = perflex.load_space(written(content, f"space.{form}"))
    finite(*space.extract(["f_thread_groups"], None if "nx" in space.sizes else {"n": 64}).values.flat)


def use_sizes(content: bytes, _: Any) -> None:
    try:
        size = json.loads(content)
    except (ValueError, RecursionError):  # this program's own reading, not that of perflex
        return
    count(scop(), {"n": size})


def use_file(content: bytes, place: tuple[str, str]) -> None:
    line, name = place
    run_command(line.split(), {name: content})


def use_line(content: bytes, _: Any) -> None:
    # The operating system hands over no words with a zero byte.
    run_command(text_of(content).replace("\x00", "").split(), {})


def run_command(words: list[str], changed: dict[str, bytes]) -> None:
    """Run a command beside its files; its exit status is one of perflex's."""
    for name, (content, _) in named().items():
        written(changed.get(name, content), name)
    Path("kernels.py").write_text(KERNELS, encoding="utf-8")
    streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2)]
    with redirect_stdout(streams[0]), redirect_stderr(streams[1]):
        code = main(words)
        sys.stderr.flush()
    told = streams[1].buffer.getvalue().decode("utf-8")  # type: ignore[attr-defined]
    if code not in {0, 1, 2} or "Traceback" in told:
        msg = f"exit status {code}: {told[-500:]}"
        raise AssertionError(msg)


def documents(form: str, texts: Callable[[], Iterable[str]]) -> Callable[[], list[Input]]:
    return cache(lambda: [(text.encode(), form, form) for text in texts()])


def of_schema(schema: str, more: str = "") -> Callable[[], list[Input]]:
    return documents("yaml", lambda: [documented(f"perflex-{schema}")[0] + more])


KINDS = (
    Kind("calibration", 16, documents("yaml", calibrations), use_calibration),
    Kind("scop", 22, documents("yaml", scops), use_scop),
    Kind("machine", 8, documents("yaml", machines), use_machine),
    Kind("model", 6, of_schema("model"), use_model),
    Kind("tuning cache", 10, cache(lambda: packed(caches())), use_cache),
    Kind("times", 6, cache(lambda: packed([(TABLE, "csv"), (BY_TAGS, "csv")])), use_times),
    Kind("model string", 5, documents("text", lambda: TEXTS["model string"]), use_expression),
    Kind("feature", 4, documents("text", lambda: TEXTS["feature"]), use_feature),
    Kind("constraint", 2, documents("text", lambda: TEXTS["constraint"]), use_constraint),
    Kind("source", 10, cache(sources), use_source),
    Kind("source space", 2, of_schema("source", DEFINED), use_space),
    Kind("source space of a benchmark", 2, documents("json", lambda: [T1]), use_space),
    Kind("sizes", 2, documents("json", lambda: ["64"]), use_sizes),
    Kind("command line", 8, documents("text", lambda: LINES), use_line),
    Kind("file of a command", 5, cache(named_files), use_file),
    Kind("Triton's file of times", 3, tiles.files, tiles.use_times),
    Kind("recorded lines", 2, tiles.recorded, tiles.use_times),
    Kind("table of PyTorch", 4, tiles.tables, tiles.use_times),
    Kind("best configurations", 1, tiles.winners, tiles.use_winner),
    Kind("TTIR", 10, tiles.codes, tiles.use_code),
)
