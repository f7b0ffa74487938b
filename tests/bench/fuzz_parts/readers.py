"""Who reads each kind of input in the library, and what is done with what was read."""

from __future__ import annotations

import gzip
import json
import math
import sys
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from perflex.errors import PerflexError

from . import inputs
from .mutations import mutated_document, mutated_text, mutated_value

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class NotFiniteError(Exception):
    """A prediction, an interval or a count that is no finite number was handed out."""


@dataclass(frozen=True)
class Kind:
    """One kind of input, which is made of chances and read as users do; `share` of the cases are of this kind."""

    name: str
    share: int
    make: Callable[[random.Random], Any]
    use: Callable[[Any], None]


def finite(*values: Any) -> None:
    """Stop unless all numbers are finite."""
    for value in values:
        if not math.isfinite(value):
            msg = f"{value} was handed out"
            raise NotFiniteError(msg)


@lru_cache(maxsize=64)
def _tree(text: str) -> Any:
    return yaml.load(text, Loader=_LOADER)  # noqa: S506 - the safe one


def document(texts: Callable[[], tuple[str, ...]], form: str, random: random.Random) -> bytes:
    """Return a mutated one of some documents."""
    text = random.choice(texts())
    return mutated_document(text.encode(), random, partial(_tree, text), form)


def _file(content: bytes, name: str) -> Path:
    path = Path(name)
    path.write_bytes(content)
    return path


@lru_cache(maxsize=1)
def scop() -> Any:
    """Return a kernel that predictions are made for."""
    from perflex.features import scop_from_yaml

    return scop_from_yaml(inputs.TRANSPOSE)


@lru_cache(maxsize=1)
def candidates() -> Any:
    """Return the description of the kernel whose measured configurations are read."""
    from perflex import load_description

    return load_description(_file(inputs.DESCRIPTION.encode(), "described.yaml"))


def _use_calibration(content: bytes) -> None:
    from perflex import Calibration

    read = Calibration.load(_file(content, "c.yaml"))
    repr(read)
    interval = read.predict_interval(scop(), {"n": 64})
    finite(interval.predicted, interval.low, interval.high)
    read.save("again.yaml")
    finite(*Calibration.load("again.yaml").params.values())


def _use_scop(content: bytes) -> None:
    from perflex.cli.arguments import load_kernel
    from perflex.features import count_features, scop_to_yaml

    read = load_kernel(str(_file(content, "k.yaml")))
    scop_to_yaml(read)
    for counted in count_features(read, dict.fromkeys(read.parameters, 64)):
        if counted.value is not None:
            finite(counted.value)


def _use_machine(content: bytes) -> None:
    from perflex.features.cpu.ecm_estimate import estimate_ecm
    from perflex.features.gpu.volume_estimate import estimate_volumes
    from perflex.machines.files import load_machine

    read = load_machine(str(_file(content, "m.yaml")))
    if read.kind == "gpu":
        found = estimate_volumes(scop(), scop().checked({"n": 64}), read).features()
        # Where the machine states no rules of L1, its wavefronts are nan, not known.
        finite(*(value for name, value in found.items() if name != "f_l1_wavefronts" or read.l1_rules is not None))
    else:
        finite(*(level.bytes for level in estimate_ecm(_jacobi(), {"M": 40, "N": 60}, read).levels))


@lru_cache(maxsize=1)
def _jacobi() -> Any:
    from perflex.features import scop_from_yaml

    return scop_from_yaml(inputs.scops()[2])


def _use_model(content: bytes) -> None:
    from perflex.models import load_model, measurement_kernels

    read = load_model(_file(content, "model.yaml"))
    read.model()
    measurement_kernels(read, 3.0)


def _use_description(content: bytes) -> None:
    from perflex import load_described_space, load_description

    read = load_description(_file(content, "d.yaml"))
    text, form = inputs.caches()[0]
    _use_space(load_described_space(_file(text.encode(), f"cache.{form}"), read))


def _use_space(space: Any) -> None:
    from perflex import prune

    finite(*space.times)
    whole = space.complete()
    finite(*prune(whole).predicted)


