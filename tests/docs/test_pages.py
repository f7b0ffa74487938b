"""What the documentation shows runs: Python blocks and commands of each page, in one folder, in order."""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.pages import TOP, blocks, commands, is_notebook, pages, python_source
from support.saved_calibrations import saved_text

# The calibration that the first pages of the site make, and others use.
CALIBRATION = "matmul.yaml"
# Blocks that need a GPU, a cluster, network, or that would change the environment. New ones need a good reason.
MOST_UNTESTED = 29
SECONDS = 900

ALL_BLOCKS = [block for page in pages() for block in blocks(page)]


def runs(page):
    shown = [block for block in blocks(page) if not block.untested and not block.is_cell]
    return any(block.language == "python" or any(c.startswith("perflex") for c in commands(block)) for block in shown)


def name_of(page):
    return str(page.relative_to(TOP))


def page_cases():
    return [pytest.param(page, id=name_of(page)) for page in pages() if runs(page)]


def run_in(folder, words):
    # What a command writes into a home folder stays in the test's; caches are kept.
    caches = os.environ.get("XDG_CACHE_HOME", str(Path("~/.cache").expanduser()))
    environment = {**os.environ, "HOME": str(folder), "XDG_CACHE_HOME": caches, "MPLBACKEND": "agg"}
    done = subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=SECONDS
    )
    assert done.returncode == 0, f"{done.stdout[-1000:]}\n{done.stderr[-5000:]}"


@pytest.mark.machine
@pytest.mark.slow
@pytest.mark.parametrize("page", page_cases())
def test_blocks_run(page, tmp_path):
    shutil.copytree(TOP / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    text = "\n".join(block.code for block in blocks(page) if not block.untested and not block.is_cell)
    if "perflex store" in text:
        # A store is there once something was counted.
        run_in(tmp_path, [sys.executable, "-m", "perflex", "features", "examples/matmul.py:naive", "n=64"])
    if CALIBRATION in text:
        shipped = saved_text("matmul_sq_amd_epyc_4cores_intel_opencl")
        (tmp_path / CALIBRATION).write_text(shipped, encoding="utf-8")
    run_in(tmp_path, [sys.executable, str(TOP / "tests/support/run_page.py"), str(page)])


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_python_compiles(page):
    for block in blocks(page):
        if block.language == "python":
            ast.parse(python_source(block), f"{page}, block at line {block.line}")


def test_notebooks_say_which_kernel_runs_them():
    with_cells = {page for page in pages() if any(block.is_cell for block in blocks(page))}
    assert [name_of(page) for page in sorted(with_cells) if not is_notebook(page)] == []


def test_untested_blocks_are_few_and_say_why():
    untested = [block for block in ALL_BLOCKS if block.marked and not block.for_triton]
    assert [block.place for block in untested if len(block.reason) < 5] == []
    assert len(untested) <= MOST_UNTESTED, "\n".join(f"{block.place}: {block.reason}" for block in untested)


def test_blocks_have_no_other_words_behind_the_language():
    known = {"python", "console"}
    assert [b.place for b in ALL_BLOCKS if b.language in known and b.rest and not b.marked] == []


def test_consoles_show_prompts():
    """Without a prompt, a command would pass for output, and would not be tested."""
    assert [b.place for b in ALL_BLOCKS if b.language == "console" and not commands(b)] == []


PAGE = """\
# A page

````{note}
```python
x = 1
```
````

```{code-cell}
:tags: [hide-output]

%time
!perflex devices
y = 2
```

```console no-test: needs a GPU
$ perflex devices
```

```console
$ perflex predict \\
>     here.yaml
Output
$ ls
```

```python
# kernel.py
assert x == 1
raise SystemExit(3)
```
"""


def test_blocks_of_a_page(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    note, cell, untested, console, last = blocks(page)
    assert (note.language, note.code, note.line) == ("python", "x = 1\n", 4)
    assert cell.is_cell
    assert python_source(cell).split() == ["pass", "pass", "y", "=", "2"]
    assert commands(cell) == ["perflex devices"]
    assert (untested.untested, untested.reason) == (True, "needs a GPU")
    assert commands(console) == ["perflex predict here.yaml", "ls"]
    assert last.file_name == "kernel.py"


@pytest.mark.machine
def test_a_page_that_fails_is_seen(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(PAGE.replace("$ perflex predict \\\n>     here.yaml\n", ""))
    words = [sys.executable, str(TOP / "tests/support/run_page.py"), str(page)]
    assert subprocess.run(words, cwd=tmp_path, capture_output=True, check=False).returncode == 3
    assert (tmp_path / "kernel.py").is_file()
    page.write_text("```console\n$ perflex predict missing.yaml examples/matmul.py:naive n=16\n```\n")
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "ended with 2" in done.stderr
