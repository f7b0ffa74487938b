"""Measured spaces on disk, descriptions, pruning, and the strategy for Kernel Tuner."""

import csv
import gzip
import json
import warnings
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from perflex import DescribedSpace, Promise, load_described_space, load_description, load_machine, prune_described
from perflex.errors import CalibrationError, FileFormatError, PerflexWarning
from perflex.search.described.description import platform_of
from support.described_data import convolution_space, times_of
from support.small_description import DESCRIPTION


@pytest.fixture
def small(tmp_path):
    path = tmp_path / "small.yaml"
    path.write_text(DESCRIPTION)
    return load_description(path)


def cache(rows, **more):
    entries = {str(i): dict(zip(("items", "depth", "time"), row, strict=True)) for i, row in enumerate(rows)}
    return {"device_name": "A GPU", "tune_params_keys": ["items", "depth"], "cache": entries, **more}


ROWS = [
    (64, 1, 3.0), (64, 2, 2.0), (128, 1, 1.0), (128, 4, 9.0), (32, 1, 5.0), (32, 2, 7.0), (64, 1, 5.0),
    (64, 4, "CompilationFailedConfig"), (128, 2, float("nan")), (128, 2, -1.0), ("x", 2, 1.0),
]  # fmt: skip


def check_small(found):
    rows = sorted(zip(found.settings["items"], found.settings["depth"], found.times, strict=True))
    assert [row[2] for row in rows] == pytest.approx([6e-3, 4e-3, 2e-3, 1e-3])
    assert found.excluded == {
        "failed or without a time": 3,
        "settings that are no numbers": 1,
        "against the constraints": 1,
        "the same kernel as another": 2,
    }


def test_caches_whole_left_open_and_packed_and_tables(small, tmp_path):
    text = json.dumps(cache(ROWS))
    table = "\n".join(",".join(map(str, row)) for row in [("items", "depth", "time_ms"), *ROWS])
    # A spreadsheet's table begins with a mark.
    for name, content, device in (
        ("cache.json", text.encode(), "A GPU"),
        ("open.json", text[:-2].encode() + b",", "A GPU"),
        ("cache.json.gz", gzip.compress(text.encode()), "A GPU"),
        ("GPU.csv", table.encode(), "GPU"),
        ("sheet.csv", table.encode("utf-8-sig"), "sheet"),
    ):
        (tmp_path / name).write_bytes(content)
        found = load_described_space(tmp_path / name, small)
        check_small(found)
        if name != "open.json":
            assert found.device == device
    (tmp_path / "cache.json.gz").write_bytes((packed := gzip.compress(text.encode()))[:20] + b"\xff" * 10 + packed[30:])
    with pytest.raises(FileFormatError, match="cannot read"):
        load_described_space(tmp_path / "cache.json.gz", small)


def test_kernels_that_differ_in_what_the_description_does_not_know_are_told(small, tmp_path):
    heading, rows = "items,depth,padding,run,time_ms,time_ms_median", ["64,1,0,1,3,3", "64,1,1,1,5,5", "64,2,1,1,1,1"]
    for last, padding in (("", True), ("\n64,1,0,1,4,4", True), (None, False)):
        lines = rows if last is not None else [rows[0], rows[0].replace("3", "4"), rows[2]]
        (tmp_path / "GPU.csv").write_text("\n".join([heading, *lines]) + (last or ""))
        (cause,) = load_described_space(tmp_path / "GPU.csv", small).excluded
        told = " but for padding, which the description does not know" if padding else ""
        assert cause == f"the same kernel as another{told}"


@pytest.mark.parametrize(("text", "told"), [
    ("items,depth,time_ms\n64,1,3,25\n", "line 2, has more cells than the heading; write numbers with a point"),
    ("items,depth,items,time_ms\n64,1,32,3\n", "has two columns items; rename one"),
])  # fmt: skip
def test_tables_whose_cells_do_not_fit_their_heading(small, tmp_path, text, told):
    (tmp_path / "GPU.csv").write_text(text)
    with pytest.raises(FileFormatError, match=told):
        load_described_space(tmp_path / "GPU.csv", small)


