"""Descriptions and counts from the store are what would be counted, and only for what they were counted for."""

import copy
import os
import pickle
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import loopy as lp
import numpy as np
import pytest

import perflex.isl
from perflex import using_store
from perflex.features import annotate, count_features, extract_scop, scop_to_yaml
from perflex.features import kept as kept_module
from perflex.features.from_loopy import extract as _loopy_extract
from perflex.features.kept import counting_version, kernel_key
from perflex.features.scop.text import scop_from_text, scop_to_text
from perflex.store.store import Store
from sample_kernels import make, matmul, pointwise
from uipick import ALL_GENERATORS


class CountedAgainError(Exception):
    """Something was extracted or counted that should have been remembered."""


def _again(*_, **__):
    raise CountedAgainError


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store.sqlite"


def fresh(kernel):
    """An equal kernel that this process has not seen, as another process would make it."""
    return pickle.loads(pickle.dumps(kernel))


def everything(kernel, sizes):
    scop = extract_scop(kernel)
    return [count_features(scop), count_features(scop, sizes), count_features(scop, sizes, sub_group_size=1)]


@pytest.mark.slow
# One in five has each kind of statement, guard and loop that the catalog has.
@pytest.mark.parametrize("generator", ALL_GENERATORS[::5], ids=lambda generator: generator.name)
def test_remembered_is_counted(generator, path, monkeypatch):
    measurement = generator.generate(next(a for a in generator.combinations({}) if generator.violated(a) is None))
    kernel, sizes = measurement.kernel, dict(measurement.sizes)
    with using_store("off"):
        counted = everything(fresh(kernel), sizes)
    with using_store(path):
        assert everything(fresh(kernel), sizes) == counted
    monkeypatch.setattr(_loopy_extract, "_extracted", _again)
    monkeypatch.setattr("perflex.features.polynomials.quasipolynomial.card", _again)
    with using_store(Store(path)):
        assert everything(fresh(kernel), sizes) == counted
    with using_store("off"), pytest.raises(CountedAgainError):
        extract_scop(fresh(kernel))


def test_a_scop_from_its_text_is_equal():
    for kernel in (matmul(prefetch=True), pointwise("x[i // 2] + y[i % 4]")):
        scop = extract_scop(kernel)
        again = scop_from_text(scop_to_text(scop))
        assert again == scop
        assert hash(again) == hash(scop)
        assert scop_to_yaml(again) == scop_to_yaml(scop)
        assert pickle.loads(pickle.dumps(scop)) == scop
        assert copy.deepcopy(again) == scop
        assert repr(again) == repr(scop)


def extracted(kernel, path, monkeypatch):
    """Whether a kernel is extracted anew."""
    with monkeypatch.context() as patched, using_store(Store(path)):
        patched.setattr(_loopy_extract, "_extracted", _again)
        try:
            extract_scop(fresh(kernel))
        except CountedAgainError:
            return True
    return False


def test_what_a_kernel_is_counted_by_is_part_of_its_key(path):
    kernel = pointwise("x[i] + y[y[i]]", {"x": np.float32, "y": np.int32})

    def touched(stand_in):
        scop = extract_scop(annotate(kernel.copy(), accesses={"y[y[i]]": stand_in}))
        return next(e.value for e in count_features(scop, {"n": 64}) if e.identifier == "f_mem_footprint_array:y")

    for _ in range(2):  # counted, then from the store
        with using_store(path):
            assert [touched("i"), touched("2*i")] == [64, 96]


def test_types_of_numbers_are_part_of_the_key():
    from pymbolic import var

    keys = set()
    for number in (2, 2.0, np.float32(2), np.float64(2), np.int64(2)):
        unit = pointwise("x[i]")
        entry = unit.default_entrypoint
        changed = [insn.copy(expression=insn.expression * number) for insn in entry.instructions]
        keys.add(kernel_key(unit.with_kernel(entry.copy(instructions=changed)), ""))
    assert len(keys) == 5
    assert var("x") * 2 == var("x") * np.float32(2)  # to pymbolic they are equal


def test_another_version_counts_anew(path, monkeypatch):
    kernel = pointwise("x[i] + y[i]")
    with using_store(path):
        count_features(extract_scop(fresh(kernel)))
    assert not extracted(kernel, path, monkeypatch)
    monkeypatch.setattr(kept_module, "counting_version", lambda: "another")
    assert extracted(kernel, path, monkeypatch)
    with using_store(Store(path)):
        assert kept_module.kept_counts(extract_scop(kernel)) == {}


