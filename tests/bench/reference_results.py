"""The library's deterministic results in a file, to compare two versions of the code with each other.

    python tests/bench/reference_results.py record before.json
    python tests/bench/reference_results.py record after.json --only fit,counts
    python tests/bench/reference_results.py compare before.json after.json

``record`` calls public names and the command line only, so that it runs unchanged where modules were moved or renamed:

* fit: the shipped calibrations, fitted again to the tables they carry, to the last digit; their predictions and
  diagnoses; the shipped models, descriptions and machines;
* counts: everything counted in four variants of each generator of the catalog, at two sizes;
* volumes: data volumes, residency and instructions on three GPUs; caches, ECM models and blocks on three CPUs;
* commands: what the commands print that time nothing, their exit codes and the tables they write;
* fake: calibrating, pruning and tuning with times that are computed, and the described spaces of ../shared/data.

Nothing is timed and nothing is kept (PERFLEX_STORE is off). A result that fails is recorded as its error. ``compare``
prints each value that differs and ends with 1 if there is one; sections that only one file has are named, not compared.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib
import io
import itertools
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

TOP = Path(__file__).resolve().parents[2]
EXAMPLES = TOP / "examples"
CPU_MACHINES = ("Gold-6248", "Gold-6248-SNC-off", "EPYC-7452")
GPU_MACHINES = ("V100", "H100-SXM", "MI210")
VARIANTS = 3
# Libraries that add in parallel add in another order each time.
ENVIRONMENT = {
    "COLUMNS": "150",
    "MPLBACKEND": "Agg",
    "NO_COLOR": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "PERFLEX_STORE": "off",
    "TERM": "dumb",
}
GPU_FEATURES = (
    "f_waves", "f_wave_quantisation", "f_occupancy", "f_l1_wavefronts", "f_lmem_wavefronts", "f_lmem_wavefronts_load",
    "f_lmem_wavefronts_store", "f_vol_l1_load", "f_vol_l2_l1_load", "f_vol_l2_l1_store", "f_vol_dram_load",
    "f_vol_dram_store", "f_oversub_l1", "f_oversub_l2", "f_su_v_smx", "f_su_v_l2", "f_su_v_gm", "f_su_imbalance",
    "f_txn_global", "f_txn_local", "f_txn_l1", "f_txn_l2", "f_txn_dram",
)  # fmt: skip
CPU_FEATURES = tuple(f"f_ecm_{what}_{level}" for what in ("vol", "cycles") for level in ("l1", "l2", "l3", "mem"))
# Kernels that volumes are computed of: generator, the first tags of its variant, sizes.
CATALOG = (
    ("axpy", {"n": 1048576}),
    ("conv2d", {"nx": 1024, "ny": 512}),
    ("fdiff", {"n": 1008}),
    ("gemv", {"n": 1024, "m": 512}),
    ("gsrb", {"nx": 64, "ny": 64, "nz": 32}),
    ("matmul_rb", {"n": 256}),
    ("nbody", {"n": 2048}),
    ("stencil2d", {"nx": 1024, "ny": 512}),
    ("stencil3d", {"nx": 128, "ny": 64, "nz": 32}),
    ("wave3d", {"nx": 64, "ny": 64, "nz": 32}),
)

Results = Iterator[tuple[str, Any]]


def plain(value: Any) -> Any:  # noqa: PLR0911 - one return per kind of value
    """Return what JSON can hold of a value: numbers to the last digit, texts of several lines as lists."""
    if isinstance(value, str):
        lines = normal(value).split("\n")
        return lines if len(lines) > 1 else lines[0]
    if value is None or isinstance(value, bool | int | float):
        # Subclasses, such as NumPy's float64, are written as what they are.
        return value if type(value) in {bool, int, float, type(None)} else plain(value.item())
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in fields(value) if not field.name.startswith("_")]
        return {name: plain(getattr(value, name)) for name in names}
    if hasattr(value, "__struct_fields__"):
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, list | tuple | range):
        return [plain(each) for each in value]
    if isinstance(value, set | frozenset):
        return sorted(map(str, value))
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    return plain(str(value))


def normal(text: str) -> str:
    """Return a text without what depends on the place and the time of the run."""
    for place, name in ((TOP, "<top>"), (TOP.parent, "<beside>")):
        text = text.replace(str(place), name)
    begins = rf"(?:<beside>|{re.escape(tempfile.gettempdir())})"
    text = re.sub(rf"{begins}/reference_[^/\s'\"]*", "<folder>", text)
    text = re.sub(r"\b0x[0-9a-f]{6,}\b", "<address>", text)
    return re.sub(r"\bin \d[\d.e+-]* m?s\b", "in <time>", text)


def outcome(compute: Callable[[], Any]) -> Any:
    """Return what a computation gives, or its error; with its warnings if there are any."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found = plain(compute())
        except Exception as error:  # noqa: BLE001 - an error is a result, too
            found = {"failed": f"{type(error).__name__}: {normal(str(error))}"}
    told = [normal(str(entry.message)) for entry in caught if entry.category.__name__ == "PerflexWarning"]
    return {"result": found, "warnings": list(dict.fromkeys(told))} if told else found