def test_that_problems_of_several_sizes_are_compared_is_told(small, tmp_path):
    (tmp_path / "GPU.csv").write_text("items,depth,size,time_ms\n64,1,1024,3,\n64,1,4096,9\n128,1,4096,8\n")
    with pytest.warns(PerflexWarning, match="several values of size are compared; choose among those of one problem"):
        prune_described(load_described_space(tmp_path / "GPU.csv", small), keep=1)


def test_facts_of_a_cpu_are_none_that_formulas_take(small, tmp_path):
    (tmp_path / "GPU.csv").write_text("items,depth,time_ms\n64,1,3\n128,1,2\n")
    found = load_described_space(tmp_path / "GPU.csv", small, machine=load_machine("EPYC-7452"))
    assert found.facts == "facts of a usual GPU of AMD: EPYC-7452 is a CPU, of which formulas take none"
    assert found.platform == platform_of("AMD")


def test_t4_files_and_units(small, tmp_path):
    def result(items, depth, time, unit):
        failed = isinstance(time, str)
        value = [] if failed else [{"name": "time", "value": time * 1000, "unit": unit}]
        state = "compile" if failed else "correct"
        return {"configuration": {"items": items, "depth": depth}, "invalidity": state, "measurements": value}

    path = tmp_path / "t4.json"
    path.write_text(json.dumps({"results": [result(*row, "us") for row in ROWS]}))
    check_small(load_described_space(path, small))
    for unit in ("", "parsec"):
        path.write_text(json.dumps({"results": [result(*row, unit) for row in ROWS]}))
        with pytest.raises(FileFormatError, match="unit"):
            load_described_space(path, small)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.json", "{", "damaged"),
        ("a.json", "[]", "neither a 'cache'"),
        ("a.json", '{"cache": {}}', "tune_params_keys"),
        ("a.json", json.dumps(cache([])), "holds no valid configuration: it is empty"),
        ("a.json", json.dumps(cache([(64, 1, "failed"), (64, 2, None)])), "2 failed"),
        ("a.json", json.dumps(cache([(128, 4, 1.0)])), "fulfils the constraints"),
        ("a.json", json.dumps(cache(ROWS, objective="energy")), "'energy'"),
        ("a.json", '{"results": [3]}', "no T4"),
        ("a.csv", "items,depth,time\n64,1,3\n", "time_ms"),
        ("a.csv", "items,time_ms\n64,3\n", "no tunable depth"),
        ("a.json", json.dumps({**cache(ROWS), "tune_params_keys": [["items"]]}), "list of names"),
        ("a.json", '{"results": [{"configuration": {"items": 64, "depth": 1}, "measurements": null}]}', "1 failed"),
        ("a.csv", "items,depth,time_ms\n64," + "1" * 200000 + ",3\n", "line 1"),
        ("a.txt", "", "convert"),
        ("a.json.gz", "no gzip", "cannot read"),
    ],
)
def test_bad_files_are_named(small, tmp_path, name, content, message):
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(FileFormatError, match=message) as caught:
        load_described_space(path, small)
    assert str(path) in str(caught.value)
    with pytest.raises(FileFormatError, match="cannot read"):
        load_described_space(tmp_path / "nothing.json", small)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("ceil_div(size, items*depth)", "ceil_div(size, itms*depth)", "'itms' is not known here; did you mean 'items'"),
        ("ceil_div(size, items*depth)", "size.real", "features.f_groups"),
        ("p_time*(f_work", "p_time*(f_wrk", "f_wrk is neither a feature nor a parameter"),
        ("p_time*(f_work", "p_time*p_*(f_work", "model"),
        ("p_group*f_groups", "f_groups", "does not use p_group"),
        ("[1, 2, 4]", "[1, 1]", "different finite numbers"),
        ("prior: 10", "prior: 0", "p_group.prior: it must be a number > 0"),
        ("constants: {size", "other: 1\nconstants: {size", "no such field"),
        ("f_work: ", "size: ", "already"),
        ("[1, 2, 4]", "[.nan, 1]", "finite number"),
        ("constants: {size: 1024}", "constants: {size: 1024, items: 3}", "items is defined twice"),
        ("f_groups*items*depth", "f_groups*1" + "0" * 400, "too large"),
        ("p_group: {meaning", "f_groups: {meaning", "begins with p_"),
        ("[items*depth <= 256]", "[f_groups > 2]", "'f_groups' is not known here"),
    ],
)
def test_bad_descriptions_are_named(tmp_path, old, new, message):
    assert old in DESCRIPTION
    path = tmp_path / "bad.yaml"
    path.write_text(DESCRIPTION.replace(old, new, 1))
    with pytest.raises(FileFormatError, match=message):
        load_description(path)