def test_the_version_follows_the_sources(tmp_path, monkeypatch):
    own = counting_version.__wrapped__()
    features, ground = tmp_path / "features", tmp_path / "isl.py"
    shutil.copytree(Path(kept_module.__file__).parent, features, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(perflex.isl.__file__, ground)
    monkeypatch.setattr(kept_module, "__file__", str(features / "kept.py"))
    monkeypatch.setattr(perflex.isl, "__file__", str(ground))
    assert counting_version.__wrapped__() == own
    seen = [own]
    for source in (features / "report.py", features / "counting" / "counts.py", features / "gpu" / "waves.py", ground):
        source.write_text(source.read_text() + "\n")
        seen.append(counting_version.__wrapped__())
    # Two files of one name change places.
    one, two = features / "gpu" / "__init__.py", features / "cpu" / "__init__.py"
    texts = one.read_text(), two.read_text()
    two.write_text(texts[0])
    one.write_text(texts[1])
    seen.append(counting_version.__wrapped__())
    assert len(set(seen)) == len(seen) == 6


def test_old_versions_are_forgotten(path, monkeypatch):
    kernel = pointwise("x[i] + y[i]")
    for number in range(12):
        monkeypatch.setattr(kept_module, "counting_version", lambda number=number: f"version {number}")
        with using_store(Store(path)):
            count_features(extract_scop(fresh(kernel)), {"n": 64})
    connection = sqlite3.connect(path)
    kept = [(f"version {number}",) for number in range(4, 12)]
    for table in ("versions", "kernels", "counts"):
        found = set(connection.execute(f"SELECT version FROM {table}"))  # noqa: S608
        assert sorted(found) == sorted(kept)
    assert connection.execute("SELECT count(*) FROM scops").fetchall() == [(1,)]
    connection.close()


CHANGES = {
    "name": lambda: make("{[i]: 0<=i<n}", "out[i] = x[i] + 1", {"x": np.float32}, name="other"),
    "type": lambda: make("{[i]: 0<=i<n}", "out[i] = x[i] + 1", {"x": np.float64}),
    "number": lambda: make("{[i]: 0<=i<n}", "out[i] = x[i] + 2", {"x": np.float32}),
    "kind of number": lambda: make("{[i]: 0<=i<n}", "out[i] = x[i] + 1.0", {"x": np.float32}),
    "operation": lambda: make("{[i]: 0<=i<n}", "out[i] = x[i] * 1", {"x": np.float32}),
    "domain": lambda: make("{[i]: 0<=i<=n}", "out[i] = x[i] + 1", {"x": np.float32}),
    "tag": lambda: make("{[i]: 0<=i<n}", "out[i] = x$a[i] + 1", {"x": np.float32}),
    "assumption": lambda: lp.assume(base(), "n mod 4 = 0"),
    "axis": lambda: lp.tag_inames(base(), "i:g.0"),
    "layout": lambda: lp.tag_array_axes(base(), "x", "stride:2"),
    "target": lambda: base().copy(target=lp.OpenCLTarget()),
}


def base():
    return make("{[i]: 0<=i<n}", "out[i] = x[i] + 1", {"x": np.float32})


def test_everything_changes_the_key():
    assert kernel_key(base()) == kernel_key(base()) == kernel_key(fresh(base()))
    keys = {kernel_key(make_changed()) for make_changed in CHANGES.values()}
    assert len(keys | {kernel_key(base())}) == len(CHANGES) + 1
    assert kernel_key(base(), "options") != kernel_key(base())


KEYS = """
from perflex.features.kept import kernel_key
from uipick import ALL_GENERATORS
for generator in ALL_GENERATORS:
    arguments = next(a for a in generator.combinations({}) if generator.violated(a) is None)
    print(generator.name, kernel_key(generator.generate(arguments).kernel))
"""


@pytest.mark.slow
def test_keys_are_the_same_in_every_process():
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", KEYS], env={**os.environ, "PYTHONHASHSEED": seed}, stdout=subprocess.PIPE
        )
        for seed in ("1", "2", "3")
    ]
    printed = [run.communicate(timeout=120)[0] for run in runs]
    assert printed[0].count(b"\n") == len(ALL_GENERATORS)
    assert printed[0] == printed[1] == printed[2]


def test_a_kernel_without_a_key_is_counted(path):
    table = lp.TemporaryVariable(
        "table", initializer=np.arange(8.0), shape=(8,), read_only=True, address_space=lp.AddressSpace.GLOBAL
    )
    kernel = lp.make_kernel(
        "{[i]: 0<=i<8}", "out[i] = table[i]*2", [table, "..."], target=lp.PyOpenCLTarget(), lang_version=(2018, 2)
    )
    with pytest.raises(TypeError):
        kernel_key(kernel)
    with using_store(path):
        assert count_features(extract_scop(kernel))
