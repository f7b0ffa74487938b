"""What the decorator keeps of an autotuner's configurations; the autotuner stands in for one, and Triton is not needed.

Tile programs are those of products in closed form.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import perflex.triton
from perflex import Calibration, Promise, TimedKernel, TimesTable, calibrate, using_machine
from perflex.errors import CalibrationError, MachineError, MeasurementError, PerflexWarning, UnsupportedKernelError
from perflex.features.from_triton.launches import Configuration, TritonKernel, TritonLaunch, configuration_of, launch_of
from perflex.features.sized_kernel import sized_kernels
from perflex.features.tiles.costs import TileCosts
from perflex.triton import prune, rank
from support.closed_form_products import launched, product

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore::perflex.errors.DoubtfulPredictionWarning")
TILES = ((128, 128, 32), (64, 64, 32), (32, 32, 32), (128, 64, 32))


def config(tile: tuple[int, int, int] = TILES[0], **options: Any) -> SimpleNamespace:
    usual = {"num_warps": 4, "num_stages": 3, "num_ctas": 1, "maxnreg": None, "pre_hook": None, "ir_override": None}
    return _Config(kwargs=dict(zip(("M", "N", "K"), tile, strict=True)), **(usual | options))


class _Config(SimpleNamespace):
    __hash__ = object.__hash__


class Tuner:
    """What perflex touches of an autotuner."""

    def __init__(self, configs: list[Any], name: str = "product") -> None:
        self.fn = self.base_fn = SimpleNamespace(params=[], arg_names=["n", "configs", "named"], __name__=name)
        self.configs, self.keys, self.arg_names, self.cache = configs, ["n"], self.fn.arg_names, {}
        self.early_config_prune: Any = None

    def run(self, *_args: Any, **_given: Any) -> None:
        """Does nothing."""

    def kept(self, /, *args: Any, **given: Any) -> list[Any]:
        named = dict(zip(self.arg_names, args, strict=False))
        return list(self.early_config_prune(self.configs, named, **{"grid": (1,), "warmup": False, **given}))


@pytest.fixture(autouse=True)
def closed_form(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TritonKernel, "_launched", property(launched))


@pytest.fixture(scope="module")
def calibration() -> Calibration:
    """Times of 20 problems of four configurations: what the usual values say, a tenth more or less."""
    model, rows = perflex.load_model("general_tile").model(), []
    for number in range(20):
        for place, tile in enumerate(TILES):
            kernel = product(512 + 64 * number, dict(zip("MNK", tile, strict=True)))
            costs = TileCosts(kernel.program({}), perflex.load_machine("A100-80GB")).features()
            columns = {name: costs[name.removeprefix("f_tile_")] for name in model.input_features()}
            seconds = float(model.evaluate(perflex.load_model("general_tile").usual, columns))
            seconds *= math.exp(0.1 * math.sin(7 * number + 3 * place))
            name = f"product({number})"
            rows.append(TimedKernel(kernel, {}, seconds, f"{name} {place}", name))
    with using_machine("A100-80GB"), warnings.catch_warnings():
        warnings.simplefilter("ignore", PerflexWarning)
        return calibrate("general_tile", times=TimesTable(tuple(rows), device="A100"))


def test_without_parentheses_it_decorates_with_the_usual_values() -> None:
    tuner: Any = Tuner([config(tile) for tile in TILES])
    assert prune(tuner) is tuner
    assert tuner.ranking is None
    for kernel in (SimpleNamespace(fn=None), lambda: None):
        with pytest.raises(UnsupportedKernelError, match=r"stands above @triton\.autotune, and there is none below"):
            prune(kernel)


def test_heuristics_may_stand_between() -> None:
    tuner = Tuner([config(tile) for tile in TILES])
    heuristics = SimpleNamespace(fn=tuner, values={})
    assert prune("A100-80GB", keep=2)(heuristics) is heuristics
    assert len(tuner.kept(2048)) == 2


@pytest.mark.parametrize(
    ("machine", "said"),
    [
        ("H100", "did you mean H100-PCIe or H100-SXM?"),
        ("MI210", "machine MI210 is no GPU of NVIDIA"),
        ("V100", "machine V100 is no GPU of compute capability 8.0 or later"),
    ],
)
def test_a_machine_that_will_not_do_is_said_where_the_decorator_stands(machine: str, said: str) -> None:
    with pytest.raises(MachineError) as raised:
        prune(machine)
    assert said in raised.value.message


@pytest.mark.parametrize("keep", [0, -1, True, "all", None])
def test_what_is_kept_must_be_a_number_or_a_promise(keep: Any) -> None:
    with pytest.raises(
        CalibrationError, match=r"keep must be a number|at least one variant|share to keep must be above 0"
    ):
        prune("A100-80GB", keep)


def test_a_file_of_a_calibration_is_as_good_as_itself(calibration: Calibration, tmp_path: Path) -> None:
    path = tmp_path / "a100.yaml"
    calibration.save(path)
    function: Any = Tuner([]).fn
    launch = TritonLaunch(function, {"n": 1024}, 1, tuple(map(configuration_of, map(config, TILES))))
    seconds = [[one.predicted for one in rank(launch, given)] for given in (calibration, path, str(path))]
    assert seconds[0] == seconds[1] == seconds[2]
    assert seconds[0] != [one.predicted for one in rank(launch, "A100-80GB")]


def test_what_has_no_prediction_stays_beside_those_that_are_kept() -> None:
    clusters, override = config(num_ctas=2), config(ir_override="own.ttgir")
    configs = [clusters, *map(config, TILES), override, config((512, 512, 64))]
    tuner: Any = prune("A100-80GB", keep=2)(Tuner(configs))
    with pytest.warns(
        PerflexWarning, match="2 configurations that have no prediction are kept, too: .*num_ctas=2 cannot"
    ):
        kept = tuner.kept(2048)
    names = [str(configuration_of(one)) for one in configs]
    assert [names[configs.index(one)] for one in kept[:2]] == [one.name for one in tuner.ranking[:2]]
    assert kept[2:] == [clusters, override]
    missing = {one.name: one.possible for one in tuner.ranking.variants.missing}
    assert missing == {names[0]: True, names[5]: True, names[6]: False}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tuner.kept(2048)


def test_options_of_the_launch_hold_for_all_configurations() -> None:
    tuner: Any = prune("A100-80GB")(Tuner([config(), config(TILES[1])]))
    with pytest.warns(PerflexWarning, match="not judged with spilt registers"):
        tuner.kept(2048, maxnreg=32)
    assert [one.settings["maxnreg"] for one in tuner.ranking] == [32, 32]


def test_a_limit_of_registers_lets_more_programs_run_at_once_and_spills() -> None:
    machine = perflex.load_machine("A100-80GB")
    launch = TritonLaunch(Tuner([]).fn, {"n": 2048}, 1)
    free, limited = (
        TileCosts(TritonKernel(launch, configuration_of(config(maxnreg=most))).program({}), machine)
        for most in (None, 64)
    )
    assert free.registers[0] == limited.registers[0] > 64
    assert free.registers[1] == 0 < limited.registers[1]
    assert limited.resident > free.resident
    assert str(configuration_of(config(maxnreg=64))).endswith("num_warps=4 num_stages=3 maxnreg=64")


def test_the_best_are_predicted_again_by_their_compiled_code() -> None:
    tuner = Tuner([config(tile, num_warps=warps) for tile in TILES for warps in (4, 8)])
    launch = launch_of(tuner, {"n": 2048}, 1)
    formulas = {one.name: one for one in rank(launch, "A100-80GB")}
    with pytest.warns(PerflexWarning, match="left out: .* with 8 warps and 3 stages: it needs 1048576 B"):
        found = rank(launch, "A100-80GB", compiled=3)
    # The first three of the order are of compiled code, also where that puts others first.
    assert all(one.code for one in found[:3])
    assert sum(one.code is None for one in found) > 0 < len(found.variants.missing)
    for one in found.variants.missing:
        assert one.kernel.configuration.warps == 8
        assert not one.possible
        assert "it needs 1048576 B of shared memory" in one.reason
    for one in found:
        if one.code is None:
            assert one.predicted == formulas[one.name].predicted
        else:
            # Alone on its compute unit, which formulas do not say.
            costs = TileCosts(found.kernel(one).program({}), perflex.load_machine("A100-80GB"))
            assert (costs.allocated, costs.local_bytes, costs.resident) == (200, 100_000, 1)
            assert one.predicted != formulas[one.name].predicted
    registers = [row["registers"] for row in found.table().records()]
    assert registers[:3] == [200] * 3
    assert registers[-1] is None
    # Of those that are kept, all are known to be possible.
    pruned: Any = prune("A100-80GB", keep=2, compiled=2)(tuner)
    assert [one.num_warps for one in pruned.kept(2048)] == [4, 4]


def test_doubts_are_said_once() -> None:
    tuner: Any = prune("L4")(Tuner([config(tile) for tile in TILES]))
    with pytest.warns(PerflexWarning, match="doubtful: .*judged on an A100 and an H100, L4 is of another"):
        tuner.kept(2048)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tuner.kept(1024)


def test_torch_compile_gets_all_configurations_for_it_names_no_grid() -> None:
    tuner: Any = prune("A100-80GB", keep=1)(Tuner([config(tile) for tile in TILES]))
    with pytest.warns(PerflexWarning, match=r"torch\.compile names no grid: it gets all configurations"):
        assert tuner.early_config_prune(tuner.configs, {"n": 2048}) == tuner.configs
    assert tuner.ranking is None


def test_a_launch_imports_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    tuner: Any = prune("A100-80GB")(Tuner([config()]))
    with monkeypatch.context() as patched:
        patched.setattr("builtins.__import__", None)
        tuner.run(2048)


def test_arguments_may_have_any_name() -> None:
    tuner: Any = prune("A100-80GB", keep=1)(Tuner([config(tile) for tile in TILES]))
    assert len(tuner.kept(n=2048, configs=1, named=2, self=3)) == 1


def test_nothing_is_left_where_a_kernels_own_pruning_leaves_nothing() -> None:
    tuner: Any = Tuner([config(), config(TILES[1])])
    tuner.early_config_prune = lambda *_args, **_given: []
    with pytest.warns(PerflexWarning, match="there are no variants"):
        assert prune("A100-80GB")(tuner).kept(2048) == []


@pytest.mark.parametrize("given", ["A100-80GB", None])
def test_a_promise_needs_times(given: Any) -> None:
    with pytest.raises(
        CalibrationError, match="takes times of 19 problems of kernel 'product', each of half of its"
    ) as it:
        prune(given, keep="promise")(Tuner([config()]))
    assert "perflex calibrate general_tile --times" in it.value.message


def test_a_promise_counts_whole_problems_of_the_same_kernel(calibration: Calibration) -> None:
    decorate = prune(calibration, keep="promise")
    with pytest.raises(CalibrationError, match=r"kernel 'other', .* there are 0"):
        decorate(Tuner([config()], "other"))
    # Four of nine configurations have times.
    with pytest.raises(CalibrationError, match="and there are 0"):
        decorate(Tuner([config()] * 9))
    with pytest.raises(CalibrationError, match="within 5 % of the best with 99 % confidence takes times of 99"):
        prune(calibration, keep=Promise(confidence=0.99))(Tuner([config()]))


def test_a_promise_keeps_up_to_the_multiple_that_known_problems_need(calibration: Calibration) -> None:
    configs = [config(tile) for tile in TILES]
    model, table = calibration.model, calibration.table
    predicted = np.asarray(calibration.evaluate(table.columns(model.input_features()))).reshape(20, 4)
    measured = table.column(model.output_feature).reshape(20, 4)
    near = np.where(measured <= 1.05 * measured.min(axis=1, keepdims=True), predicted, np.inf).min(axis=1)
    most = (near / predicted.min(axis=1)).max()
    assert most > 1
    tuner: Any = prune(calibration, keep="promise")(Tuner(configs))
    counts = set()
    for n in range(512, 1792, 128):
        kept = tuner.kept(n)
        best = tuner.ranking[0].predicted
        chosen = {one.name for one in tuner.ranking if one.predicted <= most * best}
        assert {str(configuration_of(one)) for one in kept} == chosen
        counts.add(len(kept))
    # Where predictions lie closer together more are kept.
    assert len(counts) > 1


def test_a_launch_is_ranked_as_each_configuration_is_predicted(calibration: Calibration) -> None:
    configs = [*map(config, TILES), config(TILES[1]), config(num_ctas=2)]
    launch = TritonLaunch(Tuner([]).fn, {"n": 1024}, 1, tuple(map(configuration_of, configs)))
    usual = Calibration.load("general_tile")
    for given, machine in ((calibration, None), (usual, "H100-SXM")):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            found = perflex.rank(launch, given, machine=machine)
        assert any("left out: " in str(one.message) and "num_ctas=2 cannot be" in str(one.message) for one in said)
        assert len(found) == len(configs) - 1
        assert {one.name for one in found} >= {str(configuration_of(configs[1])), f"{configuration_of(configs[1])} #2"}
        for one in found:
            alone = given.explain(found.kernel(one), {}, machine=machine)
            assert (one.predicted, one.low, one.high) == pytest.approx((alone.seconds, alone.low, alone.high))
            assert (one.doubts, one.knowledge) == (alone.doubts, alone.knowledge)
            assert one.settings == {**one.settings, **found.kernel(one).configuration.constants}
    with pytest.raises(UnsupportedKernelError, match=r"none of the 1 variants can be described; .*num_ctas=2"):
        rank(replace(launch, configurations=launch.configurations[-1:]), "A100-80GB")
    for ranks in (rank, perflex.rank):
        with pytest.raises(CalibrationError, match="the calibration is of another model than general_tile"):
            ranks(launch, replace(Calibration.load("general_gpu"), machine="A100-80GB"))


def test_times_of_configurations_correct_the_others(tmp_path: Path) -> None:
    tiles = [(m, n, 32) for m in (32, 64, 128) for n in (32, 64, 128, 256)]
    launch = TritonLaunch(Tuner([]).fn, {"n": 2048}, 1, tuple(map(configuration_of, map(config, tiles))))
    calibration = Calibration.load("general_tile")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PerflexWarning)
        found = perflex.rank(launch, calibration, machine="A100-80GB")
        lines = [f"{','.join(map(str, one.settings.values()))},{2e3 * one.predicted}" for one in found[::2]]
        path = tmp_path / "times.csv"
        path.write_text("\n".join([",".join([*found[0].settings, "time_ms"]), *lines]) + "\n")
        again = perflex.rank(
            launch, calibration, machine="A100-80GB", measured={one.name: 2 * one.predicted for one in found[:9]}
        )
        read = perflex.rank(launch, calibration, machine="A100-80GB", measured=path)
    assert sum(not math.isnan(one.measured) for one in read) == len(lines)
    assert again.corrected
    before = {one.name: one.predicted for one in found}
    assert [one.predicted / before[one.name] for one in again] == pytest.approx([2] * len(found), rel=0.05)


def test_a_launch_is_tuned_by_a_function_that_times_it() -> None:
    tiles = [(m, n, 32) for m in (32, 64, 128) for n in (32, 64, 128, 256)]
    launch = TritonLaunch(Tuner([]).fn, {"n": 2048}, 1, tuple(map(configuration_of, map(config, tiles))))
    with pytest.warns(PerflexWarning, match="starts from doubtful predictions: no sample of this device"):
        found = perflex.tune(
            launch,
            calibration=Calibration.load("general_tile"),
            machine="A100-80GB",
            measure=lambda proposal: 1e-3 + abs(math.log(proposal.settings["M"] / 64)),
        )
    assert found.best.settings["M"] == 64
    kernel = next(iter(launch.kernels().values()))
    with pytest.raises(MeasurementError, match="perflex does not run Triton kernel 'product'; give tune"):
        _ = sized_kernels([(kernel, {})])[0].translation_unit
    with pytest.raises(CalibrationError, match="a Triton launch is predicted before it is tuned; give calibration="):
        perflex.tune(launch, measure=lambda _: 1.0)


def test_a_configuration_is_told_apart_by_all_that_it_says() -> None:
    one = Configuration({"M": 1}, options={"num_ctas": 2, "maxnreg": 64, "ir_override": "a"})
    assert one.all() == {"M": 1, "num_warps": 4, "num_stages": 3, "num_ctas": 2, "maxnreg": 64, "ir_override": "a"}
    assert one.launched({"num_warps": 8, "n": 3}) == replace(one, warps=8)
