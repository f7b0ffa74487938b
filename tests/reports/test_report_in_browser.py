"""The page of a report in a real browser: no error, tables are sorted, nothing is wider than the window."""

import json
import shutil
import subprocess

import pytest

from perflex import load_calibration
from perflex.reports.make import write_report
from support.report_files import evaluation_folder, pruning_content, roofline_content

BROWSER = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), ""
)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not BROWSER, reason="no Chromium on this machine (Debian: apt-get install chromium)"),
]
# Clicks on a heading, and says what the page looks like then.
PROBE = """
<script>
window.addEventListener("load", () => {
  const found = { overflow: document.documentElement.scrollWidth - innerWidth, orders: [], wide: [] };
  const tables = [...document.querySelectorAll("table.sortable")];
  const table = tables.find((one) => one.caption.textContent.startsWith("WANTED"));
  const heads = [...table.tHead.rows[0].cells];
  const column = heads.findIndex((head) => head.textContent.startsWith("HEADING"));
  for (let clicks = 0; clicks < 2; ++clicks) {
    heads[column].querySelector("button").click();
    found.orders.push([heads[column].getAttribute("aria-sort"),
      [...table.tBodies[0].rows].map((row) => row.cells[column].textContent)]);
  }
  for (const svg of document.querySelectorAll("figure svg")) {
    const box = svg.getBoundingClientRect();
    const edge = Math.max(...[...svg.querySelectorAll("text")].map((text) => text.getBoundingClientRect().right));
    if (edge > box.right + 1 || box.right > innerWidth) found.wide.push(edge - box.right);
  }
  const note = document.createElement("pre");
  note.id = "probe";
  note.textContent = JSON.stringify(found);
  document.body.append(note);
});
</script>
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    load_calibration("matmul_sq_amd_epyc_4cores_pocl").save(folder / "c.yaml")
    long_name = "variant_" + 12 * "of_many_words_" + "<end>"
    for name, content in (("p.json", pruning_content(long_name)), ("r.json", roofline_content())):
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
    evaluation_folder(folder / "e", "a device with quite a long name (Portable Computing Language, and more)")
    write_report([folder / name for name in ("c.yaml", "p.json", "e", "r.json")], folder / "page.html")
    return folder / "page.html"


def opened(page, width, table, heading):
    """Return what the probe says of the page, and the browser's messages."""
    text = page.read_text(encoding="utf-8")
    assert text.count("</body>") == 1
    probe = PROBE.replace("WANTED", table).replace("HEADING", heading)
    probed = page.with_name("probed.html")
    probed.write_text(text.replace("</body>", f"{probe}</body>"), encoding="utf-8")
    done = subprocess.run(
        [
            BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={page.parent / 'profile'}",
            "--enable-logging=stderr", "--v=0", f"--window-size={width},900", "--virtual-time-budget=5000",
            "--dump-dom", probed.as_uri(),
        ],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    (shown,) = [piece.partition("</pre>")[0] for piece in done.stdout.split('<pre id="probe">')[1:]]
    return json.loads(shown.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")), done.stderr


@pytest.mark.parametrize("width", [1000, 500])
def test_nothing_is_wider_than_the_window_and_no_error_is_told(page, width):
    found, messages = opened(page, width, "Kept variants", "rank")
    assert found["overflow"] <= 0
    assert found["wide"] == []
    assert [line for line in messages.splitlines() if ":CONSOLE" in line] == []


def test_tables_are_sorted_by_numbers_and_by_words(page):
    found, _ = opened(page, 1000, "Measurement kernels", "measured")
    (first, rising), (second, falling) = found["orders"]
    assert (first, second) == ("ascending", "descending")
    assert len(rising) == len(load_calibration("matmul_sq_amd_epyc_4cores_pocl").table)
    numbers = [float(text) for text in rising]
    assert numbers == sorted(numbers)
    # By numbers, not by the texts that stand for them.
    assert rising != sorted(rising)
    assert falling == rising[::-1]
    found, _ = opened(page, 1000, "Models and baselines", "predicted by")
    assert [names for _, names in found["orders"]] == [
        ["linear (used)", "overlap", "roofline"],
        ["roofline", "overlap", "linear (used)"],
    ]


def test_empty_cells_come_last_either_way(page):
    found, _ = opened(page, 1000, "Dropped variants", "measured")
    assert [texts[-1] for _, texts in found["orders"]] == ["", ""]
    assert [texts[0] for _, texts in found["orders"]] == ["1.00", "6.50"]
