"""pytest's plug-in: tests of what kernels cost, which time nothing."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from perflex import Calibration, Machine

    Cost = Callable[..., None]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that writes baselines."""
    words = "write what kernels cost to perflex-baseline.yaml beside the tests"
    parser.getgroup("perflex").addoption("--perflex-update", action="store_true", help=words)


@pytest.fixture
def perflex_cost(request: pytest.FixtureRequest) -> Cost:
    """Judge a kernel by conditions, as ``perflex gate`` does: a function of kernel and sizes that fails the test.

    Ratios are to `perflex-baseline.yaml` beside the test's file, which ``--perflex-update`` writes.
    """
    file, identifier, calls = request.path, request.node.nodeid.rpartition("/")[2], [0]

    def judged(
        kernel: Any,
        sizes: Mapping[str, int],
        machine: str | Path | Machine | None = None,
        calibration: str | Path | Calibration = "general_gpu",
        holds: str = "time<=1.03",
    ) -> None:
        from perflex import Calibration, PerflexError
        from perflex.analysis.comparison import Version
        from perflex.analysis.gate import (
            entry_of,
            gate_table,
            judge,
            read_baseline,
            read_conditions,
            recorded,
            write_baseline,
        )
        from perflex.cli.gate import BASELINE
        from perflex.cli.kernel_files import load_kernel

        calls[0] += 1
        name, baseline = identifier if calls[0] == 1 else f"{identifier} ({calls[0]})", file.parent / BASELINE
        try:
            if isinstance(kernel, str):
                kernel = load_kernel(kernel if kernel[:1] == "/" else f"{file.parent}/{kernel}")
            loaded = calibration if isinstance(calibration, Calibration) else Calibration.load(calibration)
            conditions, new = read_conditions(holds), Version(kernel, sizes, loaded, machine)
            old = None
            if any(each.changes for each in conditions):
                if request.config.getoption("--perflex-update"):
                    with _alone(file.parent):
                        write_baseline(baseline, [entry_of(name, new, conditions)])
                old = recorded(read_baseline(baseline), name, new)
            found = [judge(name, each, new, old) for each in conditions]
        except PerflexError as error:
            failed = error.message.replace("--update", f"pytest --perflex-update '{request.node.nodeid}'")
        else:
            failed = "; ".join(f"{one.condition} {one.verdict}" for one in found if one.verdict != "holds")
            failed += f"\n{gate_table(found)}" if failed else ""
        if failed:
            # Not within the block: what pytest shows of errors would stand above.
            pytest.fail(failed, pytrace=False)

    return judged


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Let no other process of the tests be in the block for a folder."""
    import fcntl

    held = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)
