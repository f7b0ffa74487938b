"""The library's deterministic results in a file, to compare two versions of the code with each other.

    python tests/bench/reference_results.py record before.json
    python tests/bench/reference_results.py record after.json --only fit,counts
    python tests/bench/reference_results.py compare before.json after.json

``record`` calls public names and the command line only, so that it runs unchanged where modules were moved or renamed:

* fit: the shipped calibrations, fitted again to their tables, to the last digit; their predictions and diagnoses; the
  shipped models and machines;
* counts: everything counted in four variants of each generator of the catalog, at two sizes;
* volumes: data volumes, residency and instructions on three GPUs; caches and ECM models on three CPUs;
* search: a small space ranked, pruned and tuned, on a device with a known law;
* commands: what the commands print that time nothing, their exit codes and the tables they write.

Nothing is timed and nothing is kept (PERFLEX_STORE is off). A result that fails is recorded as its error. ``compare``
prints each value that differs and ends with 1 if there is one; sections that only one file has are named, not compared.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import itertools
import json
import math
import os
import re
import sys
import tempfile
import time
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
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
    "COLUMNS": "150", "MPLBACKEND": "Agg", "NO_COLOR": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
    "PERFLEX_STORE": "off", "TERM": "dumb",
}  # fmt: skip
GPU_FEATURES = (
    "f_waves", "f_wave_quantisation", "f_occupancy", "f_l1_wavefronts", "f_lmem_wavefronts", "f_lmem_wavefronts_load",
    "f_lmem_wavefronts_store", "f_vol_l1_load", "f_vol_l2_l1_load", "f_vol_l2_l1_store", "f_vol_dram_load",
    "f_vol_dram_store", "f_oversub_l1", "f_oversub_l2", "f_su_v_smx", "f_su_v_l2", "f_su_v_gm", "f_su_imbalance",
    "f_txn_global", "f_txn_local", "f_txn_l1", "f_txn_l2", "f_txn_dram",
)  # fmt: skip
CPU_FEATURES = tuple(f"f_ecm_{what}_{level}" for what in ("vol", "cycles") for level in ("l1", "l2", "l3", "mem"))
# Kernels that volumes are computed of: generator, the first tags of its variant, sizes.
CATALOG = (
    ("axpy", {"n": 1048576}), ("conv2d", {"nx": 1024, "ny": 512}), ("fdiff", {"n": 1008}),
    ("gemv", {"n": 1024, "m": 512}), ("gsrb", {"nx": 64, "ny": 64, "nz": 32}), ("matmul_rb", {"n": 256}),
    ("nbody", {"n": 2048}), ("stencil2d", {"nx": 1024, "ny": 512}), ("stencil3d", {"nx": 128, "ny": 64, "nz": 32}),
    ("wave3d", {"nx": 64, "ny": 64, "nz": 32}),
)  # fmt: skip

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
    folder = Path(str(files("perflex.calib_data")))
    return {path.stem: path for path in sorted((folder / "calibrations").glob("*.yaml"))}


@cache
def example(name: str) -> Any:
    module, _, function = name.partition(":")
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


@cache
def volume_kernels() -> dict[str, tuple[Any, dict[str, int]]]:
    found = {f"matmul {name}": (example(f"matmul:{name}"), {"n": 512}) for name in ("naive", "prefetching")}
    found |= {f"transpose {n}": (example(f"transposes:{n}"), {"n": 1024}) for n in ("naive", "tiled", "padded")}
    found["star25"] = (example("stencil:star25"), {"nx": 640, "ny": 512, "nz": 512})
    for name, sizes in CATALOG:
        generator = generator_named(name)
        for variant in chosen_variants(generator)[:2]:
            made = generator.generate(variant[0])
            words = ", ".join(f"{key}={value}" for key, value in made.arguments.items() if key not in sizes)
            found[f"{name}({words})"] = (made.kernel, {**made.sizes, **sizes})
    return found


def record_fit() -> Results:
    from perflex import Calibration, FitOptions, diagnose, fit_model, load_machine
    from perflex.models import load_model, model_names

    kernels = {name: volume_kernels()[name] for name in ("matmul naive", "matmul prefetching", "transpose tiled")}
    matmul = generator_named("matmul_sq")
    for made in (matmul.generate(variant[-1]) for variant in chosen_variants(matmul)):
        kernels[made.name] = (made.kernel, dict(made.sizes))
    for name, path in shipped_calibrations().items():
        calibration = Calibration.load(path)
        model, table = calibration.model, calibration.table
        yield f"{name}/loaded", outcome(lambda c=calibration: {"text": repr(c), "fit": facts(c.fit), "table": c.table})
        yield f"{name}/saved", outcome(lambda c=calibration: saved_text(c))
        ways: dict[str, tuple[Any, dict[str, Any]]] = {
            "as it is": (table, {}),
            "any sign": (table, {"nonnegative": False}),
            "absolute errors": (table, {"residual": "absolute"}),
            "logarithms": (table, {"residual": "logarithmic"}),
            "every second row": (table.take(range(0, len(table), 2)), {"on_undetermined": "warn"}),
        }
        for way, (rows, options) in ways.items():
            again = outcome(lambda m=model, r=rows, o=options: facts(fit_model(m, r, FitOptions(**o), max_starts=4)))
            yield f"{name}/fitted again, {way}", again
        yield f"{name}/diagnosis", outcome(lambda c=calibration: {"text": repr(diagnose(c)), **diagnose(c).as_dict()})
        for label, (kernel, sizes) in kernels.items():
            yield f"{name}/predicted/{label}", outcome(lambda c=calibration, k=kernel, s=sizes: predictions(c, k, s))
    for name in model_names():
        yield f"model {name}", outcome(lambda n=name: model_facts(load_model(n)))
    for name in (*GPU_MACHINES, *CPU_MACHINES):
        yield f"machine {name}", outcome(lambda n=name: load_machine(n))


def model_facts(file: Any) -> dict[str, Any]:
    made = file.model()
    return {"file": file, "model": repr(made), "features": made.all_features(), "params": made.params()}


def saved_text(calibration: Any) -> str:
    with tempfile.TemporaryDirectory(prefix="reference_") as folder:
        calibration.save(Path(folder) / "saved.yaml")
        return (Path(folder) / "saved.yaml").read_text(encoding="utf-8")


def facts(fit: Any) -> dict[str, Any]:
    """Return what a fit found, not the problem that it solved."""
    names = [field.name for field in fields(fit) if field.name not in {"problem", "model", "table"}]
    values = {name: getattr(fit, name) for name in names if not name.startswith("_")}
    return {**values, "correlation": fit.correlation, "error": fit.geometric_mean_error}


def predictions(calibration: Any, kernel: Any, sizes: dict[str, int]) -> dict[str, Any]:
    import numpy as np

    arrays = {name: np.array([value, 2 * value, 4 * value]) for name, value in sizes.items()}
    return {
        "one": calibration.predict(kernel, sizes),
        "several": calibration.predict(kernel, arrays),
        "interval": calibration.predict_interval(kernel, sizes, 0.9),
    }


def record_counts() -> Results:
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
    executed = count_features(scop, made.sizes, sub_group_size=1)
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
    from perflex import ecm_model, in_core_cycles, using_machine

    for machine, (label, (kernel, sizes)) in itertools.product(GPU_MACHINES, volume_kernels().items()):
        yield f"{machine}/{label}", feature_values(machine, GPU_FEATURES, kernel, sizes)
    small = {"jacobi": (example("jacobi:seven_point"), {"M": 1000, "N": 200})}
    for machine, (label, (kernel, sizes)) in itertools.product(CPU_MACHINES, {**small, **volume_kernels()}.items()):
        yield f"{machine}/{label}", feature_values(machine, CPU_FEATURES, kernel, sizes)
        for cores in (1, 4):

            def composed(m: str = machine, k: Any = kernel, s: Any = sizes, c: int = cores) -> dict[str, Any]:
                model = ecm_model(m, cores=c, in_core=in_core_cycles(m, k))
                with using_machine(m):
                    return {"model": repr(model), "seconds": model.eval_with_kernel({}, k, s)}

            yield f"{machine}/{label}/{cores} cores", outcome(composed)


def feature_values(machine: str, names: Any, kernel: Any, sizes: dict[str, int]) -> dict[str, Any]:
    from perflex import using_machine
    from perflex.features import extract_scop, kernel_feature_values

    scop = extract_scop(kernel)

    def value(name: str) -> Any:
        with using_machine(machine):
            return float(kernel_feature_values([name], scop, sizes)[name])

    return {name: outcome(lambda n=name: value(n)) for name in names}


COMMANDS = (
    "", "block", "calibrate", "demo", "devices", "diagnose", "doctor", "evaluate", "features", "layers", "list",
    "list calibrations", "list generators", "list machines", "list models", "machine", "machine detect", "machine show",
    "predict", "prune", "rank", "roofline", "store", "store export", "store list", "store prune", "store verify",
    "transfer", "tune", "volumes",
)  # fmt: skip
# Options of commands that time nothing; FOLDER is empty at first. Each line is a command, its kernel and the rest.
LINES = """
--version
list generators --json
list generators matmul_sq
features NAIVE n=1056 -f f_op_float32_madd -f f_mem_access_tag:aLD -f f_chain_float32_madd_after:48
features STAR GRID --machine V100 --registers 64
features NAIVE n=1056 -f f_ops_float32_madd
features NAIVE n=1000
features NAIVE m=16 n=32
features examples/matmul.py:nothing n=16
predict CALIBRATION NAIVE n=512,1024 --confidence 0.95
predict CALIBRATION NAIVE n=512,1024 --json --confidence 0.9
predict CALIBRATION NAIVE
diagnose CALIBRATION --out FOLDER
diagnose CALIBRATION --json
rank CALIBRATION PREFETCHING NAIVE n=1056
rank CALIBRATION PREFETCHING NAIVE n=1056 --json
prune CALIBRATION examples/matmul_space.py:space n=512 --keep 5% --out FOLDER
prune CALIBRATION NAIVE n=512
list machines --json
machine show nowhere
volumes NAIVE --machine V100 n=512 --registers 128
volumes NAIVE --machine Gold-6248 n=512
roofline NAIVE PREFETCHING n=1024 --machine v100 --time predicted --calibration CALIBRATION --out FOLDER
layers JACOBI --machine Gold-6248 M=1000 N=600 --block j=100 --block i=300
layers JACOBI --machine Gold-6248 M=1000 N=100:700:100
block JACOBI --machine Gold-6248 M=512 N=512 --cores 4 --lanes 8 --json
block JACOBI --machine Gold-6248 M=512 N=512 --criterion L2=plane
"""
WORDS = {
    "NAIVE": "examples/matmul.py:naive",
    "PREFETCHING": "examples/matmul.py:prefetching",
    "STAR": "examples/stencil.py:star25",
    "JACOBI": "examples/jacobi.py:seven_point",
    "TRANSPOSES": "examples/transposes.py:naive examples/transposes.py:tiled examples/transposes.py:padded",
    "GRID": "nx=640 ny=512 nz=512",
}


def command_lines() -> list[str]:
    lines = [f"{command} --help" for command in COMMANDS] + LINES.strip().splitlines()
    for kernel in ("NAIVE n=1056", "PREFETCHING n=1056", "STAR GRID", "JACOBI M=100 N=60"):
        lines += [f"features {kernel}", f"features {kernel} --json", f"features {kernel.partition(' ')[0]}"]
        lines += [f"features {kernel} --sub-group-size 16"]
    for machine in (*GPU_MACHINES, *CPU_MACHINES, "K20", "W7800"):
        lines += [f"machine show {machine}", f"machine show {machine} --json"]
    for machine in GPU_MACHINES:
        lines += [f"volumes STAR --machine {machine} GRID", f"volumes STAR --machine {machine} GRID --json"]
        lines += [f"roofline TRANSPOSES n=1024 --machine {machine} {more}" for more in ("--time bound", "--json")]
    for machine in CPU_MACHINES:
        lines += [f"layers JACOBI --machine {machine} M=10000 N=600", f"block JACOBI --machine {machine} M=512 N=512"]
        lines += [f"layers JACOBI --machine {machine} M=1000 N=600 --cores 4 --json"]
    return lines


def record_commands() -> Results:
    """Run commands: exit code, what they print, the tables they write and the names of pictures."""
    calibration = shipped_calibrations()["matmul_sq_amd_epyc_4cores_intel_opencl"]
    for line in command_lines():
        with tempfile.TemporaryDirectory(prefix="reference_") as folder, contextlib.chdir(TOP):
            places = WORDS | {"FOLDER": folder, "CALIBRATION": str(calibration)}
            words = re.sub("|".join(places), lambda found, p=places: p[found.group()], line).split()
            yield line, outcome(lambda w=words, p=Path(folder): command_result(w, p))


def command_result(words: list[str], folder: Path) -> dict[str, Any]:
    from perflex.__main__ import main

    output, remarks = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(remarks):
        code = main(words)
    written = {
        path.name: path.read_text(encoding="utf-8") if path.suffix in {".csv", ".md", ".json", ".yaml"} else "a file"
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    return {"code": code, "output": output.getvalue(), "remarks": remarks.getvalue(), "written": written}


def law(label: str, sizes: Mapping[str, int]) -> float:
    """Return seconds that depend on a variant's name alone."""
    del sizes
    return 1e-3 + 1e-6 * (zlib.crc32(label.encode()) % 1000)


