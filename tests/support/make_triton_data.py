"""Make ``tests/data/triton`` anew: in ``tests``, ``python -m support.make_triton_data [NAME ...]``.

Run it with each version of Triton in turn: a run adds the TTIR of its version, and the interpreters of all versions
must see the same loads, stores and products.
"""

import gzip
import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from .triton_case import Array, Case, divisibility, type_of

DATA = Path(__file__).parents[1] / "data" / "triton"
VERSION = version("triton")
ORDER = ("format", "name", "kernel", "grid", "warps", "stages", "arguments", "constexprs", "arrays", "truth", "ttir")


def described(case: Case) -> dict[str, Any]:
    """Return what a launch was given."""
    arguments = []
    for name, value in case.arguments.items():
        argument: dict[str, Any] = {"name": name, "type": type_of(value)}
        if not isinstance(value, Array):
            argument["value"] = value
        if divisibility(value):
            argument["divisibility"] = divisibility(value)
        arguments.append(argument)
    arrays = {}
    for name, array in case.arrays.items():
        arrays[name] = {"type": array.type, "size": array.size}
        if array.values:
            arrays[name]["values"] = array.values
        if array.points_to:
            arrays[name]["points_to"] = array.points_to
    return {
        "format": 1,
        "name": case.name,
        "kernel": case.kernel.__name__,
        "grid": [*case.grid, 1, 1][:3],
        "warps": case.warps,
        "stages": case.stages,
        "arguments": arguments,
        "constexprs": dict(case.constexprs),
        "arrays": arrays,
    }


def seen(part: str, names: list[str]) -> dict[str, Any]:
    """Return a part of the cases' data from a process of its own: one can either compile or interpret."""
    environment = os.environ | {"TRITON_INTERPRET": "1" if part == "truth" else "0"}
    command = [sys.executable, "-m", "support.make_triton_data", f"--{part}", *names]
    answer = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(answer.stdout))


def answer(part: str, names: list[str]) -> dict[str, Any]:
    """Return a part of the cases' data."""
    from oracles.triton_interpreter import truth

    from .triton_kernels import CASES
    from .triton_ttir import ttir

    if part == "operations":
        return operations()
    cases = [CASES[name] for name in names or CASES]
    if part == "truth":
        return {case.name: described(case) | {"truth": truth(case)} for case in cases}
    return {case.name: {str(number): ttir(case, number) for number in case.capabilities} for case in cases}


def operations() -> dict[str, Any]:
    """Return the TTIR of kernels that are compiled only, by name and compute capability."""
    from .triton_operations import SNIPPETS
    from .triton_ttir import compiled, source

    return {
        name: {
            str(number): compiled(source(known.kernel, known.signature, known.constexprs), number, **known.options)
            for number in known.capabilities
        }
        for name, known in SNIPPETS.items()
        if VERSION in known.versions
    }


def packed(name: str, data: dict[str, Any]) -> None:
    """Write a file, the same for the same data."""
    text = json.dumps(data, separators=(",", ":"))
    (DATA / f"{name}.json.gz").write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def unpacked(name: str) -> dict[str, Any] | None:
    """Return what a file holds, if there is one."""
    path = DATA / f"{name}.json.gz"
    return dict(json.loads(gzip.decompress(path.read_bytes()))) if path.exists() else None


def write_operations(texts: dict[str, dict[str, str]]) -> None:
    """Write the TTIR of kernels that are compiled only beside that of other versions."""
    before = (unpacked("more_operations") or {"ttir": {}})["ttir"]
    ttir = {}
    for name in sorted(before.keys() | texts.keys()):
        versions = {version: text for version, text in before.get(name, {}).items() if version != VERSION}
        if name in texts:
            versions[VERSION] = texts[name]
        ttir[name] = dict(sorted(versions.items()))
    packed("more_operations", {"format": 1, "ttir": ttir})


def write(name: str, data: dict[str, Any], texts: dict[str, str]) -> None:
    """Write a launch's file, with the TTIR of other versions if it is there already."""
    data = json.loads(json.dumps(data))
    before = unpacked(name) or {"ttir": {}}
    versions = {version: text for version, text in before.pop("ttir").items() if version != VERSION}
    if versions and before != data:
        message = f"{name}: {', '.join(versions)} and {VERSION} differ; remove the file and make it anew"
        raise ValueError(message)
    versions[VERSION] = texts
    data["ttir"] = dict(sorted(versions.items()))
    packed(name, {key: data[key] for key in ORDER})


def main(arguments: list[str]) -> None:
    """Answer as a child, or make the files."""
    parts = [argument.removeprefix("--") for argument in arguments if argument.startswith("--")]
    names = [argument for argument in arguments if not argument.startswith("--")]
    if parts:
        json.dump(answer(parts[0], names), sys.stdout)
        return
    truths, texts = seen("truth", names), seen("ttir", names)
    DATA.mkdir(parents=True, exist_ok=True)
    for name, data in truths.items():
        write(name, data, texts[name])
    if not names:
        write_operations(seen("operations", []))


if __name__ == "__main__":
    main(sys.argv[1:])
