"""Variants whose best are compiled: predicted by their code, what compiles alike told, what does not left out."""

import warnings
from dataclasses import replace

import pytest

from perflex import Calibration, SearchOptions, machine_code, rank, source_kernel, tune, with_code
from perflex.errors import CalibrationError, MissingExtraError
from perflex.search.variant_space import VariantSpace

SUMS = """
__global__ void sums(float *x, const float *y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float s[16];
  for (int k = 0; k < 16; k++) s[k] = 0;
  for (int j = 0; j < n; j++) {
#pragma unroll UNROLL
    for (int k = 0; k < 16; k++) s[k] += y[j] * k;
  }
  float t = LARGE;
  for (int k = 0; k < 16; k++) t += s[k];
  x[i] = t;
}"""


def sums(unroll, large="0"):
    defines = {"UNROLL": unroll, "LARGE": large}
    return source_kernel(SUMS, "sums", local=256, groups=1024, defines=defines)


@pytest.fixture(scope="module")
def calibration():
    try:
        machine_code([(sums(16), {"n": 8})], "A100-40GB")
    except MissingExtraError as missing:
        pytest.skip(missing.message)
    return Calibration.load("general_gpu")


def found(calibration, variants, count, **more):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return with_code(variants, calibration, count, {"n": 512}, machine="A100-40GB", **more)


def test_so_many_of_the_best_are_compiled_and_say_so(calibration):
    variants = {"kept": sums(1), "whole": sums(16)}
    before, after = found(calibration, variants, 0), found(calibration, variants, 1)
    assert (list(before.code), list(after.code)) == ([], [1])
    # Code that is slower says nothing of others; where it is faster, as much is expected of them.
    kept, whole = after.predicted(calibration) / before.predicted(calibration)
    assert kept == 1.0 < whole
    faster = replace(after, values=after.values * [[1.0], [0.5]])
    kept, whole = faster.predicted(calibration) / before.predicted(calibration)
    assert kept == pytest.approx(whole)
    assert whole < 0.7
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        first, second = rank(after, calibration, {"n": 512}, machine="A100-40GB")
        _, of_source = rank(before, calibration, {"n": 512}, machine="A100-40GB")
        _, scaled = rank(faster, calibration, {"n": 512}, machine="A100-40GB")
    assert scaled.low / of_source.low == pytest.approx(scaled.predicted / of_source.predicted) == pytest.approx(kept)
    assert (first.name, first.knowledge) == ("whole", "code")
    assert first.code.registers > 16
    # Nothing was compiled of what is last: an array that a loop goes through, which is to stay one.
    assert (second.name, second.knowledge, second.code) == ("kept", "nothing", None)


def test_source_and_code_agree_that_the_array_of_a_kept_loop_is_memory(calibration):
    every = found(calibration, {"whole": sums(16), "kept": sums(1)}, 2)
    taken = {name: every.code[number].resources for number, name in enumerate(every.names)}
    assert (taken["whole"].private_bytes, taken["kept"].private_bytes) == (0, 64)
    fast, slow = every.predicted(calibration)
    of_source = found(calibration, {"whole": sums(16), "kept": sums(1)}, 0).predicted(calibration)
    assert slow > 3 * fast
    assert of_source[1] > 3 * of_source[0]


def test_a_search_compiles_the_best_first(calibration):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = tune(
            VariantSpace(sums, {"unroll": [1, 16]}), {"n": 512}, calibration=calibration, machine="A100-40GB",
            measure=lambda proposal: 1.0 / proposal.settings["unroll"], options=SearchOptions(2, compiled=1),
        )  # fmt: skip
    assert result.best.settings == {"unroll": 16}
    assert [result.space.names[number] for number in result.space.code] == ["unroll=16"]


def test_kernels_that_compile_alike_are_named_and_settings_are_measured_once(calibration):
    alike = {"first": sums(16), "second": sums(16, "0.0f")}
    with pytest.warns(match="these compile to the same code: second and first"):
        kept = with_code(alike, calibration, 2, {"n": 512}, machine="A100-40GB")
    assert len(kept) == 2
    space = VariantSpace(sums, {"unroll": [16], "large": ["0", "0.0f", "(0)"]})
    once = found(calibration, space, 3)
    assert len(once) == 1
    assert once.excluded == {"compiles to the same code as another variant": 2}
    assert [one["large"] for one in once.same[0]] == ["0.0f", "(0)"]
    index, seconds = once.measured_rows({"unroll=16, large=(0)": 1e-3})
    assert (index.tolist(), seconds.tolist()) == ([0], [1e-3])


def test_what_does_not_compile_is_missing(calibration):
    # What is declared as a number may have 48 KiB.
    large = SUMS.replace("float s[16];", "float s[16]; __shared__ float all[20000]; all[i % 64] = i; __syncthreads();")
    large = large.replace("x[i] = t;", "x[i] = t + all[63 - i % 64];")
    bad = source_kernel(large, "sums", local=64, groups=1024, defines={"UNROLL": 16, "LARGE": "0"})
    kept = found(calibration, {"good": sums(16), "bad": bad}, 2)
    assert kept.names == ("good",)
    (missing,) = kept.missing
    assert missing.name == "bad"
    assert "too much shared data" in missing.reason
    assert not missing.possible
    with pytest.raises(CalibrationError, match=r"none of the variants compiles: .*too much shared data"):
        found(calibration, {"bad": bad}, 1)


def test_a_number_below_zero_is_refused(calibration):
    with pytest.raises(CalibrationError, match="give a number from 0 on"):
        found(calibration, {"one": sums(16)}, -1)


def test_memory_that_data_decide_how_often_is_used_is_no_silent_zero(calibration):
    text = SUMS.replace("j < n", "j < (int) y[n]").replace("UNROLL", "1").replace("LARGE", "0")
    line = next(number for number, one in enumerate(text.splitlines(), 1) if "y[n]" in one)
    kernel = source_kernel(text, "sums", local=256, groups=1024, stated={str(line): 100})
    with pytest.raises(CalibrationError, match="work-item in memory, and how often they are used cannot be counted"):
        found(calibration, {"one": kernel}, 1)
