"""What a user reads where plain islpy, which cannot count, was installed over islpy-barvinok."""

import shlex
import subprocess
import sys

import pytest


@pytest.mark.parametrize("has_pip", [True, False])
def test_plain_islpy_is_one_line_with_the_command_that_repairs_it(tmp_path, has_pip):
    package = tmp_path / "islpy"
    package.mkdir()
    (package / "__init__.py").write_text("class Set: ...\n")
    code = (
        "import sys, importlib.util as u\n"
        f"sys.path.insert(0, {str(tmp_path)!r})\n"
        f"find = u.find_spec; u.find_spec = lambda n, *a: {has_pip} or None if n == 'pip' else find(n, *a)\n"
        "from perflex.__main__ import main\n"
        "sys.exit(main(['features', 'kernel.py:function', 'n=16']))"
    )
    (tmp_path / "kernel.py").write_text("import perflex.isl\n")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    [line] = done.stderr.splitlines()
    assert line.startswith("perflex: error: the installed islpy cannot count")
    command = shlex.split(line.partition("repair it with: ")[2])
    python = shlex.quote(sys.executable)
    installer = (
        f"{python} -m pip install --force-reinstall" if has_pip else f"uv pip install --python {python} --reinstall"
    )
    assert shlex.join(command) == f"{installer} --no-deps islpy-barvinok"
