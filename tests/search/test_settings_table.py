"""Settings as columns, and times of all settings from those of some: known laws, and a calibration's predictions."""

import itertools
from collections import Counter

import numpy as np
import pytest

from perflex import Calibration, load_machine
from perflex.search.kernel_tuner_strategy import expected_times
from perflex.search.settings_table import even, interpolated, settings_columns
from perflex.search.variants import EnumeratedSpace
from support.spaces_for_tests import strided


def test_columns_of_settings():
    settings = [{"tile": 48, "order": "row", "pad": 0}, {"tile": 32, "order": "column", "pad": 3}]
    tile, odd, row, column, pad = settings_columns(settings)
    assert [tile.tolist(), odd.tolist()] == [[48, 32], [3, 1]]
    assert [row.tolist(), column.tolist(), pad.tolist()] == [[1, 0], [0, 1], [0, 3]]
    assert settings_columns([]) == []
    assert [each.tolist() for each in settings_columns([{"share": 0.5}, {"share": 2.0}])] == [[0.5, 2.0]]


def test_even_scales():
    assert even(np.array([1.0, np.e])) == pytest.approx([0, 1])
    assert even(np.array([0.0, 2.0, -2.0])) == pytest.approx(np.arcsinh([0.0, 1.0, -1.0]))


def test_times_are_interpolated_also_where_tiles_do_not_divide():
    grid = list(itertools.product(range(16, 257, 16), (1, 2, 3, 4), (1, 2, 4, 8)))
    table = np.column_stack(settings_columns([{"x": x, "tile": tile, "y": y} for x, tile, y in grid]))
    guarded = np.array([4096 % (x * tile) != 0 for x, tile, _ in grid])
    law = np.array([np.exp(0.1 * np.log2(x / 64) ** 2 + 0.2 * tile) * y**0.3 for x, tile, y in grid])
    seconds = 1e-3 * law * np.where(guarded, 1.7, 1.0)
    known = np.random.default_rng(0).permutation(len(grid))[:80]
    found = interpolated(table, known.tolist(), seconds[known])
    assert found[known].tolist() == seconds[known].tolist()
    assert np.abs(np.log(found / seconds)).mean() < 0.05
    assert interpolated(table, [3], seconds[[3]]) == pytest.approx(np.full(len(grid), seconds[3]))


@pytest.mark.filterwarnings("ignore::perflex.errors.DoubtfulPredictionWarning")
def test_expected_times_of_what_is_not_counted():
    names, values = ("lsize", "stride", "dead"), ((32, 64, 96, 128, 256), (1, 2, 4, 8, 16), (0, 1))
    settings = [dict(zip(names, each, strict=True)) for each in itertools.product(*values)]
    sizes, machine = {"n": 3 << 20}, load_machine("A100-40GB")

    def build(lsize, stride, dead):
        return strided(lsize=lsize, stride=stride)

    space = EnumeratedSpace("strided", build, len(settings), settings, Counter(), sizes)
    found = expected_times(space, [*range(0, 50, 4), 5], machine)
    # Number 5 gives the same kernel as number 4.
    assert found.numbers == [number for number in range(50) if number != 5]
    calibration, others = Calibration.load("general_gpu"), range(6, 50, 8)
    exact = [calibration.predict(build(**settings[number]), sizes, machine=machine) for number in others]
    assert max(exact) > 2 * min(exact)
    assert [found.seconds[found.numbers.index(number)] for number in others] == pytest.approx(exact, rel=0.25)
