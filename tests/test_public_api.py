"""The public surface: what scripts import, and that importing it is cheap and undisturbed."""

import subprocess
import sys

import pytest

import perflex
import uipick


def run(code, folder):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("package", [perflex, uipick])
def test_all_is_sorted_and_complete(package):
    assert list(package.__all__) == sorted(package.__all__)
    for name in package.__all__:
        assert getattr(package, name) is not None
        assert name in dir(package)
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = package.no_such_name


def test_a_users_own_modules_do_not_get_in_the_way(tmp_path):
    for name in ("models", "features", "calib_data"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('the user\\'s own module was imported')\n")
    code = (
        "import perflex.models, perflex.features, perflex.calib_data\n"
        "print(perflex.models.__name__, perflex.features.__name__, perflex.calib_data.__name__)"
    )
    assert run(code, tmp_path) == "perflex.models perflex.features perflex.calib_data"


def test_errors_form_one_tree_and_carry_their_subject():
    import pickle

    from perflex import errors

    for name in errors.__all__:
        kind = errors.PerflexWarning if name.endswith("Warning") else errors.PerflexError
        assert issubclass(getattr(errors, name), kind)
    error = errors.NoMatchError("nothing fits; add kernels", feature="f_x")
    assert error.feature == "f_x"
    assert isinstance(error, errors.FeatureError)
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.feature, type(copy)) == (str(error), "f_x", errors.NoMatchError)
    with pytest.raises(AttributeError, match="no attribute 'device'"):
        _ = error.device
