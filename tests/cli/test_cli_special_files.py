"""Devices, pipes, full disks and odd files on the command line: one line of error each, and nothing waits."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCOP = """\
schema: perflex-scop/2
name: copy
parameters: [n]
launches:
- {groups: [n], items: [32]}
arrays:
- {name: a, space: global, dtype: float32, shape: [n], strides: [1]}
statements:
- name: s
  domain: "[n] -> { [g, l] : 0 <= g < n and 0 <= l < 32 }"
  operations: [{kind: add, dtype: float32, count: 2}]
"""


@pytest.mark.parametrize("what", ["/dev/zero", "pipe"])
@pytest.mark.parametrize(
    "command",
    [
        "features {}.yaml n=64", "predict {}.yaml {}.yaml n=64", "machine show {}.yaml", "calibrate {}.yaml -o c.yaml",
        "prune {}.yaml space.yaml",
        "diagnose {}.yaml", "features {}.py:kernel",
        "volumes {}.yml --machine V100",
        "store list --store {}.sqlite", "store verify --store {}.sqlite", "store export --store {}.sqlite",
    ],
)  # fmt: skip
def test_inputs_that_are_no_regular_files(command, what, tmp_path, refused, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for suffix in ("yaml", "yml", "json", "json.gz", "csv", "py", "sqlite"):
        path = tmp_path / f"given.{suffix}"
        if what == "pipe":
            os.mkfifo(path)
        else:
            path.symlink_to(what)
    message = refused(*command.format(*["given"] * 2).split())
    assert "regular file" in message or "there is no file" in message
    assert not (tmp_path / "c.yaml").exists()


@pytest.mark.parametrize(
    ("found", "instead", "message"),
    [
        ("[32]", "[!!bool x]", "line 5: the text 'x' does not fit its tag"),
        ("[32]", f"[{'9' * 300}]", "line 5, field launches[0].items[0]: it must be a number <= 2147483647, not 999"),
        ("[32]", f"[{'9' * 5000}]", "line 5: a whole number of more than 308 digits"),
        ("[32]", f"[0x{'f' * 5000}]", "line 5: a whole number of more than 308 digits"),
        ("count: 2", "count: 1:30:20.5", "field statements[0].operations[0].count: a whole number must stand here"),
        ("name: copy", f"name: {'[' * 5000}", "is nested too deeply"),
        ("[n] -> {", f"[n] -> {{ {'(' * 200}", "nested more than 100 deep"),
        ("< n and", "< n^99999999 and", "it is not isl notation"),
        ("shape: [n]", "shape: ['n^9999999']", "field arrays[0].shape[0]: it is not isl notation, or takes isl too"),
        ("shape: [n]", "shape: ['[m] -> { m }']", "field arrays[0].shape[0]: 'm' is none of the"),
        ("dtype: float32,", "dtype: float33,", "a numpy type such as float32 must stand there, not 'float33'"),
        *(
            ("[32]}", f"[32], loops: [{{name: k, average: {number}}}]}}", "average: a positive number such as 5/6")
            for number in ("1.0e999999999", "1/0")
        ),
    ],
)  # fmt: skip
def test_odd_scops(found, instead, message, tmp_path, shown, refused):
    path = tmp_path / "k.yaml"
    path.write_text(SCOP)
    shown("features", path, "n=64")
    assert SCOP.count(found) >= 1
    path.write_text(SCOP.replace(found, instead, 1))
    told = refused("features", str(path), "n=64")
    assert message in told
    assert str(path) in told


@pytest.mark.parametrize(
    ("size", "message"),
    [
        (10**300, "size n must be a whole number below 2**63"),
        (2**53 + 1, "give a smaller one"),
        (10**15 - 1, "would have more than 2**62 bytes; give smaller sizes"),
    ],
)
def test_sizes_beyond_any_memory(size, message, tmp_path, refused):
    path = tmp_path / "k.yaml"
    path.write_text(SCOP.replace("shape: [n]", "shape: ['n*n']"))
    assert message in refused("features", str(path), f"n={size}")


@pytest.mark.parametrize("what", ["/dev/null", "pipe"])
@pytest.mark.parametrize("command", ["calibrate madd_only -o {}", "transfer a.yaml --machine V100 -o {}"])
def test_a_calibration_goes_into_a_regular_file(command, what, tmp_path, refused, monkeypatch):
    """It is refused before anything is measured for it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("perflex.calibration.ready.ready_model", lambda *_: pytest.fail("it goes on"))
    if what == "pipe":
        os.mkfifo("pipe")
    message = refused(*command.format(what).split())
    assert f"cannot write {what}: it is a device or a pipe" in message


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("words", [["list", "machines"], ["list", "machines", "--json"], ["--help"]])
def test_a_full_standard_output(words):
    command = [sys.executable, "-m", "perflex", *words]
    with Path("/dev/full").open("w") as out:
        done = subprocess.run(command, check=False, stdout=out, stderr=subprocess.PIPE, text=True, timeout=120)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert done.stderr.startswith("perflex: error: cannot write the output: No space left on device")


@pytest.mark.slow
def test_an_output_without_the_signs_of_a_text(tmp_path):
    path = tmp_path / "k.yaml"
    path.write_text(SCOP.replace("name: copy", "name: \u00b5"))
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "perflex", "features", str(path), "n=64"]
    done = subprocess.run(command, check=False, capture_output=True, env=environment, timeout=120)
    assert (done.returncode, done.stderr) == (0, b"")
    assert rb"kernel \xb5 at n=64" in done.stdout
