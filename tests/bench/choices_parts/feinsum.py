"""Loopy variants of einsums (feinsum's archive of a TITAN V), built by feinsum's own transforms.

``--feinsum`` is the folder of its sources: feinsum 466ec9a needs Python 3.12, or three edits, and the packages
immutables, bidict, more-itertools, opt_einsum, pytz, tabulate and pybliss.
"""

from __future__ import annotations

import csv
import gzip
import json
import sys
import types
from collections import defaultdict
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .spaces import MeasuredSpace

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# Groups of fewer variants are no spaces to choose from.
_FEWEST = 20
_ELEMENTS, _OF_PRODUCTS = 100_000, 200_000
_PRODUCTS = {"ij_ij_to_ij.py", "ijk_ijk_to_ijk.py"}
# feinsum imports them, and needs nothing of them here.
_UNUSED = ("opentuner", "opentuner.manipulator", "opentuner.search", "opentuner.search.manipulator",
           "opentuner.measurement", "opentuner.resultsdb")  # fmt: skip


@lru_cache(maxsize=1)
def _ready(folder: str) -> None:
    for name in _UNUSED:
        module = sys.modules.setdefault(name, types.ModuleType(name))
        module.MeasurementInterface = module.Parameter = module.manipulator = object  # type: ignore[attr-defined]
    sys.path.insert(0, folder)


@lru_cache(maxsize=64)
def _einsum(matrix: str, subscripts: str, lengths: str, dtypes: str) -> Any:
    from feinsum.sql_utils import _get_batched_einsum_from_sql_row

    names = json.loads(matrix)
    inputs, output = subscripts.split("->")
    # The archive merges operands of equal subscripts.
    each = [one for one, operands in zip(inputs.split(","), names[0], strict=True) for _ in operands]
    arguments = [[name for operands in one for name in operands] for one in names]
    types_of: Any = {name: dtypes for one in arguments for name in one}
    if dtypes.startswith("{"):
        types_of = json.loads(dtypes)
    return _get_batched_einsum_from_sql_row(f"{','.join(each)}->{output}", json.loads(lengths), arguments, types_of)


def variant(folder: str, row: Mapping[str, str], parameters: str) -> Any:
    """Return the kernel of a row with these arguments of its transform."""
    _ready(folder)
    import loopy as lp
    from feinsum.codegen.loopy import generate_loopy
    from feinsum.tuning import _get_impls_path, get_transform_func_from_module_path

    einsum = _einsum(row["use_matrix"], row["subscripts"], row["lengths"], row["dtypes"])
    module = get_transform_func_from_module_path(str(Path(_get_impls_path()) / row["transform"]))
    given = {name: tuple(one) if isinstance(one, list) else one for name, one in json.loads(parameters).items()}
    kernel = module.bind_args(einsum, **given)(generate_loopy(einsum), insn_match=None, kernel_name=None)
    elements = _OF_PRODUCTS if row["transform"] in _PRODUCTS else _ELEMENTS
    return lp.fix_parameters(kernel, **{one.name: elements for one in einsum.all_size_params})


def feinsum_spaces(data: Path, folder: Path) -> Iterator[MeasuredSpace]:
    """Yield the groups of variants of one einsum, one number of outputs and one transform."""
    for path in sorted(data.glob("new_times/feinsum_*/*.csv.gz")):
        with gzip.open(path, "rt", newline="") as stream:
            rows = list(csv.DictReader(stream))
        groups = defaultdict(list)
        for row in rows:
            key = ("transform", "subscripts", "lengths", "outputs", "use_matrix", "dtypes")
            groups[tuple(row[name] for name in key)].append(row)
        for (transform, subscripts, lengths, outputs, *_), group in groups.items():
            times = defaultdict(list)
            for row in group:
                times[row["parameters"],].append(float(row["time_s"]))
            if len(group) >= _FEWEST:
                shown = ",".join(map(str, json.loads(lengths).values()))
                name = f"feinsum {transform.removesuffix('.py')} {subscripts} {shown} {outputs}"
                seconds = {key: sorted(each)[(len(each) - 1) // 2] for key, each in times.items()}
                gpu = path.name.split(".")[0]
                yield MeasuredSpace(name, gpu, ("parameters",), seconds, partial(variant, str(folder), group[0]))
