"""loopy's check for missing barriers: left out where it cannot find any, and only there."""

from __future__ import annotations

import loopy as lp
import numpy as np
import pytest

from perflex.errors import UnsupportedKernelError
from perflex.features import extract_scop
from perflex.features.from_loopy.extract import spare_race_check
from sample_kernels import make


def rows(statements: list[str], arrays: str = "xy") -> lp.TranslationUnit:
    """Statements one after the other, a work-item per i."""
    kernel = make("{[i]: 0<=i<n}", "\n".join(statements), dict.fromkeys(arrays, np.float32), seq_dependencies=True)
    kernel = lp.assume(kernel, "n >= 32 and n % 32 = 0")
    return lp.split_iname(kernel, "i", 32, outer_tag="g.0", inner_tag="l.0")


def is_spared(kernel: lp.TranslationUnit) -> bool:
    prepared = lp.preprocess_program(kernel)
    entry = prepared.default_entrypoint
    return bool(spare_race_check(entry, prepared.callables_table).options.disable_global_barriers)


OWN = [f"y[i] = y[i]*{k}.5f + x[i]" for k in range(6)]


@pytest.mark.parametrize(
    "statements",
    [
        OWN,
        [f"y[{k}, i] = x[i] + {k}" for k in range(6)],
        [f"y[i, {k}] = y[i, {k + 1}] + x[i + {k}]" for k in range(6)],
        [f"y[2*i + 1] = x[i] + {k}" for k in range(6)],
    ],
)
def test_elements_of_ones_own_need_no_check(statements: list[str]) -> None:
    assert is_spared(rows(statements))


@pytest.mark.parametrize(
    "statements",
    [
        [*OWN, "z[i] = y[i + 1]"],
        [*OWN, "y[i // 2] = x[i]"],
        [*OWN, "z[i] = x[i] if y[n - 1 - i] > 0 else 0"],
        [*OWN, "z[i] = x[i] {if=y[0] > 0}"],
        [f"y[i + {k}] = x[i]" for k in range(6)],
        [f"y[0] = x[i] + {k}" for k in range(6)],
    ],
)
def test_elements_of_others_are_checked(statements: list[str]) -> None:
    kernel = rows(statements)
    assert not is_spared(kernel)
    with pytest.raises(UnsupportedKernelError, match="loopy cannot schedule kernel"):
        extract_scop(kernel)


def test_work_items_that_repeat_a_statement_are_checked() -> None:
    kernel = make(
        "{[i,j]: 0<=i<32 and 0<=j<8}",
        "\n".join(["<> t = x[j]", *(f"y[i] = {k} {{id=a{k}}}" for k in range(6)), "z[i, j] = t"]),
        {"x": np.float32},
    )
    assert not is_spared(lp.tag_inames(kernel, "i:l.0, j:g.0"))
