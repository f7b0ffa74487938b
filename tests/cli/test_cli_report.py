"""``perflex report`` reads what roofline prints; of what prune prints, see its tests."""

import json
from pathlib import Path

from support.html_structure import checked
from support.report_files import roofline_content

TILED = f"{Path(__file__).parents[2] / 'examples' / 'transposes.py'}:tiled"


def test_what_roofline_prints_is_read(shown, content, tmp_path):
    printed = content("roofline", TILED, "n=1024", "--machine", "V100", "--time", "bound")
    (tmp_path / "r.json").write_text(json.dumps(printed), encoding="utf-8")
    # The files of tests of reports are made by hand.
    assert set(roofline_content()) == set(printed)
    assert set(roofline_content()["kernels"][0]) - {"f_txn_x"} == set(printed["kernels"][0])
    out = shown("report", tmp_path / "r.json", "--out", tmp_path / "page.html")
    assert out.strip() == str(tmp_path / "page.html")
    found = checked((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert found.table("Kernels and their limits").column("limiter") == ["L1"]
    assert found.notices == [("remark", "Remark: times are the least that the ceilings allow; nothing was measured")]