def shipped_calibrations() -> dict[str, Path]:
    try:
        folder = Path(str(files("perflex.calib_data")))
    except ModuleNotFoundError:
        folder = TOP / "calib_data"
    return {path.stem: path for path in sorted((folder / "calibrations").glob("*.yaml"))}


@lru_cache(maxsize=64)
def example(name: str) -> Any:
    module, _, function = name.partition(":")
    if str(EXAMPLES) not in sys.path:
        sys.path.append(str(EXAMPLES))
    return getattr(importlib.import_module(module), function)()


def generator_named(name: str) -> Any:
    from uipick import ALL_GENERATORS

    return next(generator for generator in ALL_GENERATORS if generator.name == name)


def chosen_variants(generator: Any) -> list[list[dict[str, Any]]]:
    """Return the first variants by default and the last, each with its first and its last sizes."""
    found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for arguments in generator.combinations({}):
        if generator.violated(arguments) is None:
            kind = tuple(value for name, value in arguments.items() if name not in generator.size_arguments)
            found.setdefault(kind, []).append(arguments)
    variants = list(found.values())
    some = variants if len(variants) <= VARIANTS + 1 else [*variants[:VARIANTS], variants[-1]]
    return [[each[0], each[-1]] if len(each) > 1 else each for each in some]


@lru_cache(maxsize=1)
def volume_kernels() -> dict[str, tuple[Any, dict[str, int]]]:
    found = {
        "matmul naive": (example("matmul:naive"), {"n": 512}),
        "matmul prefetching": (example("matmul:prefetching"), {"n": 512}),
        "transpose naive": (example("transposes:naive"), {"n": 1024}),
        "transpose tiled": (example("transposes:tiled"), {"n": 1024}),
        "transpose padded": (example("transposes:padded"), {"n": 1024}),
        "star25": (example("stencil:star25"), {"nx": 640, "ny": 512, "nz": 512}),
    }
    for name, sizes in CATALOG:
        generator = generator_named(name)
        for variant in chosen_variants(generator)[:2]:
            made = generator.generate(variant[0])
            words = ", ".join(f"{key}={value}" for key, value in made.arguments.items() if key not in sizes)
            found[f"{name}({words})"] = (made.kernel, {**made.sizes, **sizes})
    return found


def record_fit() -> Results:
    """Fit stored tables again, predict, diagnose; list what is shipped."""
    from perflex import Calibration, diagnose, fit_model, load_description, load_machine
    from perflex.models import load_model, model_names

    kernels = {name: volume_kernels()[name] for name in ("matmul naive", "matmul prefetching", "transpose tiled")}
    for name, path in shipped_calibrations().items():
        calibration = Calibration.load(path)
        model, table = calibration.model, calibration.table
        yield f"{name}/loaded", outcome(lambda c=calibration: {"text": repr(c), "fit": c.fit, "table": c.table})
        yield f"{name}/saved", outcome(lambda c=calibration: saved_text(c))
        if table is None:
            continue
        for kept in (True, False):
            again = outcome(lambda m=model, t=table, k=kept: fit_facts(fit_model(m, t, nonnegative=k, max_starts=4)))
            yield f"{name}/fitted again/nonnegative={kept}", again
        fewer = table.take(range(0, len(table), 2))
        half = outcome(lambda m=model, t=fewer: fit_facts(fit_model(m, t, nonnegative=True, on_undetermined="warn")))
        yield f"{name}/fitted to every second row", half
        yield f"{name}/diagnosis", outcome(lambda c=calibration: {"text": repr(diagnose(c)), **diagnose(c).as_dict()})
        own = {variant: kernels_of_calibration(name)[variant] for variant in kernels_of_calibration(name)}
        for label, (kernel, sizes) in {**kernels, **own}.items():
            yield f"{name}/predicted/{label}", outcome(lambda c=calibration, k=kernel, s=sizes: predictions(c, k, s))
    for name in model_names():
        shipped = load_model(name)
        made = shipped.model()
        yield (
            f"model {name}",
            outcome(
                lambda d=shipped, m=made: {
                    "file": d,
                    "model": repr(m),
                    "features": m.all_features(),
                    "params": m.params(),
                }
            ),
        )
    for name in ("convolution", "gemm", "pnpoly"):
        yield f"description {name}", outcome(lambda n=name: described_facts(load_description(n)))
    for name in (*GPU_MACHINES, *CPU_MACHINES):
        yield f"machine {name}", outcome(lambda n=name: load_machine(n))


