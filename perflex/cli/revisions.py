"""Kernels as they are at the revision of git that ``--against`` names."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from perflex.cli.options import TOLD
from perflex.errors import PerflexError

if TYPE_CHECKING:
    from collections.abc import Iterator

# Larger files are data, without which kernels can be read.
_MOST_BYTES = 2**20
# Modules that are perflex's own, though it may lie in the repository.
_OWN = {"perflex", "uipick", "__main__"}


@dataclass(frozen=True)
class Revision:
    """Files of a repository as they are at a revision, in a folder of their own."""

    name: str
    top: Path
    tree: Path

    def load(self, word: str) -> Any:
        """Return the kernel that a word of the command line names, as it is at the revision."""
        from perflex.cli.arguments import ArgumentError, file_and_name
        from perflex.cli.kernel_files import load_kernel

        file, given = file_and_name(word)[0] or word, TOLD.get()
        place, folders = self._place(Path(file)), list(given.source.include or ())
        # Headers that are in no revision, such as generated ones, are those that there are now.
        folders = [*map(self._place, folders), *folders, Path(file).resolve().parent]
        if not (place.is_relative_to(self.tree) and place.is_file()):
            raise ArgumentError(f"there is no {file} at revision {self.name}; name one that has it")
        token = TOLD.set(replace(given, source=replace(given.source, include=folders)))
        try:
            with self.told(), _imports_from(self.top, self.tree):
                return load_kernel(f"{place}{word.removeprefix(file)}")
        finally:
            TOLD.reset(token)

    @contextmanager
    def told(self) -> Iterator[None]:
        """Say of errors in the block that they are of this revision."""
        try:
            yield
        except PerflexError as error:
            error.message = f"at revision {self.name}: {error.message.replace(f'{self.tree}/', '')}"
            raise

    def _place(self, path: Path) -> Path:
        path = path.resolve()
        return self.tree / path.relative_to(self.top) if path.is_relative_to(self.top) else path


@contextmanager
def revision_of(word: str, name: str) -> Iterator[Revision]:
    """Yield the files of the repository in which a kernel's file lies, as they are at a revision, for the block."""
    from perflex.cli.arguments import file_and_name

    folder = Path(file_and_name(word)[0] or word).resolve().parent
    top = Path(_git(folder, "rev-parse", "--show-toplevel").decode().rstrip("\n"))
    with TemporaryDirectory(prefix="perflex-") as made:
        # An index of its own leaves the user's as it is.
        index = f"{made}/index"
        _git(top, "read-tree", "--end-of-options", f"{name}^{{tree}}", index=index)
        listed = _git(top, "ls-tree", "-r", "-l", "-z", "--end-of-options", name).split(b"\0")
        # Mode, kind, digest, size, and the path behind a tabulator.
        entries = [(each.partition(b"\t")[0].split()[3], each.partition(b"\t")[2]) for each in listed if each]
        wanted = b"\0".join(path for size, path in entries if size.isdigit() and int(size) <= _MOST_BYTES)
        _git(top, "checkout-index", "-z", "--stdin", f"--prefix={made}/tree/", index=index, given=wanted)
        yield Revision(name, top, Path(made).resolve() / "tree")


def _git(folder: Path, *words: str, index: str = "", given: bytes = b"") -> bytes:
    from perflex.cli.arguments import ArgumentError

    environment, command = {**os.environ, **({"GIT_INDEX_FILE": index} if index else {})}, ["git", *words]
    try:
        found = subprocess.run(command, cwd=folder, env=environment, input=given, capture_output=True, check=True)  # noqa: S603
    except (OSError, subprocess.CalledProcessError) as error:
        said = " ".join(getattr(error, "stderr", b"").decode(errors="replace").split()) or error
        raise ArgumentError(f"--against: {said}; name a revision of the repository of the kernel") from error
    return found.stdout


@contextmanager
def _imports_from(top: Path, tree: Path) -> Iterator[None]:
    """Import modules of a repository from a folder with other files of the same names, in the block."""

    def is_own(place: str) -> bool:
        path = Path(place).resolve()
        return path.is_relative_to(top) and not path.is_relative_to(sys.prefix)

    modules, path = dict(sys.modules), list(sys.path)
    places = {name: getattr(module, "__file__", None) or "/" for name, module in modules.items()}
    for name in [each for each in modules if each.partition(".")[0] not in _OWN and is_own(places[each])]:
        del sys.modules[name]
    sys.path[:] = [str(tree / Path(each).resolve().relative_to(top)) if is_own(each) else each for each in path]
    try:
        yield
    finally:
        sys.path[:] = path
        for name in [name for name in sys.modules if name not in modules]:
            if Path(getattr(sys.modules[name], "__file__", None) or "/").is_relative_to(tree):
                del sys.modules[name]
        sys.modules.update(modules)
