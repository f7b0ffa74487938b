"""Who reads each kind of input in the library, and what is done with what was read."""

from __future__ import annotations

import gzip
import math
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
    """One kind of input.

    Attributes
    ----------
    name
        What it is.
    share
        How many of the cases are of this kind, in proportion to the others.
    make
        Returns a mutated input, which is written to a file where it is bytes.
    use
        Reads it, and does with it what users do.
    """

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
    from perflex.features.cpu.estimate import estimate_ecm
    from perflex.features.gpu.estimate import estimate_volumes
    from perflex.machines.lookup import load_machine

    read = load_machine(str(_file(content, "m.yaml")))
    if read.kind == "gpu":
        finite(*estimate_volumes(scop(), scop().checked({"n": 64}), read).features().values())
    else:
        finite(*(level.bytes for level in estimate_ecm(_jacobi(), {"M": 40, "N": 60}, read).levels))


@lru_cache(maxsize=1)
def _jacobi() -> Any:
    from perflex.features import scop_from_yaml

    return scop_from_yaml(inputs.scops()[2])


def _use_model(content: bytes) -> None:
    from perflex.models import load_model
    from perflex.models.kernel_sets import measurement_kernels

    read = load_model(_file(content, "model.yaml"))
    read.model()
    measurement_kernels(read, 3.0)


def _use_description(content: bytes) -> None:
    from perflex import load_described_space, load_description

    read = load_description(_file(content, "d.yaml"))
    text, form = inputs.caches()[0]
    _use_space(load_described_space(_file(text.encode(), f"cache.{form}"), read))


def _use_space(space: Any) -> None:
    from perflex import HybridPredictor, prune

    finite(*space.times)
    whole = space.complete()
    pruned = prune(whole, predictor=HybridPredictor(whole, 0, learned=False))
    finite(*pruned.predicted)


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


def _use_table(content: bytes) -> None:
    from perflex.analysis.volumes.compare import compare_rows, comparison_table, read_rows

    rows = read_rows(_file(content, "t.csv"))
    comparison_table([compare_rows(rows, read_rows(_file(inputs.tables()[0].encode(), "r.csv")), ["x", "y"], "dram")])


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
    Kind("table", 4, partial(document, inputs.tables, "csv"), _use_table),
    Kind("times", 6, _make_times, _use_times),
    Kind("model string", 5, partial(_words, _EXPRESSIONS), _use_expression),
    Kind("feature", 4, partial(_words, _FEATURES), _use_feature),
    Kind("formula", 4, partial(_words, (*_FORMULAS, *_CONSTRAINTS)), _use_formula),
    Kind("sizes", 2, lambda random: {"n": mutated_value(64, random)}, _use_sizes),
)