def saved_text(calibration: Any) -> str:
    with tempfile.TemporaryDirectory(prefix="reference_") as folder:
        calibration.save(Path(folder) / "saved.yaml")
        return (Path(folder) / "saved.yaml").read_text(encoding="utf-8")


def fit_facts(fit: Any) -> dict[str, Any]:
    return {"text": repr(fit), "fit": fit, "correlation": fit.correlation, "error": fit.geometric_mean_error}


def described_facts(description: Any) -> dict[str, Any]:
    space = description.space()
    digest = hashlib.sha256(json.dumps(plain(space)).encode()).hexdigest()
    names = ("name", "text", "aliases", "constants", "model", "alternatives", "switches", "feature_names")
    facts = {name: getattr(description, name) for name in names}
    return {**facts, "configurations": len(next(iter(space.values()))), "digest": digest}


def kernels_of_calibration(name: str) -> dict[str, tuple[Any, dict[str, int]]]:
    """Return two variants of the generator that a calibration is for."""
    generator = generator_named({"dg": "dg_diff", "fdiff": "fdiff"}.get(name.partition("_")[0], "matmul_sq"))
    made = [generator.generate(variant[-1]) for variant in chosen_variants(generator)]
    return {kernel.name: (kernel.kernel, dict(kernel.sizes)) for kernel in made}


def predictions(calibration: Any, kernel: Any, sizes: dict[str, int]) -> dict[str, Any]:
    import numpy as np

    arrays = {name: np.array([value, 2 * value, 4 * value]) for name, value in sizes.items()}
    return {
        "one": calibration.predict(kernel, sizes),
        "several": calibration.predict(kernel, arrays),
        "interval": calibration.predict_interval(kernel, sizes, 0.9),
    }


def record_counts() -> Results:
    """Count everything in some variants of each generator."""
    from uipick import ALL_GENERATORS

    for generator in ALL_GENERATORS:
        for variant in chosen_variants(generator):
            made = [generator.generate(arguments) for arguments in variant]
            yield f"{generator.name}/{made[0].name}", outcome(lambda m=made[0]: counted(m))
            for other in made[1:]:
                yield f"{generator.name}/{other.name}", outcome(lambda m=other: counted_values(m))


def counted(made: Any) -> dict[str, Any]:
    """Return all that is counted: expressions, values, notes and certainties."""
    from perflex.features import count_features, extract_scop, parse_feature, scop_from_yaml, scop_to_yaml

    scop = extract_scop(made.kernel)
    everything = count_features(scop, made.sizes)
    # The text itself has its parameters in another order in each process.
    again, some = scop_from_yaml(scop_to_yaml(scop)), [entry.identifier for entry in everything[:4]]
    instructions = ["f_inst_total", "f_inst_thread", "f_inst_predication"]
    instructions += [name for name in parse_feature("f_inst_total").inventory(scop) if name not in instructions]
    executed = count_features(scop, made.sizes, sub_group_size=16, per_work_item=True)
    return {
        "sizes": made.sizes,
        "read again": {e.identifier: e.value for e in count_features(again, made.sizes, identifiers=some)},
        "features": {entry.identifier: entry for entry in everything},
        "instructions": {e.identifier: e.value for e in count_features(scop, made.sizes, identifiers=instructions)},
        "executed": {entry.identifier: entry.value for entry in executed},
    }


def counted_values(made: Any) -> dict[str, Any]:
    from perflex.features import count_features, extract_scop

    scop = extract_scop(made.kernel)
    return {entry.identifier: entry.value for entry in count_features(scop, made.sizes, sub_group_size=64)}