def _make_cache(random: random.Random) -> tuple[bytes, str]:
    text, form = random.choice(inputs.caches())
    return _maybe_packed(mutated_document(text.encode(), random, partial(_tree, text), form), form, random)


def _make_times(random: random.Random) -> tuple[bytes, str]:
    return _maybe_packed(document(inputs.times, "csv", random), "csv", random)


def _maybe_packed(content: bytes, form: str, random: random.Random) -> tuple[bytes, str]:
    if random.random() < 0.1:
        content, form = gzip.compress(content, 1), f"{form}.gz"
        if random.random() < 0.5:
            at = random.randrange(len(content))
            content = content[:at] + random.randbytes(3) + content[at + random.randrange(9) :]
    return content, form


def _use_cache(made: tuple[bytes, str]) -> None:
    from perflex import load_described_space

    content, form = made
    _use_space(load_described_space(_file(content, f"cache.{form}"), candidates()))


def _made(rows: int, shift: float = 0.0) -> Any:
    if isinstance(rows, int) and rows > 0:
        return scop()
    # A user's function refuses what it cannot make in the project's own way.
    msg = f"no kernel of {rows} rows shifted by {shift}"
    raise PerflexError(msg)


def _use_times(made: tuple[bytes, str]) -> None:
    from perflex import gather_feature_values, load_times

    content, form = made
    read = load_times(_file(content, f"times.{form}"), {"made": _made})
    table = gather_feature_values(["f_cl_wall_time", "f_sync_kernel_launch", "f_thread_groups"], times=read)
    finite(*table.values.flat)


_EXPRESSIONS = (
    "p_a * f_op_float32_madd + p_b * f_mem_access_tag:aLD",
    "smooth_max(p_a * f_op_float32_madd, p_b * f_sync_barrier_local, p_edge) + p_l * f_sync_kernel_launch",
    "overlap(p_a * f_op_float32_madd, p_b * f_mem_access_tag:aLD, p_edge) ** 2 / (1 + exp(-p_c * f_thread_groups))",
)


def _use_expression(text: str) -> None:
    from perflex import Model
    from perflex.features import Target

    model = Model("f_cl_wall_time", text)
    parameters = dict.fromkeys(model.params(), 2.0)
    values = model.feature_values(scop(), {"n": 64}, Target())
    model.evaluate(parameters, values)
    model.terms(parameters, values)
    str(model)


_FEATURES = (
    "f_mem_access_global_float32_load_lstrides:{0:1;1:n}_gstrides:{0:16*n;1:16}_afr:>1", "f_mem_access_tag:aLD",
    "f_op_float32_madd", "f_thread_groups", "f_sync_barrier_local", "f_mem_dram_load_bytes", "f_ecm_vol_l2",
    "f_mem_access_local_float32_load_lstrides:{0:17}",
)  # fmt: skip


def _use_feature(text: str) -> None:
    from perflex.features import Target, parse_feature

    parse_feature(text).value(scop(), {"n": 64}, Target())


_FORMULAS = ("ceil_div(size, items*depth)", "items*depth <= 256 and not items == 32", "1 if a % 4 == 0 else b // 7")
_CONSTRAINTS = ("wide * high <= 256", "8 <= wide and (high, wide) != (1, 2)", "name in ('a', 'b') or wide ** 2 == 4")


def _use_formula(text: str) -> None:
    from perflex import VariantSpace
    from perflex.search.formula import parse_formula

    formula = parse_formula(text)
    formula({name: [1.0, 32.0, 7.0] for name in formula.names})
    VariantSpace(lambda **_: None, {"wide": (1, 2, 4), "high": (1, 2), "name": ("a", "b")}, [text]).enumerated()


def _use_sizes(sizes: dict[str, Any]) -> None:
    from perflex.features import count_features

    for counted in count_features(scop(), sizes):
        finite(counted.value)


@lru_cache(maxsize=1)
def sources() -> tuple[tuple[str, str, tuple[int, ...], tuple[int, ...], dict[str, int]], ...]:
    """Return kernels in OpenCL C: text, name, work-group, grid and sizes."""
    sys.path.append(str(inputs.TOP))
    from tests.support.source_samples import SAMPLES

    own = [(one.source + "\n", "k", one.local, one.groups, dict(one.sizes)) for one in SAMPLES.values()]
    text = (inputs.TOP / "examples" / "matmul.cl").read_text(encoding="utf-8")
    return (*own, *((text, name, (16, 16), (4, 4), {"n": 64}) for name in ("naive", "tiled")))


