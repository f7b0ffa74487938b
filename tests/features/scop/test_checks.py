"""What Scop files may not say of operations, schedules and loops: refused, with the field and what to write."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from perflex.errors import FileFormatError, UnsupportedKernelError
from perflex.features import scop_from_yaml

GRID = "0 <= g < n and 0 <= l < 32"


@dataclass(frozen=True)
class File:
    """A Scop file of a statement in two loops, and of what is added."""

    schedule: str = "[0, i, 0, j, 0]"
    loops: str = "i, j"
    launch: str = ""
    kind: str = "add"
    statement: str = ""
    more: str = ""

    @property
    def text(self) -> str:
        launch = f"- {{groups: [n], items: [32]{self.launch}}}\n"
        head = f"schema: perflex-scop/1\nname: sums\nparameters: [n]\nlaunches:\n{launch}arrays: []\nstatements:\n"
        operations = f'  operations: [{{kind: "{self.kind}", dtype: float32}}]\n'
        return head + entry("name: add", self.schedule, self.loops) + operations + self.statement + self.more


def entry(head: str, schedule: str, loops: str = "") -> str:
    dims, limits = (f", {loops}", f" and 0 <= {loops} < n") if loops else ("", "")
    return f'- {head}\n  domain: "[n] -> {{ [g, l{dims}] : {GRID}{limits} }}"\n  schedule: {schedule}\n'


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (
            "mad",
            r"line 11, field statements\[0\].operations\[0\].kind: 'mad' is an unknown operation; did you mean m",
        ),
        ("plus", "'plus' is an unknown operation; known are add, mul, madd, div"),
        ("call:", "'call:' is an unknown operation; .* or call:NAME for a function of your own"),
    ],
)
def test_unknown_operations_are_refused(kind: str, message: str) -> None:
    with pytest.raises(FileFormatError, match=message):
        scop_from_yaml(File(kind=kind).text)


@pytest.mark.parametrize("kind", ["madd", "sqrt", "atomic", "call:my_function"])
def test_known_operations_and_calls_are_read(kind: str) -> None:
    assert scop_from_yaml(File(kind=kind).text).statements[0].operations[0].kind == kind


NO_ORDER = r"schedule \[.*\] does not alternate; write numbers and loops in turn, such as \[1, k, 0\]"
TAKEN = "as work-groups and work-items are called; rename the loop"
REFUSED = {
    "begins with a loop": (File("[i, 0, j, 0]"), NO_ORDER),
    "ends with a loop": (File("[0, i, 0, j]"), NO_ORDER),
    "two numbers": (File("[0, 1, 0, j, 0]"), NO_ORDER),
    "two loops at once": (File("[0, i, j, 0, 0]"), NO_ORDER),
    "no name": (File("[0, i, 0, 2j, 0]"), "names a loop '2j'; use letters, digits and underscores"),
    "an item's name": (File("[0, i, 0, lid0, 0]", "i, lid0"), f"loop 'lid0', {TAKEN}"),
    "a group's name": (File("[0, gid1, 0, j, 0]", "gid1, j"), f"loop 'gid1', {TAKEN}"),
    "twice in a nest": (File("[0, i, 0, i, 0]"), "schedule has loop 'i' in loop 'i'; rename one of them"),
    "other order": (
        File("[0, j, 0, i, 0]"),
        "domain has 'i' where the schedule has loop 'j'; its dimensions are w",
    ),
    "other name": (File("[0, i, 0, k, 0]"), "domain has 'j' where the schedule has loop 'k'"),
    "no dimension": (File("[0, i, 0, j, 0, k, 0]"), "needs a dimension for each of the 2 axes and 3 loops"),
    "one place": (
        File(more=entry("name: b", "[0, i, 0, j, 0]", "i, j")),
        r"\[0, i, 0, j, 0\], where statement 'add'",
    ),
    "a loop's place": (File(more=entry("name: b", "[0]")), r"statement 'b' .* is \[0\], where loop 'i' stands; number"),
    "two loops": (File(more=entry("name: b", "[0, k, 1]", "k")), r"loop 'k' .* is \[0\], where loop 'i' stands"),
    "barrier": (
        File(more="barriers:\n" + entry("kind: local", "[0]")),
        r"barrier 0 .* is \[0\], where loop 'i' stands",
    ),
    "averages": (File(statement="  averages: {m: 5/6}\n"), "averages name 'm'; name loops of its schedule, i, j"),
    "host loops": (File(launch=", host_loops: [j]"), "does not begin with the host_loops of its launch, j"),
    "unrolled": (File(launch=", unrolled: [k]"), "unrolled names 'k', which is no loop of its statements"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_orders_and_loops_that_make_no_sense_are_refused(case: str) -> None:
    file, message = REFUSED[case]
    with pytest.raises(UnsupportedKernelError, match=message) as caught:
        scop_from_yaml(file.text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "file",
    [
        File(more=entry("name: behind", "[1]")),
        File(more=entry("name: a loop of the same name behind", "[1, i, 0]", "i")),
        File(more=entry("name: in the same loop", "[0, i, 1, j, 0]", "i, j")),
        File(more=entry("name: no order", "[]")),
        File(more=entry("name: an own loop", "[1]", "k")),
        File(more=entry("name: add.1", "[0, i, 0, j, 0]", "i, j")),
        File(launch=", host_loops: [i], unrolled: [j]"),
        File("[0, lane, 0, j, 0]", "lane, j"),
        File(statement="  averages: {j: 5/6}\n"),
    ],
)
def test_what_makes_sense_is_read(file: File) -> None:
    assert scop_from_yaml(file.text).statements[0].name == "add"