def record_volumes() -> Results:
    """Compute volumes and residency on GPUs; caches, ECM models and blocks on CPUs."""
    from perflex import choose_block, ecm_model, fit_capacity_curve, in_core_cycles, using_machine

    for machine, (label, (kernel, sizes)) in itertools.product(GPU_MACHINES, volume_kernels().items()):
        yield f"{machine}/{label}", feature_values(machine, GPU_FEATURES, kernel, sizes)
        yield f"{machine}/{label}/64 registers", feature_values(machine, GPU_FEATURES[:3], kernel, sizes, registers=64)
    small = {"jacobi": (example("jacobi:seven_point"), {"M": 1000, "N": 200})}
    for machine, (label, (kernel, sizes)) in itertools.product(CPU_MACHINES, {**small, **volume_kernels()}.items()):
        yield f"{machine}/{label}", feature_values(machine, CPU_FEATURES, kernel, sizes)
        for cores in (1, 4):

            def composed(m: str = machine, k: Any = kernel, s: Any = sizes, c: int = cores) -> dict[str, Any]:
                model = ecm_model(m, cores=c, in_core=in_core_cycles(m, k))
                with using_machine(m):
                    return {"model": repr(model), "seconds": model.eval_with_kernel({}, k, s)}

            yield f"{machine}/{label}/{cores} cores", outcome(composed)
        if label in small or label.startswith("stencil3d"):
            for count in (1, 8):
                yield (
                    f"{machine}/{label}/block, {count} cores",
                    outcome(lambda k=kernel, s=sizes, m=machine, c=count: choose_block(k, s, m, cores=c)),
                )
    over = [0.1 * number for number in range(1, 30)]
    rates = [0.9 * math.exp(-5.0 * math.exp(-2.0 * each)) for each in over]
    yield "capacity curve", outcome(lambda: fit_capacity_curve(over, rates))


def feature_values(machine: str, names: Any, kernel: Any, sizes: dict[str, int], **how: Any) -> dict[str, Any]:
    from perflex import using_machine
    from perflex.features import extract_scop, kernel_feature_values

    scop = extract_scop(kernel)

    def value(name: str) -> Any:
        with using_machine(machine, **how):
            return float(kernel_feature_values([name], scop, sizes)[name])

    return {name: outcome(lambda n=name: value(n)) for name in names}


