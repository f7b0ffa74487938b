"""The public names of features, and what importing them costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

import perflex.features
from perflex.features import parse_feature, register_family
from perflex.features.families import registry


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120).stdout


def test_every_name_can_be_imported() -> None:
    assert all(getattr(perflex.features, name) is not None for name in perflex.features.__all__)
    assert set(perflex.features.__all__) <= set(dir(perflex.features))


def test_the_face_loads_only_what_is_asked_for() -> None:
    heavy = "{'numpy', 'islpy', 'loopy', 'sympy'} & set(sys.modules)"
    assert run(f"import sys, perflex.features, perflex.features.sized_kernel; print({heavy})") == "set()\n"


@pytest.mark.parametrize(
    "code",
    [
        "from perflex.features.families.registry import parse_feature as read",
        "from perflex.features.report import parse_feature as read",
        "import perflex.features; read = perflex.features.parse_feature",
    ],
)
def test_families_are_there_whatever_is_imported_first(code: str) -> None:
    assert run(f"{code}; print(read('f_op_float32_add').identifier, read('f_waves').unit)").startswith("f_op_float32")


def test_a_family_of_ones_own_is_asked_last(monkeypatch: pytest.MonkeyPatch) -> None:
    class Family:
        def parse(self, identifier: str) -> object:
            return parse_feature("f_op_float32_add") if identifier in {"f_mine", "f_op_float32_mul"} else None

        def examples(self) -> tuple[str, ...]:
            return ("f_mine",)

    monkeypatch.setattr(registry, "_families", list(registry._families))
    register_family(Family())
    try:
        assert parse_feature("f_mine").identifier == "f_op_float32_add"
        assert parse_feature("f_op_float32_mul").identifier == "f_op_float32_mul"
    finally:
        registry._in_families.cache_clear()


def test_scops_are_pickled_whatever_is_imported_first() -> None:
    code = (
        "import pickle; from perflex.features.scop.scop import Scop; from perflex.isl import isl; "
        "scop = Scop('k', ('n',), isl.Set('[n] -> { : n >= 1 }').params(), (), (), ()); "
        "print(pickle.loads(pickle.dumps(scop)) == scop)"
    )
    assert run(code) == "True\n"
