"""Kernels as they are at a revision of git: ``--against REV``."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perflex.cli.arguments import SCOP_SUFFIXES, SOURCE_SUFFIXES, ArgumentError, file_and_name
from perflex.cli.kernel_files import load_kernel
from perflex.cli.options import TOLD
from perflex.errors import PerflexError

if TYPE_CHECKING:
    from collections.abc import Iterator

AgainstOption = Annotated[
    str, typer.Option("--against", metavar="REV", help="Compare with the kernel at this revision of git.")
]
# What kernels are made of, and files that describe them.
_SUFFIXES = (*SOURCE_SUFFIXES, *SCOP_SUFFIXES, ".py", ".json", ".inl", ".def")
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
        file = file_and_name(word)[0] or word
        given = TOLD.get()
        folders = [self._place(each) for each in given.source.include or ()]
        token = TOLD.set(replace(given, source=replace(given.source, include=folders or None)))
        try:
            with self.told(), _imports_from(self.top, self.tree):
                place = self._place(Path(file))
                if not (place.is_relative_to(self.tree) and place.is_file()):
                    raise ArgumentError(f"there is no {file} at revision {self.name}; name one that has it")
                return load_kernel(f"{place}{word.removeprefix(file)}")
        finally:
            TOLD.reset(token)

    @contextmanager
    def told(self) -> Iterator[None]:
        """Say of errors in the block that they are of this revision."""
        try:
            yield
        except PerflexError as error:
            error.message = error.message.replace(f"{self.tree}/", f"{self.name}:")
            if f"{self.name}:" not in error.message:
                error.message = f"at revision {self.name}: {error.message}"
            raise

    def _place(self, path: Path) -> Path:
        path = path.resolve()
        return self.tree / path.relative_to(self.top) if path.is_relative_to(self.top) else path


@contextmanager
def revision_of(word: str, name: str) -> Iterator[Revision]:
    """Yield the files of the repository in which a kernel's file lies, as they are at a revision, for the block."""
    folder = Path(file_and_name(word)[0] or word).resolve().parent
    top = Path(_git(folder, "rev-parse", "--show-toplevel").decode().rstrip("\n"))
    commit = _git(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}", what=name)
    with TemporaryDirectory(prefix="perflex-") as made:
        # An index of its own leaves the user's as it is.
        index = {"GIT_INDEX_FILE": f"{made}/index"}
        _git(top, "read-tree", commit.decode().strip(), more=index)
        listed = _git(top, "ls-files", "-z", more=index).split(b"\0")
        wanted = b"\0".join(each for each in listed if each.decode(errors="replace").endswith(_SUFFIXES))
        _git(top, "checkout-index", "-z", "--stdin", f"--prefix={made}/tree/", more=index, given=wanted)
        yield Revision(name, top, Path(made).resolve() / "tree")


def _git(folder: Path, *words: str, more: dict[str, str] | None = None, given: bytes = b"", what: str = "") -> bytes:
    environment = {**os.environ, **(more or {})}
    try:
        found = subprocess.run(  # noqa: S603
            ["git", *words],  # noqa: S607 - the user's
            cwd=folder,
            env=environment,
            input=given,
            capture_output=True,
            check=False,
        )
    except OSError as error:
        raise ArgumentError(f"--against needs git in {folder}: {error.strerror or error}") from error
    if found.returncode:
        said = found.stderr.decode(errors="replace").strip() or f"there is no revision {what!r}"
        raise ArgumentError(f"--against: {' '.join(said.split())}; name a revision of the kernel's repository")
    return found.stdout


@contextmanager
def _imports_from(top: Path, tree: Path) -> Iterator[None]:
    """Import modules of a repository from a folder that has other ones of the same names, in the block."""

    def is_own(place: str | None) -> bool:
        path = Path(place or "/").resolve()
        return path.is_relative_to(top) and not path.is_relative_to(sys.prefix)

    before, path = dict(sys.modules), list(sys.path)
    own = [
        name
        for name, module in before.items()
        if name.partition(".")[0] not in _OWN and is_own(getattr(module, "__file__", None))
    ]
    for name in own:
        del sys.modules[name]
    sys.path[:] = [str(tree / Path(each).resolve().relative_to(top)) if is_own(each or ".") else each for each in path]
    try:
        yield
    finally:
        sys.path[:] = path
        for name, module in list(sys.modules.items()):
            if name in own or Path(getattr(module, "__file__", None) or "/").is_relative_to(tree):
                del sys.modules[name]
        sys.modules.update({name: before[name] for name in own})