def command_lines() -> list[str]:
    """Return the commands of the README that time nothing, and variants of them; FOLDER is empty at first."""
    naive, prefetching = "examples/matmul.py:naive", "examples/matmul.py:prefetching"
    star = "examples/stencil.py:star25"
    jacobi, transposes = "examples/jacobi.py:seven_point", "examples/transposes.py"
    three = " ".join(f"{transposes}:{name}" for name in ("naive", "tiled", "padded"))
    grid, sq = "nx=640 ny=512 nz=512", "MATMUL_SQ_INTEL"
    commands = (
        "demo",
        "devices",
        "catalog",
        "features",
        "calibrate",
        "diagnose",
        "predict",
        "rank",
        "prune",
        "volumes",
        "layers",
        "block",
        "roofline",
        "compare",
        "evaluate",
        "machine",
        "store",
    )
    lines = ["--version", "--help", *(f"{command} --help" for command in commands)]
    lines += [f"machine {word} --help" for word in ("list", "show", "detect")]
    lines += [f"store {word} --help" for word in ("list", "export", "verify", "prune")]
    lines += ["catalog", "catalog --json", "catalog matmul_sq", "catalog stencil", "catalog nothing_has_this"]
    for kernel, sizes in ((naive, "n=1056"), (prefetching, "n=1056"), (star, grid), (jacobi, "M=100 N=60")):
        lines += [f"features {kernel}", f"features {kernel} {sizes}", f"features {kernel} {sizes} --json"]
        lines += [f"features {kernel} {sizes} --per work-item --subscripts --branches domain --sub-group-size 16"]
    lines += [
        f"features {naive} n=1056 -f f_op_float32_madd -f f_mem_access_tag:aLD -f f_chain_float32_madd_after:48",
        f"features {star} {grid} --machine V100 --registers 64",
        f"features {naive} n=1056 -f f_ops_float32_madd",
        f"features {naive} n=1000",
        f"features {naive} m=16 n=32",
        "features examples/matmul.py:nothing n=16",
        "features nowhere.py:naive n=16",
    ]
    for name in shipped_calibrations():
        lines += [f"predict CALIBRATION:{name} {prefetching} n=1056"]
    lines += [
        f"predict {sq} {naive} n=512,1024 --confidence 0.95",
        f"predict {sq} {naive} n=512,1024 --json --confidence 0.9",
        f"predict {sq} {naive}",
        f"predict nowhere.yaml {naive} n=16",
        f"diagnose {sq} --out FOLDER",
        "diagnose CALIBRATION:fdiff_incore_amd_epyc_4cores_pocl",
        "diagnose CALIBRATION:fdiff_incore_amd_epyc_4cores_pocl --json",
        f"rank {sq} {prefetching} {naive} n=1056",
        f"rank {sq} {prefetching} {naive} n=1056 --json",
        "prune MATMUL_INCORE examples/matmul_space.py:space n=512 --keep 5% --out FOLDER",
        f"prune MATMUL_INCORE {naive} n=512",
        "machine list",
        "machine list --json",
        "machine show nowhere",
    ]
    for machine in (*GPU_MACHINES, *CPU_MACHINES, "K20", "W7800"):
        lines += [f"machine show {machine}", f"machine show {machine} --json"]
    for machine in GPU_MACHINES:
        lines += [
            f"volumes {star} --machine {machine} {grid}",
            f"volumes {star} --machine {machine} {grid} --variant paper2022 --json",
            f"roofline {three} n=1024 --machine {machine} --time bound",
            f"roofline {three} n=1024 --machine {machine} --json",
        ]
    for machine in CPU_MACHINES:
        lines += [
            f"layers {jacobi} --machine {machine} M=10000 N=600",
            f"layers {jacobi} --machine {machine} M=1000 N=600 --cores 4 --json",
            f"block {jacobi} --machine {machine} M=512 N=512",
        ]
    described = "DATA/gpu_tuning/convolution_milo/A4000.csv.gz convolution --samples 100"
    lines += [
        f"volumes {star} --machine V100 --series nx,ny=256:512:256 --points 134217728",
        f"volumes {naive} --machine V100 n=512 --registers 128 --granule 64",
        f"volumes {naive} --machine V100",
        f"volumes {naive} --machine Gold-6248 n=512",
        f"roofline {naive} {prefetching} n=1024 --machine v100 --time predicted --calibration {sq} --out FOLDER",
        f"roofline {naive} --machine V10 n=64",
        f"layers {jacobi} --machine Gold-6248 M=1000 N=600 --fold k=2 --fold j=4 --convention paper",
        f"layers {jacobi} --machine Gold-6248 M=1000 N=600 --block j=100 --block i=300",
        f"layers {jacobi} --machine Gold-6248 M=1000 --series N=100:700:100",
        f"layers {naive} --machine EPYC-7452 n=512",
        f"layers {jacobi} --machine V100 M=10 N=10",
        f"block {jacobi} --machine Gold-6248 M=512 N=512 --cores 4 --lanes 8 --tiles-per-core 2 --json",
        f"block {jacobi} --machine Gold-6248 M=512 N=512 --criterion L2=plane",
        "compare LEFT RIGHT --key x --key y --value dram=measured --value l2",
        "compare LEFT RIGHT --key x --key y --value dram=measured --json",
        "compare LEFT RIGHT --key x --value nothing",
        f"prune-table {described} --keep promise --analytic --out FOLDER",
        f"prune-table {described} --keep 5%",
        f"prune-table {described} --keep promise:0.05,0.9 --json",
        "store list --store FOLDER/nothing.sqlite",
        "calibrate no_such_model -o FOLDER/x.yaml",
        "no_such_command",
    ]
    return lines


def record_commands() -> Results:
    """Run commands: exit code, what they print, the tables they write and the names of pictures."""
    calibrations = shipped_calibrations()
    for line in command_lines():
        with tempfile.TemporaryDirectory(prefix="reference_") as folder, contextlib.chdir(TOP):
            place = Path(folder)
            words = [word_with_places(word, place, calibrations) for word in line.split()]
            yield line, outcome(lambda w=words, p=place: command_result(w, p))
    alone = subprocess.run(
        [sys.executable, "-m", "perflex", "machine", "show", "V100"],
        cwd=TOP,
        capture_output=True,
        text=True,
        check=False,
    )
    yield "python -m perflex", plain({"code": alone.returncode, "output": alone.stdout, "remarks": alone.stderr})


def word_with_places(word: str, folder: Path, calibrations: dict[str, Path]) -> str:
    by_name = {"MATMUL_SQ_INTEL": "matmul_sq_amd_epyc_4cores_intel_opencl",
               "MATMUL_INCORE": "matmul_incore_amd_epyc_4cores_intel_opencl"}  # fmt: skip
    if word in by_name or word.startswith("CALIBRATION:"):
        return str(calibrations[by_name.get(word) or word.removeprefix("CALIBRATION:")])
    if word in {"LEFT", "RIGHT"}:
        rows = [(x, y, 1.0 + x / 7 + y, 3.0 + math.sqrt(x * y)) for x in (8, 16, 32) for y in (1, 2, 4)]
        factor = 1.0 if word == "LEFT" else 1.125
        names = "x,y,dram,l2" if word == "LEFT" else "x,y,measured,l2"
        text = "\n".join([names, *(f"{x},{y},{factor * d + x / 64!r},{factor * b!r}" for x, y, d, b in rows)])
        path = folder / f"{word.lower()}.csv"
        path.write_text(f"{text}\n", encoding="utf-8")
        return str(path)
    return word.replace("FOLDER", str(folder)).replace("DATA", str(TOP.parent / "shared" / "data"))