def test_the_same_settings_of_two_sizes_are_two_kernels(small, tmp_path):
    path = tmp_path / "sizes.csv"
    path.write_text("items,depth,size,time_ms\n64,1,1024,1\n64,1,4096,4\n64,1,4096,6\n")
    found = load_described_space(path, small)
    assert found.settings["size"].tolist() == [1024, 4096]
    assert found.times.tolist() == pytest.approx([1e-3, 5e-3])


def test_rows_that_only_fail_to_be_numbers_are_counted(small, tmp_path):
    path = tmp_path / "cache.json"
    rows = [(64, 1, 3.0), (64, 2, 10**400), (10**400, 1, 1.0), (float("nan"), 1, 1.0)]
    document = cache(rows)
    document["cache"] |= {"none": None, "short": {"items": 64, "time": 1.0}}
    path.write_text(json.dumps(document))
    found = load_described_space(path, small)
    assert found.times.tolist() == [3e-3]
    assert found.excluded == {"failed or without a time": 1, "settings that are no numbers": 4}


def test_model_that_gives_no_time(small, tmp_path):
    path = tmp_path / "zero.yaml"
    path.write_text(DESCRIPTION.replace("f_work + p_group*f_groups", "f_groups - 4 + 0*p_group*f_work"))
    settings = {"items": np.array([64.0, 64, 128]), "depth": np.array([1.0, 2, 1])}
    with pytest.raises(CalibrationError, match=r"gives the time 0 for items=64, depth=4"):
        prune_described(DescribedSpace(load_description(path), settings, times=np.ones(3)).complete())
    whole = prune_described(DescribedSpace(small, settings, times=np.ones(3)).complete(), keep=1.0)
    # All but those that were measured and are not the fastest.
    assert len(whole.decision.kept) == len(whole.predicted) - whole.batch.sum() + 1
    assert whole.batch[whole.decision.kept].sum() == 1


MANY = "".join(f"  t{i}: {{meaning: x, values: {list(range(20))}}}\n" for i in range(9))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[items*depth <= 256]", "[items > 64, items < 64]", "contradict"),
        ("constants:", f"{MANY}constants:", "4608000000000 combinations"),
        ("f_groups*items*depth", "1/(items - 64)", r"f_work .* items=64"),
    ],
)
def test_descriptions_that_describe_nothing(tmp_path, old, new, message):
    path = tmp_path / "bad.yaml"
    path.write_text(DESCRIPTION.replace(old, new))
    description = load_description(path)
    with pytest.raises(FileFormatError, match=message):
        description.compute(description.space(), {})


def test_a_description_is_a_name_or_a_file(tmp_path):
    for wrong, message in ((5, "by its name or its file"), ("convolutions", "did you mean 'convolution'")):
        with pytest.raises(FileFormatError, match=message):
            load_description(wrong)
    # A constraint without a value is not fulfilled.
    path = tmp_path / "nan.yaml"
    path.write_text(DESCRIPTION.replace("items*depth <= 256", "size % (depth - 1)"))
    found = load_description(path).valid({"items": np.array([64.0, 64]), "depth": np.array([1.0, 4])})
    assert found.tolist() == [False, True]


@pytest.fixture(scope="module")
def measured():
    space = convolution_space(400)
    return replace(space, times=times_of(space))


