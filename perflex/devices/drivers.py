"""Drivers of OpenCL: which there are on the machine, and which of them the OpenCL loader sees."""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from perflex.caches import cache_folder, warn_of_moved_caches
from perflex.devices.cuda import OPENCL_LIBRARY, find_library

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_LOADER_VARIABLE = "OCL_ICD_VENDORS"
# What OCL_ICD_VENDORS was before perflex set it, so that child processes start from the same place.
_ORIGINAL_VARIABLE = "PERFLEX_ORIGINAL_ICD_VENDORS"
_SYSTEM_FOLDER = Path("/etc/OpenCL/vendors")
_EMBEDDED_DISTRIBUTION = "intel-opencl-rt"
_EMBEDDED_LIBRARY = "libintelocl.so"
_NVIDIA_STEM = OPENCL_LIBRARY.partition(".")[0]


@dataclass(frozen=True)
class Driver:
    """One OpenCL driver library."""

    # Its path, or a bare name that the dynamic linker resolves.
    library: str
    found_by: str
    # Whether it is the CPU runtime installed in the Python environment.
    embedded: bool = False


def embedded_libraries() -> tuple[Path, ...]:
    """Return the driver libraries installed in this Python environment, possibly none."""
    found: list[Path] = []
    try:
        files = metadata.distribution(_EMBEDDED_DISTRIBUTION).files or []
        found = [Path(str(file.locate())) for file in files if file.name == _EMBEDDED_LIBRARY]
    except metadata.PackageNotFoundError:
        pass
    # Where the wheel's libraries go, should the list of its files be missing.
    found.append(Path(sys.prefix) / "lib" / _EMBEDDED_LIBRARY)
    existing = [path.resolve() for path in found if path.is_file()]
    return tuple(dict.fromkeys(existing))


def find_drivers(environment: Mapping[str, str] | None = None) -> tuple[Driver, ...]:
    """Return every driver the machine and the Python environment offer, each library once."""
    environment = os.environ if environment is None else environment
    embedded = embedded_libraries()
    found = [*_named_by_files(environment), *(Driver(str(path), "embedded runtime") for path in embedded)]
    known = {str(path) for path in embedded}
    unique: dict[str, Driver] = {}
    found += _nvidia(found, environment)
    for driver in found:
        key = _identity(driver.library)
        # A vendor file may name the embedded runtime, too.
        unique.setdefault(key, Driver(driver.library, driver.found_by, embedded=key in known))
    return tuple(unique.values())


def _nvidia(found: Sequence[Driver], environment: Mapping[str, str]) -> list[Driver]:
    """Return NVIDIA's driver where it is on the machine and nothing names it in a way that finds it.

    Containers get the driver's libraries and often no vendor file; or a file that names the library without its
    folder, where the dynamic linker does not look.
    """
    library = find_library(OPENCL_LIBRARY, environment)
    if library is None:
        return []
    named = [Path(driver.library) for driver in found if Path(driver.library).name.startswith(_NVIDIA_STEM)]
    if any(path.is_file() if path.is_absolute() else library.on_path for path in named):
        return []
    why = "which the vendor file's bare name does not find" if named else "which no vendor file names"
    return [Driver(library.path, f"NVIDIA's library in {Path(library.path).parent}, {why}")]


def _named_by_files(environment: Mapping[str, str]) -> Iterable[Driver]:
    named = environment.get(_ORIGINAL_VARIABLE, environment.get(_LOADER_VARIABLE, ""))
    place = Path(named) if named else _SYSTEM_FOLDER
    origin = f"{_LOADER_VARIABLE} file" if named else "system vendor file"
    if place.is_dir():
        files = sorted(place.glob("*.icd"))
    elif place.is_file() and place.suffix == ".icd":
        files = [place]
    else:
        # A loader also takes the driver library itself.
        if place.is_file() or (named and ".so" in place.name):
            yield Driver(named, _LOADER_VARIABLE)
        return
    for file in files:
        try:
            lines = file.read_text(encoding="utf-8").split("\n")
        except (OSError, UnicodeDecodeError):
            continue
        # A vendor file is one line, the library's path or bare name (extension cl_khr_icd).
        library = lines[0].strip()
        if library:
            yield Driver(library, f"{origin} {file}")


def _identity(library: str) -> str:
    path = Path(library)
    return str(path.resolve()) if path.is_absolute() else library


def icd_folder(drivers: Sequence[Driver]) -> Path:
    """Return a folder of ``.icd`` files that names exactly the given drivers, in their order.

    The folder's name is a digest of its content, and it appears under that name complete or not at all, so
    that processes started together can share it.
    """
    content = {f"{index:02d}.icd": f"{driver.library}\n" for index, driver in enumerate(drivers)}
    digest = hashlib.sha256(repr(content).encode()).hexdigest()[:16]
    warn_of_moved_caches()
    root = cache_folder() / "vendors"
    try:
        return _published(root, digest, content)
    except OSError:
        # No cache can be written (a read-only home, say), or it is damaged: a folder for this process and its children.
        private = Path(tempfile.mkdtemp(prefix="perflex-vendors-"))
        atexit.register(shutil.rmtree, private, ignore_errors=True)
        return _published(private, digest, content)


def _published(root: Path, digest: str, content: Mapping[str, str]) -> Path:
    folder = root / digest
    if not folder.exists():
        root.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=root))
        try:
            for name, text in content.items():
                (draft / name).write_text(text, encoding="utf-8")
            draft.chmod(0o755)
            # Fails where another process was faster: nothing complete is ever replaced.
            with suppress(OSError):
                draft.rename(folder)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    if {path.name: path.read_bytes() for path in folder.iterdir()} != {n: t.encode() for n, t in content.items()}:
        msg = f"{folder} is not what was written"
        raise OSError(msg)
    return folder


def set_icd_folder(drivers: Sequence[Driver]) -> None:
    """Make the OpenCL loader of this process and its children see exactly the given drivers.

    Works as long as this process has not queried OpenCL platforms yet: loaders read the variable once.
    """
    os.environ.setdefault(_ORIGINAL_VARIABLE, os.environ.get(_LOADER_VARIABLE, ""))
    os.environ[_LOADER_VARIABLE] = str(icd_folder(drivers))