def command_result(words: list[str], folder: Path) -> dict[str, Any]:
    from perflex.__main__ import main

    output, remarks = io.StringIO(), io.StringIO()
    given = {path.name for path in folder.iterdir()}
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(remarks):
        code = main(words)
    written = {
        path.name: path.read_text(encoding="utf-8") if path.suffix in {".csv", ".md", ".json", ".yaml"} else "a file"
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in given
    }
    return {"code": code, "output": output.getvalue(), "remarks": remarks.getvalue(), "written": written}


class FakeDevice:
    """A device whose times are computed from the kernel, its sizes and its label."""

    name, platform, vendor, driver, kind, api = "fake device", "fake platform", "nobody", "0", "cpu", "opencl"
    sub_group_size = 16
    timer_resolution_s = 1e-9

    def __init__(self, law: Callable[[Any, Mapping[str, int], str], float], noise: float = 0.02) -> None:
        self.law, self.noise = law, noise

    def __str__(self) -> str:
        return f"{self.name} ({self.platform})"

    def backend(self) -> FakeDevice:
        return self

    @property
    def device(self) -> FakeDevice:
        return self

    def build(self, job: Any) -> FakeRun:
        return FakeRun(self.law(job.kernel, job.sizes, job.label), self.noise, job.label)

    def close(self) -> None:
        pass


class FakeRun:
    """A kernel on the fake device; each launch takes a little more than the law says."""

    def __init__(self, seconds: float, noise: float, label: str) -> None:
        self.seconds, self.noise, self.label, self.launched = seconds, noise, label, 0

    def run(self, launches: int) -> tuple[float, ...]:
        found = []
        for _ in range(launches):
            self.launched += 1
            found.append(self.seconds * (1 + self.noise * fraction(f"{self.label} {self.launched}")))
        return tuple(found)


def fraction(text: str) -> float:
    """Return a number from 0 to 1 that looks like chance and is the same for the same text."""
    return zlib.crc32(text.encode()) / 2**32


def record_fake() -> Results:
    """Calibrate, prune and tune with times that are computed."""
    from perflex import Calibration, Model, Promise, calibrate, prune, rank, tune

    path = shipped_calibrations()["matmul_incore_amd_epyc_4cores_intel_opencl"]
    truth = Calibration.load(path)
    device = FakeDevice(lambda kernel, sizes, _: float(truth.predict(kernel, sizes)))
    kernels = measurement_kernels("matmul_incore")
    model = Model("f_cl_wall_time_fake", truth.model.expression)
    for label, how in (("all", {}), ("absolute", {"relative": False}), ("budget", {"budget_s": 1.0})):
        found = outcome(lambda h=how: without_dates(calibrate(model, kernels, device=device, store="off", **h)))
        yield f"calibrate/{label}", found
    space = matmul_space()
    yield "space", outcome(lambda: {"text": repr(space), "settings": list(space), "of": space.combinations})
    sizes = {"n": 512}
    yield "rank", outcome(lambda: [{**plain(p), "kernel": ""} for p in rank(space, truth, sizes)])
    for keep in (5, 0.1, Promise(loss=0.05, confidence=0.9)):
        yield f"prune/{keep}", outcome(lambda k=keep: pruned_facts(prune(space, truth, sizes, keep=k, store="off")))
    first = prune(space, truth, sizes, keep=5, store="off")
    times = {v.name: v.predicted * (1 + fraction(v.name) / 3) for v in first.variants[::4]}
    promise = Promise(loss=0.05, confidence=0.95)
    yield (
        "prune/measured",
        outcome(lambda: pruned_facts(prune(space, truth, sizes, keep=promise, measured=times, store="off"))),
    )
    for calibration in (None, truth):
        yield (
            f"tune/{'blind' if calibration is None else 'calibrated'}",
            outcome(
                lambda c=calibration: tuned_facts(
                    tune(space, sizes, device=device, calibration=c, budget=20, first=8, seed=1, store="off")
                )
            ),
        )
    yield "tuner", outcome(lambda: asked_and_told(times, first))
    yield "blocks", outcome(fitted_blocks)
    yield from record_described()