def record_search() -> Results:
    """Rank, prune and tune a small space in OpenCL C, on a device with a known law where something is timed."""
    from perflex import Calibration, Promise, SearchOptions, load_space, prune, rank, tune
    from perflex.testing import FakeDevice

    space, gpu = load_space(EXAMPLES / "heat_space.yaml"), Calibration.load("general_gpu")
    known = {"calibration": gpu, "machine": "A100-40GB"}
    # All but the two slowest predicted: of these the promise has times.
    measured = {row.name: law(row.name, {}) for row in rank(space, **known)[:6]}
    for label, more in (
        ("a quarter", {"keep": 0.25}),
        ("a promise", {"keep": Promise(confidence=0.8), "measured": measured}),
    ):
        yield f"prune/{label}", outcome(lambda m=more: rows_of(prune(space, **known, **m)))
    yield "rank", outcome(lambda: rows_of(rank(space, **known)))
    for label, given in (("from counts", {}), ("from a calibration", known)):
        options = SearchOptions(measurements=6, promise=False)
        found = outcome(lambda g=given, o=options: rows_of(tune(space, device=FakeDevice(law), options=o, **g).history))
        yield f"tune/{label}", found


def rows_of(found: Any) -> list[dict[str, Any]]:
    """Return what rows of a ranking, a pruning or a search have in common under any of their names."""
    wanted = ("name", "kept", "predicted", "low", "high", "measured", "seconds", "best", "doubts", "knowledge")
    return [{name: getattr(row, name) for name in wanted if hasattr(row, name)} for row in found]