def _make_source(random: random.Random) -> tuple[Any, ...]:
    text, *rest = random.choice(sources())
    for _ in range(random.choice((1, 1, 2))):
        text = mutated_text(text, random)
    return (text + "\n", *rest)


def _use_source(made: tuple[Any, ...]) -> None:
    from perflex import source_kernel
    from perflex.features import count_features

    text, name, local, groups, sizes = made
    for counted in count_features(source_kernel(text, name, local=local, groups=groups), sizes):
        if counted.value is not None:
            finite(counted.value)


SPACE = """\
schema: perflex-source/1
source: k.cl
kernel: tiled
local: [TILE, TILE]
groups: [n/TILE, n/TILE]
tunables: {TILE: [4, 8, 16], UNROLL: [1, 2]}
constraints: [TILE * UNROLL <= 16]
defines: {FAST: 1}
sizes: {n: 64}
"""


def _make_space(random: random.Random) -> tuple[bytes, str]:
    if random.random() < 0.5:
        return document(lambda: (SPACE,), "yaml", random), "yaml"
    return document(lambda: (json.dumps(T1),), "json", random), "json"


T1 = {
    "General": {"BenchmarkName": "tiled", "OutputFormat": "JSON"},
    "ConfigurationSpace": {
        "TuningParameters": [
            {"Name": "TILE", "Type": "int", "Values": "[4, 8, 16]", "Default": 8},
            {"Name": "UNROLL", "Type": "int", "Values": "[1, 2]", "Default": 1},
        ],
        "Conditions": [{"Expression": "TILE * UNROLL <= 16", "Parameters": ["TILE", "UNROLL"]}],
    },
    "KernelSpecification": {
        "Language": "OpenCL", "KernelName": "tiled", "KernelFile": "k.cl",
        "GlobalSizeType": "OpenCL", "GlobalSize": {"X": "64", "Y": "64"}, "LocalSize": {"X": "TILE", "Y": "TILE"},
        "Arguments": [
            {"Name": "a", "Type": "float", "MemoryType": "Vector", "Size": 4096, "FillType": "Random"},
            {"Name": "n", "Type": "int32", "MemoryType": "Scalar", "FillValue": 64},
        ],
    },
}  # fmt: skip


def _use_space_of_source(made: tuple[bytes, str]) -> None:
    from perflex import load_space

    content, form = made
    _file((inputs.TOP / "examples" / "matmul.cl").read_bytes(), "k.cl")
    space = load_space(_file(content, f"space.{form}"))
    finite(*space.extract(["f_thread_groups"], {"n": 64} if "n" not in space.sizes else None).values.flat)


def _words(texts: tuple[str, ...], random: random.Random) -> str:
    text = random.choice(texts)
    for _ in range(random.choice((1, 1, 2))):
        text = mutated_text(text, random)
    return text


KINDS = (
    Kind("calibration", 16, partial(document, inputs.calibrations, "yaml"), _use_calibration),
    Kind("scop", 22, partial(document, inputs.scops, "yaml"), _use_scop),
    Kind("machine", 8, partial(document, inputs.machines, "yaml"), _use_machine),
    Kind("model", 6, partial(document, lambda: (inputs.MODEL,), "yaml"), _use_model),
    Kind("description", 6, partial(document, lambda: (inputs.DESCRIPTION,), "yaml"), _use_description),
    Kind("tuning cache", 10, _make_cache, _use_cache),
    Kind("times", 6, _make_times, _use_times),
    Kind("model string", 5, partial(_words, _EXPRESSIONS), _use_expression),
    Kind("feature", 4, partial(_words, _FEATURES), _use_feature),
    Kind("formula", 4, partial(_words, (*_FORMULAS, *_CONSTRAINTS)), _use_formula),
    Kind("source", 10, _make_source, _use_source),
    Kind("source space", 4, _make_space, _use_space_of_source),
    Kind("sizes", 2, lambda random: {"n": mutated_value(64, random)}, _use_sizes),
)