def measurement_kernels(name: str) -> list[Any]:
    from perflex.models import load_model
    from uipick import ALL_GENERATORS, KernelCollection, MatchCondition

    collection = KernelCollection(ALL_GENERATORS)
    found: dict[str, Any] = {}
    for each in load_model(name).measurement_kernels:
        how = {} if each.match is None else {"generator_match_cond": MatchCondition[each.match.upper()]}
        made = collection.generate_kernels(list(each.tags), **how)
        found.update({kernel.name: kernel for kernel in made})
    return list(found.values())


def without_dates(calibration: Any) -> dict[str, Any]:
    names = ("model", "device", "options", "noise_floor", "dropped", "machine", "table")
    return {**{name: getattr(calibration, name) for name in names}, **fit_facts(calibration.fit)}


def matmul_space() -> Any:
    from perflex import VariantSpace

    build = example_function("matmul_space", "matmul")
    values = {"wide": (8, 16), "high": (4, 8), "columns": (1, 2), "rows": (1, 2), "depth": (16, 32), "unroll": (1, 4)}
    constraints = ["depth % wide == 0 and depth % high == 0", "rows * columns * unroll <= 8"]
    return VariantSpace(build, values, constraints, name="some matrix multiplications")


def example_function(module: str, name: str) -> Any:
    if str(EXAMPLES) not in sys.path:
        sys.path.append(str(EXAMPLES))
    return getattr(importlib.import_module(module), name)


def pruned_facts(pruning: Any) -> dict[str, Any]:
    return {
        "text": repr(pruning),
        "table": pruning.table(),
        "decision": pruning.decision,
        "excluded": pruning.excluded,
        "share": pruning.share,
    }


def tuned_facts(found: Any) -> dict[str, Any]:
    """Return what tuning found; what building cost is another time each time."""
    steps = [{**plain(step), "cost_s": 0.0} for step in found.history]
    return {"best": found.best, "history": steps, "promise": found.promise, "failures": found.failures}


def asked_and_told(times: dict[str, float], pruning: Any) -> dict[str, Any]:
    import numpy as np

    from perflex import Tuner

    features = np.array([[v.predicted, *v.costs.values(), *map(float, v.settings.values())] for v in pruning.variants])
    tuner = Tuner(features, prior=[v.predicted for v in pruning.variants], budget=24, first=8, seed=3)
    asked: list[str] = []
    while some := tuner.ask(4):
        for each in some:
            variant = pruning.variants[each.number]
            asked.append(variant.name)
            tuner.tell(each, times.get(variant.name, variant.predicted * (1 + fraction(variant.name) / 3)))
    return {"asked": asked, "best": tuner.best, "predicted": tuner.predicted, "promise": tuner.promise}


def fitted_blocks() -> dict[str, Any]:
    from perflex import calibrate_blocks, choose_block

    generator = generator_named("stencil3d")
    variant = chosen_variants(generator)[0][0]
    made = generator.generate(variant)
    jobs = []
    for number, (nx, ny, nz) in enumerate(itertools.product((64, 128, 256), (64, 128), (32, 64))):
        block = ((16, 8, 4), (32, 4, 8), (64, 16, 32), (64, 4, 4))[number % 4]
        jobs.append((made.kernel, {"nx": nx, "ny": ny, "nz": nz}, block))

    def law(_: Any, sizes: Mapping[str, int], label: str) -> float:
        return 1e-6 + 1e-9 * math.prod(sizes.values()) * (1 + fraction(label))

    calibration = calibrate_blocks(jobs, "Gold-6248", device=FakeDevice(law))
    sizes = {"nx": 256, "ny": 128, "nz": 64}
    chosen = choose_block(made.kernel, sizes, "Gold-6248", calibration=calibration)
    return {**without_dates(calibration), "chosen": chosen}


