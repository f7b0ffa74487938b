"""``perflex gate``: conditions, baselines, exit codes, and what each bad input says."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from perflex import Calibration
from support.source_kernels import AXPY

WORD = "axpy.cl:axpy<<<n/128,128>>>"
AT = ("-m", "V100", "n=4194304")
# Reads every second line of the caches, or more arithmetic.
STRIDED, LONGER = AXPY.replace("x[i]", "x[16 * i]"), AXPY.replace("a * x[i]", "a * x[i] * x[i]")
LOOPY = """
import loopy as lp
import numpy as np


def kernel():
    made = lp.make_kernel("{[i]: 0 <= i < n}", "y[i] = 2*x[i]", lang_version=(2018, 2))
    made = lp.add_dtypes(made, {"x": np.float32, "y": np.float32})
    return lp.split_iname(made, "i", 64, outer_tag="g.0", inner_tag="l.0")
"""


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("axpy.cl").write_text(AXPY)
    return tmp_path


@pytest.fixture
def judged(run):
    """Judge the kernel; give the exit code, and the verdict of each condition."""

    def judged(*words):
        code, out, err = run("gate", WORD, *AT, *words, "--json")
        assert err == ""
        return code, [one["verdict"] for one in json.loads(out)["conditions"]]

    return judged


def test_baseline(root, run, judged):
    conditions = "time<=1.03, dram_bytes<=1.0, f_op_float32_madd<=1, dram_bytes<=64MiB, time<=1ms, exact"
    code, out, err = run("gate", WORD, *AT, conditions, "--update")
    assert (code, out, err) == (0, "perflex-baseline.yaml\n", "")
    assert judged(conditions) == (0, ["holds"] * 6)
    # Names and comments are no change.
    Path("axpy.cl").write_text("// new\n" + re.sub(r"\bx\b", "values", AXPY))
    assert judged(conditions) == (0, ["holds"] * 6)
    Path("axpy.cl").write_text(STRIDED)
    assert judged(conditions) == (1, ["broken", "broken", "holds", "broken", "holds", "holds"])
    Path("axpy.cl").write_text(AXPY.replace("x[i];", "x[i] + x[i + 1];"))
    # By some per cent: that is below what the model knows of a change.
    assert judged("time<=1.0, exact") == (2, ["cannot tell", "holds"])


def test_times_with_units_have_their_own_intervals(root, run, judged):
    (one,) = json.loads(run("gate", WORD, *AT, "time<=1s", "--json")[1])["conditions"]
    value, low, high = one["value"], one["low"], one["high"]
    assert 1e-6 < low < value < high < 1e-3
    for limit, code, verdict in ((high, 0, "holds"), (value, 0, "holds"), (low * 1.01, 2, "cannot tell")):
        assert judged(f"time<={limit * 1e6 * 1.0001}us") == (code, [verdict])
    assert judged(f"time<={low * 1e6 * 0.99}us") == (1, ["broken"])
    assert judged(f"time>={low * 1e6}us, time<{value * 1e6 * 1.001}us") == (0, ["holds", "holds"])


def test_what_compiled_code_takes(root, run, judged):
    Path("k.cu").write_text("__global__ void k(float *y, int n) { y[blockIdx.x * 128 + threadIdx.x] *= 2; }")
    assert run("gate", "k.cu:k<<<n/128,128>>>", "-m", "H100-SXM", "n=4096", "registers<=32, spills==0")[0] == 0
    assert run("gate", "k.cu:k<<<n/128,128>>>", "-m", "H100-SXM", "n=4096", "registers<=2")[0] == 1
    # OpenCL C is compiled as CUDA C++.
    assert run("gate", WORD, "-m", "H100-SXM", "n=4096", "spills==0")[0] == 0


def test_markdown(root, run):
    assert run("gate", WORD, *AT, "time<=1us, exact", "--markdown", "comment.md")[0] == 1
    first, head, _, *rows = Path("comment.md").read_text().splitlines()
    assert first == "<!-- perflex -->"
    assert head.startswith("| kernel | sizes | condition | verdict |")
    assert rows[0].startswith(f"| `{WORD}` | n=4194304 | `time<=1us` | broken |")


def test_bounds_are_not_exact(root, run, judged):
    Path("axpy.cl").write_text(AXPY.replace("if (i < n)", "if (i < n && x[i] > 0)"))
    code, verdicts = judged("exact")
    assert (code, verdicts) == (1, ["broken"])


def test_several_kernels(root, run):
    Path("longer.cl").write_text(LONGER.replace("axpy", "longer"))
    words = ("gate", WORD, "missing.cl:k<<<n/128,128>>>", "longer.cl:longer<<<n/128,128>>>", *AT)
    code, out, err = run(*words, "exact")
    # The others are judged all the same, and nothing passes.
    assert (code, out.count("holds")) == (2, 2)
    assert re.fullmatch(r"perflex: error: missing\.cl:k<<<.*: .*missing\.cl.*\n", err)
    assert run(*words, "exact", "--update")[0] == 2
    assert not Path("perflex-baseline.yaml").exists()


def test_updates_keep_other_kernels(root, run, judged):
    assert run("gate", WORD, *AT, "time<=1", "--update")[0] == 0
    assert run("gate", WORD, "-m", "V100", "n=1024,2048", "time<=1", "--update")[0] == 0
    assert judged("time<=1") == (0, ["holds"])
    assert Path("perflex-baseline.yaml").read_text().count("kernel:") == 3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("time<=fast",), "cannot read the condition 'time<=fast'; write conditions such as"),
        (("time=1",), "cannot read the condition 'time=1'"),
        (("time<=1KiB",), "has no unit 'KiB'"),
        (("f_op_float33_add<=1",), "f_op_float33_add"),
        (("time<=1", "--baseline", "none.yaml"), "there is no baseline none.yaml; make it with --update"),
        (("time<=1", "--update", "--against", "HEAD"), "--update and --against"),
        (("m=1", "time<=1ms"), "the kernel has no size m"),
    ],
)
def test_bad_input(root, refused, words, said):
    assert said in refused("gate", WORD, *AT, *words)


def test_bad_words(root, refused, calibration):
    assert "name a kernel before the conditions" in refused("gate", "time<=1")
    assert "is no calibration" in refused("gate", WORD, "n=64", "exact")
    assert "missing.cl" in refused("gate", "missing.cl:k<<<1,1>>>", *AT, "exact")


def test_bad_baselines(root, refused, run, calibration):
    assert run("gate", WORD, *AT, "time<=1", "--update")[0] == 0
    file, judge = Path("perflex-baseline.yaml"), ("gate", WORD)
    good = file.read_text()
    assert "has it at other sizes, not at n=1024" in refused(*judge, "-m", "V100", "n=1024", "time<=1")
    assert "was made with another machine" in refused(*judge, "-m", "A40", "n=4194304", "time<=1")
    assert "was made with other caches" in refused(*judge, *AT, "--caches", "cold", "time<=1")
    own = Path("own.yaml")
    Calibration.load("general_gpu_h100_cuda").save(own)
    assert "was made with another calibration" in refused(*judge[:1], own, WORD, *AT, "time<=1")
    Path("other.cl").write_text(AXPY)
    assert "lacks it; add it" in refused("gate", "other.cl:axpy<<<n/128,128>>>", *AT, "time<=1")
    for text, said in (
        (re.sub("perflex: .*", "perflex: 0.0.1", good), "was made with perflex 0.0.1"),
        (good.replace("baseline/1", "baseline/2"), "version '2' of perflex-baseline"),
        (good.replace("seconds:", "minutes:"), "line 11, field kernels[0].minutes: there is no such field"),
        (good[:40], "perflex-baseline.yaml"),
    ):
        file.write_text(text)
        assert said in refused(*judge, *AT, "time<=1")
    file.write_text(re.sub(" +f_peak_dram.*\n", "", good))
    code, out, _ = run(*judge, *AT, "time<=1, dram_bytes<=1")
    assert code == 2
    assert out.count("cannot tell") == 2
    assert "the baseline has no f_peak_dram of it" in out


@pytest.fixture
def repository(root):
    """A repository whose first revision has a fast kernel, a header of its own, and Python files."""
    Path("size.h").write_text("#define STRIDE 1\n")
    included = '#include "size.h"\n#include "factor.tpp"\n#include "built/made.h"\n'
    Path("axpy.cl").write_text(included + AXPY.replace("x[i]", "x[STRIDE * FACTOR * MADE * i]"))
    made = "import {0}\n\n\ndef kernel():\n    return {0}.kernel()\n"
    Path("kernels.py").write_text(made.format("parts"))
    Path("parts.py").write_text(LOOPY)
    # Neither a suffix of sources, nor in any revision.
    Path("factor.tpp").write_text("#define FACTOR 1\n")
    Path(".gitignore").write_text("built\n")
    Path("built").mkdir()
    Path("built/made.h").write_text("#define MADE 1\n")
    git("init", "-q")
    commit()
    Path("size.h").write_text("#define STRIDE 16\n")
    Path("parts.py").write_text(LOOPY.replace("2*", "x[i]*x[i]*"))
    commit()
    return root


def git(*words):
    subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], check=True)


def commit():
    git("add", "-A")
    git("commit", "-q", "-m", "next")


@pytest.mark.machine
def test_revisions(repository, run, judged, monkeypatch):
    assert judged("time<=1", "--against", "HEAD") == (0, ["holds"])
    assert judged("time<=1, f_op_float32_madd<=1", "--against", "HEAD~1") == (1, ["broken", "holds"])
    # From any folder, and with what is not committed.
    Path("below").mkdir()
    Path("axpy.cl").write_text(AXPY)
    monkeypatch.chdir("below")
    words = ("gate", f"../{WORD}", *AT, "time>=1, time<=1", "--against")
    assert [run(*words, revision)[0] for revision in ("HEAD~1", "HEAD")] == [0, 1]
    # What is staged, and the index, stay as they are.
    assert subprocess.run(["git", "status", "--short"], capture_output=True, check=True).stdout == b" M ../axpy.cl\n"


@pytest.mark.machine
def test_modules_beside_are_those_of_the_revision(repository, run, monkeypatch):
    for path in ([], [str(repository)]):
        monkeypatch.setattr(sys, "path", path + sys.path)
        code, out, err = run("diff", "kernels.py:kernel", "-m", "V100", "n=4096", "--against", "HEAD~1", "--json")
        assert code == 0, err
        counts = {row["name"]: (row["old"], row["new"]) for row in json.loads(out)[0]["counts"]}
        assert counts["f_op_float32_mul"] == (128, 256)


@pytest.mark.machine
def test_bad_revisions(repository, refused, run, monkeypatch):
    judge = ("gate", WORD, *AT, "time<=1", "--against")
    assert "--against: " in refused(*judge, "nowhere")
    assert "--against: " in refused(*judge, "--help")
    Path("new.cl").write_text(AXPY)
    said = refused("gate", "new.cl:axpy<<<n/128,128>>>", *AT, "time<=1", "--against", "HEAD")
    assert "there is no new.cl at revision HEAD" in said
    # A kernel that was not valid before: it is refused in one of the revisions only.
    Path("axpy.cl").write_text(AXPY.replace("get_global_id(0)", "nothing()"))
    commit()
    Path("axpy.cl").write_text(AXPY)
    assert "at revision HEAD: axpy.cl" in refused(*judge, "HEAD")
    # A file outside of the repository.
    Path("../outside.cl").write_text(AXPY)
    said = refused("gate", "../outside.cl:axpy<<<n/128,128>>>", *AT, "time<=1", "--against", "HEAD")
    assert "--against: fatal: not a git repository" in said
    monkeypatch.setenv("PATH", "")
    assert "git" in refused("gate", f"{repository}/{WORD}", *AT, "time<=1", "--against", "HEAD")
