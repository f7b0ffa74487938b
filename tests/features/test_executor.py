"""Counting in an executor: the same values in the same order, failures kept apart."""

import io
import os
import pickle
import sqlite3
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from multiprocessing import get_context

import numpy as np
import pytest
from rich.console import Console

from perflex import RunOptions, gather_feature_values, using_store
from perflex.errors import CalibrationError, ExecutorError, MissingSizeError, NoMatchError, PerflexError, PerflexWarning
from perflex.features import register_feature, unregister_feature
from perflex.progress import progress_bar
from sample_kernels import pointwise
from uipick import ALL_GENERATORS, KernelCollection

FEATURES = [
    "f_op_float32_madd", "f_op_float32_add", "f_mem_access_global_float32",
    "f_mem_access_global_float32_load_lstrides:{0:1}_afr:>1", "f_mem_access_local_float32", "f_sync_barrier_local",
    "f_chain_float32_madd", "f_thread_groups", "f_sub_groups",
]  # fmt: skip


class HereExecutor(Executor):
    """The least an executor can be: does the work when it is handed in."""

    def submit(self, function, /, *arguments, **options):
        future = Future()
        try:
            future.set_result(function(*arguments, **options))
        except PerflexError as error:
            future.set_exception(error)
        return future


@pytest.fixture(scope="module")
def processes():
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        yield pool


def unknown(kernels):
    """The same kernels as objects that nothing is remembered of; those that share an object still do."""
    copies = {id(one.kernel): pickle.loads(pickle.dumps(one.kernel)) for one in kernels}
    return [replace(one, kernel=copies[id(one.kernel)]) for one in kernels]


def catalog():
    """One kernel of every fourth generator."""
    some = ALL_GENERATORS[::4]
    return unknown([one.generate(next(a for a in one.combinations({}) if one.violated(a) is None)) for one in some])


def several():
    tags = ["matmul_sq", "dtype:float32", "groups_fit:True", "n:64,96,128"]
    return unknown(KernelCollection(ALL_GENERATORS).generate_kernels(tags))


@pytest.fixture(params=["threads", "here", "processes"])
def executor(request):
    if request.param == "processes":
        yield request.getfixturevalue("processes")
    else:
        with ThreadPoolExecutor(4) if request.param == "threads" else HereExecutor() as pool:
            yield pool


@pytest.mark.slow
def test_the_catalog_in_an_executor(executor, tmp_path):
    with using_store("off"):
        serial = gather_feature_values(FEATURES, catalog())
    place = str(tmp_path / "store.sqlite")
    for store in ("off", place, place):  # not kept, kept, and from what was kept
        with using_store(store):
            table = gather_feature_values(FEATURES, catalog(), run=RunOptions(executor))
        assert (table.kernels, table.groups, table.info) == (serial.kernels, serial.groups, serial.info)
        assert np.array_equal(table.values, serial.values)
    connection = sqlite3.connect(place)
    assert connection.execute("SELECT count(*) FROM kernels").fetchall() == [(len(catalog()),)]
    connection.close()


def test_rows_come_back_in_order(executor):
    kernels = several()
    mixed = [kernels[i] for i in np.random.default_rng(1).permutation(len(kernels))]
    told = []
    options = RunOptions(executor, progress=lambda *step: told.append(step))
    table = gather_feature_values(FEATURES[:1], mixed, run=options)
    assert table.kernels == tuple(kernel.name for kernel in mixed)
    assert table.column(FEATURES[0]).tolist() == [kernel.sizes["n"] ** 3 / 32 for kernel in mixed]
    assert [done for done, _, _ in told] == sorted(done for done, _, _ in told)
    assert {total for _, total, _ in told} == {len(mixed)}


INDIRECT = pointwise("x[idx[i]] * 2", {"x": np.float32, "idx": np.int32})


def test_a_kernel_that_cannot_be_counted_drops_only_itself(executor):
    kernels = [(pointwise("x[i] * 2"), {"n": 64}), (INDIRECT, {"n": 64}), (pointwise("x[i] * 3"), {"n": 96})]
    with pytest.warns(PerflexWarning, match=r"^knl\(n=64\) #2 is left out: .*is indirect"):
        table = gather_feature_values(["f_op_float32_mul"], kernels, run=RunOptions(executor))
    assert table.kernels == ("knl(n=64)", "knl(n=96)")
    assert table.column("f_op_float32_mul").tolist() == [2.0, 3.0]
    assert [label for label, _ in table.dropped] == ["knl(n=64) #2"]


@pytest.mark.parametrize(("feature_name", "kernels", "error", "words"), [
    ("f_op_float32_mul", [(pointwise("x[i] * 2"), {})], MissingSizeError, "needs a value for size n"),
    ("f_op_float32_exp", None, NoMatchError, r"f_op_float32_exp matches nothing.*f_op_float32_madd"),
    ("f_op_float32_mul", [(INDIRECT, {"n": 64})], CalibrationError, r"none of the kernels can be.*is indirect"),
    # The first error in order is raised.
    ("f_op_float32_mul", [(pointwise(f"x[i] * {k}"), {"n": 64} if k < 3 else {"m": k}) for k in range(8)],
        MissingSizeError, "needs a value for size n"),
])  # fmt: skip
def test_errors_are_the_projects_own(executor, feature_name, kernels, error, words):
    with pytest.raises(error, match=words):
        gather_feature_values([feature_name], kernels or several(), run=RunOptions(executor))


def ends_its_process(scop, sizes):
    os._exit(3)


def faulty(scop, sizes):
    msg = "a fault of the user's"
    raise TypeError(msg)


@pytest.fixture
def count_mine():
    """Count with a user's feature in an executor."""

    def count(function, executor):
        register_feature("f_mine")(function)
        return gather_feature_values(["f_mine"], several(), run=RunOptions(executor))

    yield count
    unregister_feature("f_mine")


@pytest.mark.parametrize(("kind", "function", "error", "words"), [
    (ProcessPoolExecutor, ends_its_process, ExecutorError, "ProcessPoolExecutor ended before all .* counted .*give a"),
    (ProcessPoolExecutor, lambda *_: 1.0, ExecutorError, "cannot be sent to the workers .*use a ThreadPoolExecutor"),
    (ThreadPoolExecutor, faulty, TypeError, "a fault of the user's"),
], ids=["dead", "not sent", "faulty"])  # fmt: skip
def test_faults(count_mine, kind, function, error, words):
    options = {"mp_context": get_context("spawn")} if kind is ProcessPoolExecutor else {}
    with kind(1, **options) as pool, pytest.raises(error, match=words):
        count_mine(function, pool)


def test_threads_need_send_nothing(count_mine):
    with ThreadPoolExecutor(2) as threads:
        assert set(count_mine(lambda *_: 1.0, threads).column("f_mine")) == {1.0}


def test_an_executor_that_was_shut_down():
    pool = ThreadPoolExecutor(1)
    pool.shutdown()
    with pytest.raises(ExecutorError, match="takes no more work"):
        gather_feature_values(FEATURES[:1], several(), run=RunOptions(pool))


def test_the_bar_tells_what_is_done(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    shown = io.StringIO()
    with progress_bar("gather:", Console(file=shown, force_terminal=True, width=100)) as show:
        show(1, 4, "counting [a]")
        show(3, 4, "timing b")
    assert "gather: timing b" in shown.getvalue()
    assert "75 %" in shown.getvalue()