def record_described() -> Results:
    """Prune and tune measured spaces of described kernels, and count in some configurations."""
    from perflex import DescribedSpace, Promise, load_described_space, load_description, prune, tune
    from perflex.features import content_hash, count_features

    data = TOP.parent / "shared" / "data" / "gpu_tuning"
    spaces = {"convolution": data / "convolution_milo" / "A4000.csv.gz", "gemm": data / "gemm" / "RTX_2080_Ti.csv.gz"}
    for name, path in spaces.items():
        for learned, keep in itertools.product((False, True), (0.05, Promise())):

            def pruned(n: str = name, p: Path = path, x: bool = learned, k: Any = keep) -> dict[str, Any]:
                space = load_described_space(p, load_description(n))
                found = prune(space, keep=k, learned=x, seed=2, measured=space.sample(100, 2))
                names = ("kept", "decision", "excluded", "parameters", "errors", "keeps_near_best")
                facts = {each: getattr(found, each) for each in names}
                return {"text": repr(found), "predicted": found.prediction.predicted[::50], **facts}

            yield f"described/{name}/learned={learned}, {keep}", outcome(pruned)
    for name in ("convolution", "gemm"):
        description = load_description(name)
        whole = description.space()
        step = max(1, len(next(iter(whole.values()))) // 400)
        settings = {key: column[::step] for key, column in whole.items()}
        space = DescribedSpace(description, settings, "A100")
        expected = space.expected()
        yield f"described/{name}/expected", outcome(lambda e=expected: e)
        yield (
            f"described/{name}/tuned",
            outcome(
                lambda s=space, e=expected: tuner_facts(
                    tune(s, measure=lambda v: float(e[v.number]) * (1 + fraction(str(v.number)) / 2), budget=50, seed=4)
                )
            ),
        )
        for row in range(0, len(expected), max(1, len(expected) // 4)):
            one = {key: float(column[row]) for key, column in settings.items()}

            def counted_scop(d: Any = description, given: Any = one) -> dict[str, Any]:
                scop = example_function("described_scops", "described_scop")(d, given)
                return {"scop": content_hash(scop), "counts": {e.identifier: e for e in count_features(scop, {})}}

            yield f"described/{name}/configuration {row}", outcome(counted_scop)


def tuner_facts(tuner: Any) -> dict[str, Any]:
    return {"index": [step.number for step in tuner.history], "times": [step.seconds for step in tuner.history]}


SECTIONS: dict[str, Callable[[], Results]] = {
    "fit": record_fit,
    "counts": record_counts,
    "volumes": record_volumes,
    "commands": record_commands,
    "fake": record_fake,
}


def leaves(tree: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield path and value of everything in a tree; an empty list or mapping is a value, too."""
    if isinstance(tree, dict) and tree:
        for key, value in tree.items():
            yield from leaves(value, f"{path} > {key}" if path else key)
    elif isinstance(tree, list) and tree:
        for number, value in enumerate(tree):
            yield from leaves(value, f"{path}[{number}]")
    else:
        yield path, tree


def record(path: Path, names: list[str]) -> None:
    import perflex

    home = Path(perflex.__file__).resolve()
    if TOP not in home.parents:
        print(f"warning: perflex comes from {home.parent}, not from {TOP}", file=sys.stderr)
    found: dict[str, dict[str, Any]] = {}
    for name in names:
        begun = time.perf_counter()
        found[name] = dict(SECTIONS[name]())
        values = list(leaves(found[name]))
        failed = sum(where.endswith(" > failed") for where, _ in values)
        print(
            f"{name}: {len(values)} values, {failed} errors among them, {time.perf_counter() - begun:.0f} s", flush=True
        )
    path.write_text(json.dumps(found, indent=1), encoding="utf-8")


def compare(first: Path, second: Path, most: int) -> int:
    """Print what differs, and return the number of values that do."""
    one, two = (json.loads(path.read_text(encoding="utf-8")) for path in (first, second))
    for name in sorted(one.keys() ^ two.keys()):
        print(f"section {name} is in one file only")
    equal = different = 0
    for name in (name for name in one if name in two):
        left, right = dict(leaves(one[name])), dict(leaves(two[name]))
        same = {where for where in left if where in right and repr(left[where]) == repr(right[where])}
        other = [where for where in dict.fromkeys([*left, *right]) if where not in same]
        for where in other[: max(0, most - different)]:
            print(f"{name} > {where}\n    {left.get(where, 'not there')!r}\n    {right.get(where, 'not there')!r}")
        print(f"{name}: {len(same)} values are equal, {len(other)} differ")
        equal, different = equal + len(same), different + len(other)
    print(f"in all: {equal} values are equal, {different} differ")
    return different


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("record", "compare"))
    parser.add_argument("files", type=Path, nargs="+", help="the file to write, or the two to compare")
    parser.add_argument("--only", default=",".join(SECTIONS), help=f"sections: {', '.join(SECTIONS)}")
    parser.add_argument("--most", type=int, default=200, help="print so many differences")
    given = parser.parse_args()
    if len(given.files) != (1 if given.what == "record" else 2):
        parser.error("record takes one file, compare two")
    if given.what == "compare":
        return 1 if compare(*given.files, given.most) else 0
    names = [name.strip() for name in given.only.split(",")]
    if unknown := [name for name in names if name not in SECTIONS]:
        parser.error(f"there is no section {unknown[0]}; there are {', '.join(SECTIONS)}")
    record(given.files[0], names)
    return 0


if __name__ == "__main__":
    os.environ.update(ENVIRONMENT)
    sys.exit(main())
