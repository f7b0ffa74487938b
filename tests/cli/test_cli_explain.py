"""``perflex explain``: what it prints, warnings as compilers write them, SARIF, the page, and bad input."""

import json
import re
from pathlib import Path

import jsonschema
import pytest
from IPython.core.error import UsageError

import perflex
from perflex.cli.notebook import explain_cell
from perflex.errors import PerflexError

SCHEMA = json.loads((Path(__file__).parents[1] / "data" / "sarif-2.1.0.json").read_text(encoding="utf-8"))
# As the problem matcher of Visual Studio Code for GCC reads a line: file, line, column, severity, text.
MATCHER = re.compile(r"^(.*?):(\d+):(\d*):?\s+(?:fatal\s+)?(warning|error):\s+(.*)$")
SOURCE = """// Scale a matrix.
__global__ void scale(float *y, const float *x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  int j = blockIdx.y;
  float v = x[i * n + j];
  for (int k = 0; k < 8; k++) v = 2.0 * v + 1.0f;
  y[i * n + j] = v;
}
"""
LAUNCH = "scale<<<(n/256, n), 256>>>"


@pytest.fixture
def words(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("scale.cu").write_text(SOURCE, encoding="utf-8")
    return ["explain", "--machine", "RTX-3090", f"scale.cu:{LAUNCH}", "n=4096"]


def test_limits_and_findings_are_printed(run, words):
    code, out, _ = run(*words)
    assert code == 0
    for text in ("L2 bandwidth", "line 5: 32 sectors per request where 4 would do (x) [coalescing]", "[float64]"):
        assert text in out
    # Two lines have one cure.
    assert out.count("cure: ") == 2
    assert "no flaws found" not in out


def test_the_readme_shows_what_is_printed(run, monkeypatch):
    monkeypatch.chdir(Path(__file__).parents[2])
    readme = Path("README.md").read_text(encoding="utf-8")
    command = re.search(r"\$ perflex (explain .*)", readme)[1]
    code, out, _ = run(*command.split())
    assert code == 0
    assert f"```text\n{out}```" in readme


def test_warnings_are_those_of_compilers(run, words):
    code, out, _ = run(*words, "--warnings")
    assert code == 0
    found = [MATCHER.fullmatch(line).groups() for line in out.splitlines()]
    assert sorted(one[:4] for one in found) == [
        ("scale.cu", str(line), str(SOURCE.splitlines()[line - 1].index(what) + 1), "warning")
        for line, what in ((5, "x["), (6, "2.0"), (7, "y["))
    ]
    assert all(re.search(r" \[(coalescing|float64)\]$", text) for *_, text in found)


def test_sarif_is_valid(run, words):
    code, out, _ = run(*words, "--sarif", "found.sarif")
    assert (code, out.splitlines()[-1]) == (0, "found.sarif")
    log = json.loads(Path("found.sarif").read_text(encoding="utf-8"))
    jsonschema.validate(log, SCHEMA)
    (one,) = log["runs"]
    assert [rule["id"] for rule in one["tool"]["driver"]["rules"]] == ["coalescing", "float64"]
    places = [result["locations"][0]["physicalLocation"] for result in one["results"]]
    assert {place["artifactLocation"]["uri"] for place in places} == {"scale.cu"}
    assert sorted(place["region"]["startLine"] for place in places) == [5, 6, 7]


def test_findings_of_headers_are_in_headers(run, words):
    Path("include").mkdir()
    line = SOURCE.splitlines()[5].strip()
    Path("include/steps.h").write_text(
        f"__device__ float steps(float v) {{\n  {line}\n  return v;\n}}\n", encoding="utf-8"
    )
    Path("scale.cu").write_text('#include "steps.h"\n' + SOURCE.replace(line, "v = steps(v);"), encoding="utf-8")
    code, out, _ = run(*words, "-I", "include", "--warnings")
    assert code == 0
    assert any(each.startswith("include/steps.h:2:") and each.endswith("[float64]") for each in out.splitlines())


def test_findings_of_loopy_kernels_are_at_their_functions(run, monkeypatch):
    monkeypatch.chdir(Path(__file__).parents[2])
    code, out, _ = run("explain", "--machine", "V100", "examples/transposes.py:naive", "n=1024", "--warnings")
    number = next(
        number
        for number, line in enumerate(Path("examples/transposes.py").read_text(encoding="utf-8").splitlines(), 1)
        if line.startswith("def naive(")
    )
    assert (code, out.startswith(f"examples/transposes.py:{number}:5: warning: 32 sectors per request")) == (0, True)


@pytest.mark.parametrize("path", ["with blank/ä.cu", "/elsewhere/a.cu"])
def test_places_in_sarif_are_references(path, words, run):
    file = Path(path.lstrip("/")).resolve()
    file.parent.mkdir()
    file.write_text(SOURCE, encoding="utf-8")
    given = str(file) if path.startswith("/") else path
    run(*words[:3], f"{given}:{LAUNCH}", "n=4096", "--sarif", "found.sarif")
    log = json.loads(Path("found.sarif").read_text(encoding="utf-8"))
    uri = log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert uri == {"with blank/ä.cu": "with%20blank/%C3%A4.cu", "/elsewhere/a.cu": "elsewhere/a.cu"}[path]


def test_a_page_shows_lines_with_bars(run, words):
    code, out, _ = run(*words, "--out", "page")
    assert (code, out.splitlines()[-1]) == (0, "page/report.html")
    page = Path("page/report.html").read_text(encoding="utf-8")
    (first,) = re.findall(
        r'<i class="first" style="width: [\d.]+%"></i></span>\s*</td>.*?<pre>(.*?)</pre>', page, re.DOTALL
    )
    assert re.sub("<.*?>", "", first).strip() == "y[i * n + j] = v;"
    assert '<span class="code-mf">2.0</span>' in page
    assert "Scale a matrix" not in page


def test_two_sizes_are_two_results(run, words):
    code, out, _ = run(*words[:-1], "n=4096,8192", "--json")
    assert code == 0
    assert [one["sizes"] for one in json.loads(out)] == [{"n": 4096}, {"n": 8192}]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (["scale.cu:none<<<n, 256>>>", "n=4096"], "has no kernel"),
        (["gone.cu:scale<<<n, 256>>>", "n=4096"], "gone.cu"),
        ([f"scale.cu:{LAUNCH}", "m=4096"], "no size m"),
        ([f"scale.cu:{LAUNCH}"], "n"),
        ([f"scale.cu:{LAUNCH}", "n=4096", "--sarif", "no/folder.sarif"], "no/folder.sarif"),
    ],
)
def test_bad_input(run, words, wrong, message):
    code, out, err = run(*words[:3], *wrong)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_flaws_on_cpus_are_not_looked_for(run, words):
    code, out, _ = run("explain", "matmul_sq_amd_epyc_4cores_pocl", *words[3:])
    assert code == 0
    assert "flaws are looked for on GPUs" in out


def test_a_cell_is_explained():
    found = explain_cell(f"-m RTX-3090 '{LAUNCH}' n=4096", SOURCE)
    assert {one.kind for one in found.findings} == {"coalescing", "float64"}
    assert "code-mf" in found._repr_html_()


@pytest.mark.parametrize(
    "line", ["", "-m", "-m V100 scale n=4096", f"-m V100 '{LAUNCH}' n=x", "-m V100 'scale<<<n' n=1"]
)
def test_cells_that_cannot_be_read(line):
    with pytest.raises(PerflexError):
        explain_cell(line, SOURCE)


def test_the_magic_tells_errors_in_a_line():
    class Shell:
        def register_magic_function(self, function, kind, name):
            self.found, self.registered = function, (kind, name)

    shell = Shell()
    perflex.load_ipython_extension(shell)
    assert shell.registered == ("cell", "perflex")
    assert shell.found(f"-m RTX-3090 '{LAUNCH}' n=4096", SOURCE).findings
    with pytest.raises(UsageError, match="write %%perflex"):
        shell.found("--help", SOURCE)