SECTIONS = {
    "fit": record_fit, "counts": record_counts, "volumes": record_volumes, "search": record_search,
    "commands": record_commands,
}  # fmt: skip


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
    found: dict[str, dict[str, Any]] = {}
    for name in names:
        begun = time.perf_counter()
        found[name] = dict(SECTIONS[name]())
        values = list(leaves(found[name]))
        failed = sum(where.endswith(" > failed") for where, _ in values)
        seconds = time.perf_counter() - begun
        print(f"{name}: {len(values)} values, {failed} errors among them, {seconds:.0f} s", flush=True)
    path.write_text(json.dumps(found, indent=1), encoding="utf-8")


def alike(left: Any, right: Any, within: float) -> bool:
    """Whether two values are equal, or numbers that differ by no more than a share."""
    both = isinstance(left, float) and isinstance(right, float)
    return repr(left) == repr(right) or (both and math.isclose(left, right, rel_tol=within))


def compare(first: Path, second: Path, most: int, within: float) -> int:
    """Print what differs, and return the number of values that do."""
    one, two = (json.loads(path.read_text(encoding="utf-8")) for path in (first, second))
    for name in sorted(one.keys() ^ two.keys()):
        print(f"section {name} is in one file only")
    equal = different = 0
    for name in (name for name in one if name in two):
        left, right = dict(leaves(one[name])), dict(leaves(two[name]))
        same = {where for where in left if where in right and alike(left[where], right[where], within)}
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
    parser.add_argument("--within", type=float, default=0.0, help="numbers may differ by this share, e.g. 1e-9")
    given = parser.parse_args()
    if len(given.files) != (1 if given.what == "record" else 2):
        parser.error("record takes one file, compare two")
    if given.what == "compare":
        return 1 if compare(*given.files, given.most, given.within) else 0
    names = [name.strip() for name in given.only.split(",")]
    if unknown := [name for name in names if name not in SECTIONS]:
        parser.error(f"there is no section {unknown[0]}; there are {', '.join(SECTIONS)}")
    record(given.files[0], names)
    return 0


if __name__ == "__main__":
    os.environ.update(ENVIRONMENT)
    sys.exit(main())
