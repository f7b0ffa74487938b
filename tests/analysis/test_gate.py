"""Conditions as they are written, and when a value meets one."""

import pytest

from perflex.analysis.gate import read_conditions
from perflex.errors import PerflexError

STRIDES = "f_mem_access_global_float32_load_lstrides:"


@pytest.mark.parametrize(
    ("words", "metric", "features", "changes"),
    [
        ("time<=1.03", "time", 0, True),
        ("time <= 2.5 ms", "time", 0, False),
        ("dram_bytes<=1", "dram_bytes", 2, True),
        ("dram_bytes<64MiB", "dram_bytes", 2, False),
        ("spills==0", "spills", 1, False),
        (f"{STRIDES}{{0:1;1:n}}<=1e0", f"{STRIDES}{{0:1;1:n}}", 1, True),
        (f"{STRIDES}{{0:>1}}<=1", f"{STRIDES}{{0:>1}}", 1, True),
        ("exact", "exact", 0, False),
    ],
)
def test_conditions(words, metric, features, changes):
    one, other = read_conditions(f" {words} ,exact")
    assert (one.text, one.metric, len(one.features), one.changes) == (words, metric, features, changes)
    assert other.metric == "exact"


@pytest.mark.parametrize(
    ("words", "meeting", "others"),
    [
        ("time<=1.03", (0.5, 1.03, 1.03 * (1 + 1e-12)), (1.0300001, float("inf"))),
        ("time<1.03", (1.029,), (1.03, 2)),
        ("time>=2", (2, 3), (1.999,)),
        ("time>2", (2.1,), (2,)),
        ("spills==0", (0,), (1e-12, 1)),
        # What is small is not equal for that.
        ("time<=1e-10s", (1e-10, 1e-11), (2e-10,)),
    ],
)
def test_limits(words, meeting, others):
    (one,) = read_conditions(words)
    assert [value for value in (*meeting, *others) if one.met(value)] == list(meeting)


@pytest.mark.parametrize(
    "words",
    [
        "",
        "time",
        "time<=",
        "time<=-1",
        "time=<1",
        "exact<=1",
        "time<=1 1",
        "spills==0B",
        "time<=1MiB",
        "n<=1",
        "exact,",
    ],
)
def test_what_is_no_condition(words):
    with pytest.raises(PerflexError):
        read_conditions(words)
