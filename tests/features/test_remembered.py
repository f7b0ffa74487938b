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
from perflex.features import annotate, count_features, count_store, extract_scop, scop_to_yaml
from perflex.features.count_store import counting_version, kernel_key
from perflex.features.scop.scop_file import scop_from_text, scop_to_text
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
    scop = extract_scop(fresh(kernel))
    return [count_features(scop), count_features(scop, sizes), count_features(scop, sizes, sub_group_size=1)]


# One in five has each kind of statement, guard and loop that the catalog has.
@pytest.mark.slow
@pytest.mark.parametrize("generator", ALL_GENERATORS[::5], ids=lambda generator: generator.name)
def test_remembered_is_counted(generator, path, monkeypatch):
    measurement = generator.generate(next(a for a in generator.combinations({}) if generator.violated(a) is None))
    kernel, sizes = measurement.kernel, dict(measurement.sizes)
    with using_store("off"):
        counted = everything(kernel, sizes)
    with using_store(path):
        assert everything(kernel, sizes) == counted
    monkeypatch.setattr("perflex.features.from_loopy.extraction.described", _again)
    monkeypatch.setattr("perflex.features.polynomials.quasipolynomial.card", _again)
    with using_store(Store(path)):
        assert everything(kernel, sizes) == counted
    with using_store("off"), pytest.raises(CountedAgainError):
        extract_scop(fresh(kernel))


def test_a_scop_from_its_text_is_equal():
    for kernel in (matmul(prefetch=True), pointwise("x[i // 2] + y[i % 4]")):
        scop = extract_scop(kernel)
        again = scop_from_text(scop_to_text(scop))
        for equal in (again, pickle.loads(pickle.dumps(scop)), copy.deepcopy(again)):
            assert (equal, hash(equal), repr(equal)) == (scop, hash(scop), repr(scop))
        assert scop_to_yaml(again) == scop_to_yaml(scop)


def test_versions(path, monkeypatch):
    kernel = pointwise("x[i] + y[i]")

    def extracted():
        """Whether the kernel is extracted anew."""
        with monkeypatch.context() as patched, using_store(Store(path)):
            patched.setattr("perflex.features.from_loopy.extraction.described", _again)
            try:
                assert count_store.kept_counts(extract_scop(fresh(kernel)))
            except CountedAgainError:
                return True
        return False

    # The oldest are forgotten.
    for number in range(12):
        monkeypatch.setattr(count_store, "counting_version", lambda number=number: f"version {number}")
        assert extracted()
        with using_store(Store(path)):
            count_features(extract_scop(fresh(kernel)), {"n": 64})
        assert not extracted()
    connection = sqlite3.connect(path)
    kept = sorted((f"version {number}",) for number in range(4, 12))
    for table in ("versions", "kernels", "counts"):
        assert sorted(set(connection.execute(f"SELECT version FROM {table}"))) == kept  # noqa: S608
    assert connection.execute("SELECT count(*) FROM scops").fetchall() == [(1,)]
    connection.close()


def test_the_version_follows_the_sources(tmp_path, monkeypatch):
    own = counting_version.__wrapped__()
    features, ground = tmp_path / "features", tmp_path / "isl.py"
    shutil.copytree(Path(count_store.__file__).parent, features, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(perflex.isl.__file__, ground)
    monkeypatch.setattr(count_store, "__file__", str(features / "count_store.py"))
    monkeypatch.setattr(perflex.isl, "__file__", str(ground))
    assert counting_version.__wrapped__() == own
    seen = [own]
    for source in (features / "report.py", features / "gpu" / "waves.py", ground):
        source.write_text(source.read_text() + "\n")
        seen.append(counting_version.__wrapped__())
    # Two files of one name change places.
    one, two = features / "gpu" / "__init__.py", features / "cpu" / "__init__.py"
    texts = one.read_text(), two.read_text()
    two.write_text(texts[0])
    one.write_text(texts[1])
    seen.append(counting_version.__wrapped__())
    assert len(set(seen)) == len(seen) == 5


def base(code="out[i] = x[i] + 1", dtype=np.float32, domain="0<=i<n", **options):
    return make(f"{{[i]: {domain}}}", code, {"x": dtype}, **options)


def scaled(number):
    unit = base("out[i] = x[i]")
    entry = unit.default_entrypoint
    changed = [insn.copy(expression=insn.expression * number) for insn in entry.instructions]
    return unit.with_kernel(entry.copy(instructions=changed))


CHANGES = [
    lambda: base(name="other"), lambda: base(dtype=np.float64), lambda: base(domain="0<=i<=n"),
    *(lambda code=code: base(f"out[i] = {code}") for code in ("x[i] + 2", "x[i] + 1.0", "x[i] * 1", "x$a[i] + 1")),
    lambda: lp.assume(base(), "n mod 4 = 0"), lambda: lp.tag_inames(base(), "i:g.0"),
    lambda: lp.tag_array_axes(base(), "x", "stride:2"), lambda: base().copy(target=lp.OpenCLTarget()),
    # To pymbolic, a product with one of these numbers is equal to those with the others.
    *(lambda number=number: scaled(number) for number in (2, 2.0, np.float32(2), np.float64(2), np.int64(2))),
]  # fmt: skip


def test_everything_changes_the_key():
    assert kernel_key(base()) == kernel_key(base()) == kernel_key(fresh(base()))
    keys = {kernel_key(change()) for change in CHANGES} | {kernel_key(base()), kernel_key(base(), "options")}
    assert len(keys) == len(CHANGES) + 2


def test_what_a_kernel_is_counted_by_is_part_of_its_key(path):
    kernel = pointwise("x[i] + y[y[i]]", {"x": np.float32, "y": np.int32})

    def touched(stand_in):
        scop = extract_scop(annotate(kernel.copy(), accesses={"y[y[i]]": stand_in}))
        return next(e.value for e in count_features(scop, {"n": 64}) if e.identifier == "f_mem_footprint_array:y")

    for _ in range(2):  # counted, then from the store
        with using_store(path):
            assert [touched("i"), touched("2*i")] == [64, 96]


KEYS = """
from perflex.features.count_store import kernel_key
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
