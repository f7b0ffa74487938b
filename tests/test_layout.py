"""The house: where files lie, how large they may be, and which names are public. See docs/architecture.md."""

import ast
import re
import subprocess
import sys
import tomllib
from functools import cache
from itertools import chain
from pathlib import Path

from support.pages import blocks, pages, python_source

TOP = Path(__file__).parents[1]
# Folder and import name of each part of the distribution.
ROOTS = {
    "perflex": "perflex",
    "features": "perflex.features",
    "models": "perflex.models",
    "calib_data": "perflex.calib_data",
    "uipick": "uipick",
}
PUBLIC_MODULES = {
    "perflex",
    "perflex.errors",
    "perflex.features",
    "perflex.models",
    "perflex.testing",
    "uipick",
    "perflex.triton",
}
GROUND = {
    "caches.py", "child_process.py", "errors.py", "file_io.py", "formula.py", "guard.py", "html.py", "isl.py",
    "pictures.py", "progress.py", "tables.py", "version.py", "workers.py", "yaml_file.py",
}  # fmt: skip
FACE = {"__init__.py", "__main__.py", "pytest_plugin.py", "testing.py", "triton.py"}
IMPORTED = re.compile(r"\bfrom\s+((?:perflex|uipick)[\w.]*)\s+import\b")
MODULE_LINES = 500
BODY_LINES = 60
PARAMETERS = 8


def sources():
    return sorted(chain.from_iterable((TOP / root).rglob("*.py") for root in ROOTS))


@cache
def parsed(path):
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def functions(path):
    """Return the functions of a file with their qualified names, e.g. ``perflex/fit/fitting.py:fit_model``."""
    found = []

    def visit(node, prefix):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):  # holds no functions but lambdas
                continue
            name = getattr(child, "name", "")
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                found.append((f"{path.relative_to(TOP)}:{prefix}{name}", child))
            inner = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
            visit(child, f"{prefix}{name}." if inner else prefix)

    visit(parsed(path), "")
    return found


def body_lines(function):
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return body[-1].end_lineno - body[0].lineno + 1 if body else 0


def parameters(function):
    given = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    return sum(argument.arg not in {"self", "cls"} for argument in given)


def test_every_package_is_listed_for_the_wheel():
    listed = tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]["packages"]
    there = {
        ".".join([name, *folder.parent.relative_to(TOP / root).parts])
        for root, name in ROOTS.items()
        for folder in (TOP / root).rglob("__init__.py")
    }
    assert sorted(there) == sorted(listed)


def test_every_folder_of_modules_is_a_package():
    folders = {path.parent for path in sources()}
    assert [folder for folder in sorted(folders) if not (folder / "__init__.py").is_file()] == []


def test_only_the_ground_and_the_face_lie_in_perflex_itself():
    assert {path.name for path in (TOP / "perflex").glob("*.py")} == GROUND | FACE


def test_rooms_hold_a_docstring_and_no_code():
    # The faces of public packages, and models/ with its reader, are the exceptions.
    public = {TOP / root / "__init__.py" for root in ROOTS}
    rooms = [path for path in sources() if path.name == "__init__.py" and path not in public]
    allowed = (ast.Import, ast.ImportFrom, ast.Expr, ast.Assign)
    assert [path for path in rooms if ast.get_docstring(parsed(path)) is None] == []
    assert [path for path in rooms if not all(isinstance(node, allowed) for node in parsed(path).body)] == []


def test_modules_are_small():
    lengths = {str(path.relative_to(TOP)): len(path.read_text(encoding="utf-8").splitlines()) for path in sources()}
    assert {name: lines for name, lines in lengths.items() if lines > MODULE_LINES} == {}


def test_functions_are_short():
    long = {name: body_lines(node) for path in sources() for name, node in functions(path)}
    assert {name: lines for name, lines in long.items() if lines > BODY_LINES} == {}


def test_no_function_has_many_parameters():
    many = {name for path in sources() for name, node in functions(path) if parameters(node) > PARAMETERS}
    # An option of a command is a parameter of its function; how many there may be, tests/cli say.
    assert {name for name in many if not name.startswith("perflex/cli/")} == set()


def public_names(module):
    code = f"import {module} as m; print(*m.__all__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=TOP)
    return {*done.stdout.split(), "__version__"}


def shown_code():
    """Return the Python code that users read: examples, and code blocks and notebook cells of README and docs."""
    code = {str(path.relative_to(TOP)): path.read_text(encoding="utf-8") for path in (TOP / "examples").glob("*.py")}
    shown = [block for page in pages() for block in blocks(page)]
    return code | {block.place: python_source(block) for block in shown if block.language in {"python", "py"}}


def test_what_users_read_imports_public_names_only():
    public = {module: public_names(module) for module in PUBLIC_MODULES}
    wrong = []
    for place, code in shown_code().items():
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names if alias.name.split(".")[0] in {"perflex", "uipick"}]
                wrong += [f"{place}: {module}" for module in modules if module not in PUBLIC_MODULES]
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in {"perflex", "uipick"}:
                known = public.get(node.module or "", set())
                names = [alias.name for alias in node.names]
                wrong += [
                    f"{place}: {node.module}.{name}"
                    for name in names
                    if name not in known and f"{node.module}.{name}" not in PUBLIC_MODULES
                ]
    assert wrong == []


def test_importing_perflex_loads_none_of_its_rooms(tmp_path):
    code = (
        "import sys, perflex, uipick\n"
        "heavy = {'loopy', 'sympy', 'scipy', 'numpy', 'islpy', 'pyopencl', 'matplotlib', 'typer', 'rich', 'msgspec'}\n"
        "print(*sorted(heavy & set(sys.modules)), *sorted(m for m in sys.modules if m.startswith('perflex.')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    # The caches' places are settled before loopy looks for its own.
    assert done.stdout.split() == ["perflex.caches", "perflex.errors", "perflex.guard", "perflex.version"]


def test_few_tests_reach_into_other_rooms():
    """Tests import public names, or names of the room that they lie in; helpers of tests count as tests."""
    reaching = set()
    for path in (TOP / "tests").rglob("*.py"):
        inside = path.relative_to(TOP / "tests").parts
        if inside[0] in {"bench", "fake_cuda"}:
            continue
        # Tests of the ground's files lie at the top, named like them.
        name = inside[0].removeprefix("test_").removesuffix(".py")
        room = "uipick" if name == "uipick" else f"perflex.{name}"
        allowed = {*PUBLIC_MODULES, "perflex.__main__", "perflex.version"}
        # Most files import public names alone, which their text tells sooner than their syntax.
        named = IMPORTED.findall(path.read_text(encoding="utf-8"))
        if all(module in allowed or module.startswith(room) for module in named):
            continue
        for node in ast.walk(parsed(path)):
            if not isinstance(node, ast.ImportFrom) or (node.module or "").split(".")[0] not in {"perflex", "uipick"}:
                continue
            if not (node.module or "").startswith(room) and node.module not in allowed:
                reaching.add("/".join(inside))
    assert len(reaching) <= 50, sorted(reaching)


def test_test_files_have_names_of_their_own():
    """Test folders are no packages, so that pytest knows a file by its name alone."""
    names = [path.name for path in (TOP / "tests").rglob("test_*.py")]
    assert sorted(names) == sorted(set(names))