def test_pruning_to_a_number_a_fraction_and_a_promise(measured, tmp_path):
    by_number, by_share = (prune_described(measured, measured=measured.sample(60), keep=k) for k in (12, 0.03))
    assert by_number.decision.kept.tolist() == by_share.decision.kept.tolist()
    assert by_number.keeps_near_best
    batch, kept = by_number.batch, by_number.decision.kept
    assert len(kept) == 12
    # Of the batch only its fastest is kept.
    assert kept[batch[kept]].tolist() == [np.nanargmin(by_number.measured)]
    assert sorted(by_number.predicted[kept[~batch[kept]]]) == sorted(by_number.predicted[~batch])[:11]
    sizes = np.abs(by_number.analytic.predicted[~batch] / measured.known[~batch] - 1)
    assert set(by_number.errors) == {"analytic", "with the correction"}
    assert by_number.errors["analytic"] == pytest.approx(np.exp(np.log(sizes).mean()))
    promised = prune_described(measured, measured=measured.sample(60), keep=Promise(0.05, 0.9))
    assert promised.decision.met
    assert promised.keeps_near_best
    assert (by_number.allowed_loss, promised.allowed_loss) == (0.05, 0.05)
    assert len(promised.decision.kept) < 200
    by_number.to_csv(tmp_path / "kept.csv")
    with (tmp_path / "kept.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert [sum(row[name] == "True" for row in rows) for name in ("kept", "batch")] == [12, 60]
    assert len(rows) == 400


def test_all_times_of_a_pruning_are_in_seconds(small, tmp_path):
    # Of 1024 items 2 us each, and 20 us more for each work-group.
    law = {(x, d): 2e-6 * (1024 + 10 * 1024 / (x * d)) for x in (64, 128) for d in (1, 2, 4) if x * d <= 256}
    path = tmp_path / "a.csv"
    path.write_text("\n".join(["items,depth,time_ms", *(f"{x},{d},{1e3 * law[x, d]}" for x, d in law)]))
    found = prune_described(load_described_space(path, small), keep=1.0)
    seconds = np.array([law[tuple(each.values())] for each in found.space.configurations])
    for times in (found.space.known, found.measured, found.predicted, found.analytic.predicted):
        assert times == pytest.approx(seconds, rel=0.05)
    assert found.parameters["p_time"] == pytest.approx(2e-6, rel=0.05)
    for row in found.table().records():
        expected = law[row["items"], row["depth"]]
        assert [row["predicted_s"], row["analytic_s"], row["measured_s"]] == pytest.approx([expected] * 3, rel=0.05)


@pytest.mark.slow
@pytest.mark.parametrize(("loss", "near"), [(0.0, False), (0.05, False), (0.2, True), (0.5, True)])
def test_a_promise_is_judged_by_its_own_loss(measured, loss, near):
    found = prune_described(measured, measured=measured.sample(60), keep=Promise(loss, 0.9))
    assert found.allowed_loss == loss
    # Only the configuration that is 10 % slower than the best known is kept, say.
    best = np.nanmin(measured.known)
    place = int(np.argmin(np.abs(measured.known - 1.1 * best)))
    assert 1.05 < measured.known[place] / best < 1.2
    kept = replace(found, decision=replace(found.decision, kept=np.array([place])))
    assert kept.keeps_near_best == near


@pytest.mark.slow
def test_pruning_of_all_that_the_description_allows(measured):
    found = prune_described(measured.complete(), keep=10)
    assert len(found.predicted) == 4362
    assert np.isfinite(found.measured).sum() == 400
    assert found.keeps_near_best is None
    assert found.errors == {}
    assert found.table().records()[0]["predicted_s"] == found.predicted.min()
    assert found.table().records()[0]["dominates"] in found.parameters
    assert repr(found).startswith("10 of 4362 configurations of convolution kept")


def pruned_by(space, measured=20, **more):
    return prune_described(
        space, measured=space.sample(measured) if isinstance(measured, int | float) else measured, **more
    )


@pytest.mark.parametrize(
    ("more", "message"),
    [
        *(({"measured": count}, f"{count} samples") for count in (401, 0, 2.5)),
        *(({"keep": keep}, "keep") for keep in ("5%", True)),
        *(({"keep": keep}, "share") for keep in (1.5, float("nan"))),
        ({"keep": 0}, "at least one"),
        ({"measured": [400]}, "numbers, 0 to 399"),
        ({"measured": {"a": 1.0}}, "numbers, 0 to 399"),
    ],
)
def test_pruning_refuses_nonsense(measured, more, message):
    with pytest.raises(CalibrationError, match=message):
        pruned_by(measured, **more)


@pytest.fixture
def simulated(tmp_path, monkeypatch):
    """Run Kernel Tuner in its simulation mode, with a file of times of all settings; give the times it looked at."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kernel_tuner = pytest.importorskip("kernel_tuner", reason="Kernel Tuner is not installed (extra tuner)")
    monkeypatch.chdir(tmp_path)

    def run(source, size, arguments, tunables, times, evaluations, **more):
        entries = {
            ",".join(map(str, row)): {**dict(zip(tunables, row, strict=True)), "time": time}
            for row, time in zip(product(*tunables.values()), times, strict=True)
        }
        document = {
            "schema_version": "1.0.0", "device_name": "A100", "kernel_name": "k", "problem_size": [size],
            "objective": "time", "tune_params_keys": list(tunables), "tune_params": tunables, "cache": entries,
        }  # fmt: skip
        (tmp_path / "cache.json").write_text(json.dumps(document))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            results, _ = kernel_tuner.tune_kernel(
                "k", source, size, arguments, tunables, simulation_mode=True, cache="cache.json", lang="CUDA",
                strategy_options={"max_fevals": evaluations}, quiet=True, **more,
            )  # fmt: skip
        assert len(results) == evaluations
        return [result["time"] for result in results]

    return run


@pytest.mark.machine
def test_strategy_in_kernel_tuners_simulation_mode(simulated):
    from perflex import KernelTunerStrategy

    description = load_description("convolution")
    tunables = {name: [int(value) for value in tunable.values] for name, tunable in description.tunables.items()}
    tunables |= {"block_size_x": [32, 64], "use_padding": [0], "block_size_y": [1, 2, 4]}
    columns = np.array(list(product(*tunables.values()))).T
    times = times_of(DescribedSpace(description, dict(zip(tunables, columns, strict=True)), "A100"))
    strategy = KernelTunerStrategy("convolution", device="A100")
    assert min(simulated("__global__ void k(){}", 1, [], tunables, times, 30, strategy=strategy)) <= 1.05 * times.min()


SOURCE = """
__global__ void k(float *out, const float *in, int n) {
    for (int i = (blockIdx.x * block_size_x + threadIdx.x) * stride; i < n; i += block_size_x * stride * gridDim.x)
        out[i % n] = 2 * in[i];
}
"""


@pytest.mark.machine
def test_strategy_reads_the_source_where_there_is_no_description(simulated):
    from perflex import KernelTunerStrategy

    n = 1 << 22
    tunables = {"block_size_x": [32, 64, 128, 256, 512], "stride": [1, 2, 4, 8, 16, 32]}
    times = [stride + 32 / block for block, stride in product(*tunables.values())]
    arguments = [np.zeros(n, np.float32), np.zeros(n, np.float32), np.int32(n)]
    strategy, divisors = KernelTunerStrategy(device="A100-40GB"), ["block_size_x", "stride"]
    found = simulated(SOURCE, n, arguments, tunables, times, 12, strategy=strategy, grid_div_x=divisors)
    # Contiguous accesses are expected to be the fastest.
    assert min(found) <= 1.25


@pytest.mark.parametrize(
    "measured", [np.array([True, False, True]), [0.5, 1.0], [-1], [3], ["items=64"], {"items=64": 1.0}]
)
def test_what_are_no_numbers_of_configurations_is_refused(small, measured):
    settings = {"items": np.array([32.0, 64.0, 128.0]), "depth": np.ones(3)}
    space = DescribedSpace(small, settings, times=np.array([3e-3, 2e-3, 1e-3]))
    assert len(prune_described(space, keep=1, measured=[0, 2]).decision.kept) == 1
    with pytest.raises(CalibrationError, match="given by their numbers, 0 to 2, not as"):
        prune_described(space, keep=1, measured=measured)
    with pytest.raises(CalibrationError, match="2 times are given for 3 configurations"):
        prune_described(replace(space, times=np.array([3e-3, 2e-3])), keep=1)


def test_a_table_of_one_configuration(small, tmp_path):
    (tmp_path / "GPU.csv").write_text("items,depth,time_ms\n64,1,3\n64,1,5\n")
    found = prune_described(load_described_space(tmp_path / "GPU.csv", small), keep=1)
    assert found.predicted == pytest.approx([4e-3])
