"""Python files that commands execute: what they may import, and how files of one name are told apart."""

import pickle
import sys

import pytest

from perflex.cli.arguments import is_space, split_words
from perflex.cli.kernel_files import load_kernel, load_kernels, load_variants

KERNEL = """import loopy as lp
import numpy as np
from {beside} import TERMS


def product():
    kernel = lp.make_kernel("{{[i]: 0<=i<n}}", "b[i] = " + "*".join(["a[i]"] * TERMS), lang_version=(2018, 2))
    kernel = lp.add_dtypes(kernel, {{"a": np.float32, "b": np.float32}})
    return lp.split_iname(kernel, "i", 32, outer_tag="g.0", inner_tag="l.0")
"""


def folder(place, terms, beside="common"):
    place.mkdir()
    (place / f"{beside}.py").write_text(f"TERMS = {terms}\n")
    (place / "kernel.py").write_text(KERNEL.format(beside=beside))
    return place


def products_of(kernel):
    from perflex.features import kernel_feature_values

    return float(kernel_feature_values(["f_op_float32_mul"], kernel, {"n": 32})["f_op_float32_mul"])


def test_files_of_one_name_import_what_lies_beside_each(tmp_path):
    few, many = folder(tmp_path / "few", 2), folder(tmp_path / "many", 6)
    kernels = [load_kernel(f"{place}/kernel.py:product") for place in (few, many, few)]
    # Of 32 work-items, which are one sub-group, each has one product less than there are terms.
    assert [products_of(kernel) for kernel in kernels] == [1, 5, 1]


def test_functions_of_files_of_one_name_stay_their_own(tmp_path):
    places = [folder(tmp_path / name, 2) for name in ("one", "other")]
    functions = [load_kernels(f"{place}/kernel.py")["product"] for place in places]
    # By name and module, as executors send them.
    assert [pickle.loads(pickle.dumps(function)) for function in functions] == functions


def test_the_path_keeps_its_entries_and_ends_with_the_folder_of_the_last_file(tmp_path, monkeypatch):
    here, few, many = (folder(tmp_path / name, 2, "on_path") for name in ("here", "few", "many"))
    monkeypatch.setattr(sys, "path", [str(here), *sys.path])
    for place in (here, few, many):
        load_kernel(f"{place}/kernel.py:product")
    assert (sys.path[0], sys.path[-1]) == (str(here), str(many))
    assert str(few) not in sys.path


def test_variants_import_what_lies_beside_them_when_they_are_built(tmp_path):
    (tmp_path / "late_import.py").write_text("STEP = 2\n")
    (tmp_path / "space.py").write_text(
        "from perflex import VariantSpace\n\n\ndef build(tile):\n    from late_import import STEP\n"
        "    return tile * STEP\n\n\nSPACE = VariantSpace(build, {'tile': (1, 2)})\n"
    )
    assert load_variants(f"{tmp_path}/space.py:SPACE").kernel({"tile": 2}) == 4


@pytest.mark.parametrize(
    "word", ["n=5/k.yaml", "n=5.yml", "n=5/k.py:naive", "n=5/k.cl:naive", "n=5/tune.py", "tune.py --n=5", "n=5/t1.json"]
)
def test_kernels_whose_names_hold_an_equals_sign_are_no_sizes(word):
    assert split_words([word, "n=5"]) == ([word], ["n=5"])


def test_a_space_whose_name_holds_an_equals_sign_is_no_size(tmp_path):
    (tmp_path / "n=5.yaml").write_text("schema: perflex-source/1\n")
    assert is_space(str(tmp_path / "n=5.yaml"))


SPARSE = """
import loopy as lp
import numpy as np

def product():
    return lp.tag_inames(lp.split_iname(lp.make_kernel(
        ["{[i]: 0<=i<n}", "{[j]: 0<=j<length}"],
        \"\"\"
        for i
            <> start = rows[i]
            <> length = rows[i+1] - start
            y[i] = sum(j, values[start+j] * x[cols[start+j]])
        end
        \"\"\",
        [lp.GlobalArg("rows,cols", np.int32, shape=lp.auto),
         lp.GlobalArg("values,x,y", np.float64, shape=lp.auto), ...],
        assumptions="n>=1", lang_version=(2018, 2)), "i", 16), "i_outer:g.0,i_inner:l.0")
"""


def test_what_data_decide_is_stated_for_a_loopy_kernel(content, refused, tmp_path):
    (tmp_path / "k.py").write_text(SPARSE, encoding="utf-8")
    words = ("features", f"{tmp_path / 'k.py'}:product", "n=160", "--sub-group-size", "16")
    assert "j" in refused(*words)
    stated = ("j=7.5", "x[cols[start + j]]=anywhere", "values=anywhere", "cols=anywhere")
    found = content(*words, *(word for each in stated for word in ("--state", each)))
    assert found["f_op_float64_madd"]["value"] == 10 * 7.5
