"""Survey of all drivers: each is loaded and tried in a child process of its own, all at the same time."""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import shutil
import socket
import sys
import tempfile
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import metadata
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from perflex.caches import own_cache, tell
from perflex.child_process import ChildProcess, signal_name
from perflex.devices.cuda import CUDA_LIBRARY, OPENCL_LIBRARY, cuda_absence, cupy_is_installed, cupy_name, find_library
from perflex.devices.device import Device, DeviceInfo

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
class Vendor:
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


def find_vendors(environment: Mapping[str, str] | None = None) -> tuple[Vendor, ...]:
    """Return every driver the machine and the Python environment offer, each library once."""
    environment = os.environ if environment is None else environment
    embedded = embedded_libraries()
    found = [*_named_by_files(environment), *(Vendor(str(path), "embedded runtime") for path in embedded)]
    known = {str(path) for path in embedded}
    unique: dict[str, Vendor] = {}
    found += _nvidia(found, environment)
    for vendor in found:
        key = _identity(vendor.library)
        # A vendor file may name the embedded runtime, too.
        unique.setdefault(key, Vendor(vendor.library, vendor.found_by, embedded=key in known))
    return tuple(unique.values())


def _nvidia(found: Sequence[Vendor], environment: Mapping[str, str]) -> list[Vendor]:
    """Return NVIDIA's driver where it is on the machine and nothing names it in a way that finds it.

    Containers get the driver's libraries and often no vendor file; or a file that names the library without its
    folder, where the dynamic linker does not look.
    """
    library = find_library(OPENCL_LIBRARY, environment)
    if library is None:
        return []
    named = [Path(vendor.library) for vendor in found if Path(vendor.library).name.startswith(_NVIDIA_STEM)]
    if any(path.is_file() if path.is_absolute() else library.on_path for path in named):
        return []
    why = "which the vendor file's bare name does not find" if named else "which no vendor file names"
    return [Vendor(library.path, f"NVIDIA's library in {Path(library.path).parent}, {why}")]


def _named_by_files(environment: Mapping[str, str]) -> Iterable[Vendor]:
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
            yield Vendor(named, _LOADER_VARIABLE)
        return
    for file in files:
        try:
            lines = file.read_text(encoding="utf-8").split("\n")
        except (OSError, UnicodeDecodeError):
            continue
        # A vendor file is one line, the library's path or bare name (extension cl_khr_icd).
        library = lines[0].strip()
        if library:
            yield Vendor(library, f"{origin} {file}")


def _identity(library: str) -> str:
    path = Path(library)
    return str(path.resolve()) if path.is_absolute() else library


def vendor_folder(vendors: Sequence[Vendor]) -> Path:
    """Return a folder of ``.icd`` files that names exactly the given drivers, in their order.

    The folder's name is a digest of its content, and it appears under that name complete or not at all, so
    that processes started together can share it.
    """
    content = {f"{index:02d}.icd": f"{vendor.library}\n" for index, vendor in enumerate(vendors)}
    digest = hashlib.sha256(repr(content).encode()).hexdigest()[:16]
    tell()
    root = own_cache() / "vendors"
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


def show_to_loader(vendors: Sequence[Vendor]) -> None:
    """Make the OpenCL loader of this process and its children see exactly the given drivers.

    Works as long as this process has not queried OpenCL platforms yet: loaders read the variable once.
    """
    os.environ.setdefault(_ORIGINAL_VARIABLE, os.environ.get(_LOADER_VARIABLE, ""))
    os.environ[_LOADER_VARIABLE] = str(vendor_folder(vendors))


# CPU drivers compile the probe kernel in seconds on a loaded machine; longer is taken for a hang.
_TIME_LIMIT_S = 20.0


@dataclass(frozen=True)
class _Probe:
    """How the devices of a driver are listed and tried: what a child process runs, and where the driver is from.

    The patience is by how much more time than an OpenCL driver's the child process may take.
    """

    words: tuple[str, ...]
    name: str
    found_by: str
    embedded: bool = False
    vendor: Vendor | None = None
    patience: float = 1.0


@dataclass
class _Report:
    """What the child processes of one driver said."""

    probe: _Probe
    devices: list[dict[str, Any]] = field(default_factory=list)
    verdicts: dict[int, dict[str, Any]] = field(default_factory=dict)
    problem: str = ""


class _Children:
    """The child processes of a survey, which end with it when it is interrupted."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._started: list[ChildProcess] = []
        self._stopped = False

    def start(self, words: Sequence[str], variables: Mapping[str, str]) -> ChildProcess:
        """Start one."""
        with self._lock:
            if self._stopped:
                raise CancelledError
            child = ChildProcess(words, variables, keeps_output=True)
            self._started.append(child)
        return child

    def stop(self) -> None:
        """End all, so that nobody waits for them any more."""
        with self._lock:
            self._stopped = True
            for child in self._started:
                child.kill()


def survey() -> tuple[tuple[DeviceInfo, ...], tuple[str, ...]]:
    """Try every driver, show those that load to this process's OpenCL loader, and return what was found."""
    probes = [_opencl_probe(vendor) for vendor in find_vendors()]
    problems: tuple[str, ...] = ()
    if cupy_is_installed():
        # Loading CuPy and NVRTC takes several seconds where files are not in the system's cache.
        probes.append(_Probe(("perflex.devices.probe_cuda",), "CUDA", f"CuPy ({cupy_name()})", patience=3.0))
    elif find_library(CUDA_LIBRARY) is not None:
        problems = (f"CUDA devices are not looked for: {cuda_absence()}",)
    children = _Children()
    with ThreadPoolExecutor(max_workers=max(1, len(probes))) as pool:
        try:
            reports = list(pool.map(partial(_interrogate, children), probes))
        except BaseException:  # an interrupt, say; the pool waits for its threads, and these for the children
            children.stop()
            raise
    # A driver that crashes or hangs while it is listed would do so in this process, too.
    show_to_loader([report.probe.vendor for report in reports if report.devices and report.probe.vendor is not None])
    infos: list[DeviceInfo] = []
    for report in reports:
        for index, facts in enumerate(report.devices):
            infos.append(_info(report, facts, report.verdicts.get(index, {}), infos))
    problems += tuple(
        f"driver {report.probe.name} ({report.probe.found_by}): {report.problem}"
        for report in reports
        if not report.devices
    )
    return tuple(infos), problems


def _opencl_probe(vendor: Vendor) -> _Probe:
    words = ("perflex.devices.probe_opencl", vendor.library)
    return _Probe(words, vendor.library, vendor.found_by, embedded=vendor.embedded, vendor=vendor)


def _info(report: _Report, facts: dict[str, Any], verdict: dict[str, Any], earlier: list[DeviceInfo]) -> DeviceInfo:
    lists = {name: tuple(facts.get(name, ())) for name in ("max_work_item_sizes", "max_groups")}
    size = int(verdict.get("sub_group_size", facts.get("sub_group_size", 1)))
    device = Device(**(facts | lists | {"sub_group_size": size}))
    ordinal = sum(info.device.names == device.names for info in earlier)
    return DeviceInfo(
        device=replace(device, ordinal=ordinal, host=socket.gethostname()),
        usable=bool(verdict.get("usable", False)),
        reason=str(verdict.get("reason", "the driver said nothing")),
        found_by=report.probe.found_by,
        embedded=report.probe.embedded,
    )


def _interrogate(children: _Children, probe: _Probe) -> _Report:
    """Run child processes until each device of a driver has a verdict: a crash costs one device only."""
    report = _Report(probe)
    while True:
        ending, lines = _child(children, probe, sorted(report.verdicts))
        # A later child may crash before it lists any; what an earlier one listed holds.
        report.devices = [line["device"] for line in lines if "device" in line] or report.devices
        trying: int | None = None
        for line in lines:
            if "problem" in line:
                report.problem = str(line["problem"])
            if "trying" in line:
                trying = int(line["trying"])
            if "verdict" in line:
                report.verdicts[int(line["verdict"])] = line
                trying = None
        if not ending:
            return report
        # It ended while no device was tried: another child would end in the same way.
        if trying is None or trying in report.verdicts:
            report.problem = ending
            untried = set(range(len(report.devices))) - set(report.verdicts)
            report.verdicts.update({index: {"reason": ending} for index in untried})
            return report
        report.verdicts[trying] = {"reason": f"the probe kernel: {ending}"}


def _child(children: _Children, probe: _Probe, tried: list[int]) -> tuple[str, list[dict[str, Any]]]:
    """Return how a child process ended (empty when well) and the objects it printed."""
    shown = {} if probe.vendor is None else {"OCL_ICD_VENDORS": str(vendor_folder([probe.vendor]))}
    # With -m alone Python looks into the working directory first, where a file could shadow a module; -P prevents it.
    child = children.start(["-P", "-m", *probe.words, *map(str, tried)], shown)
    limit_s = _TIME_LIMIT_S * probe.patience
    ended, code = child.wait(limit_s), child.exit_code or 0
    ending = ""
    if not ended:
        ending = f"the driver gave no answer within {limit_s:g} s"
    elif code < 0:
        ending = f"the driver crashed ({signal_name(-code)})"
    elif code > 0:
        ending = f"the driver failed ({child.last_words() or f'exit code {code}'})"
    return ending, _objects(child.output)


def _objects(output: bytes) -> list[dict[str, Any]]:
    found = []
    for line in output.decode(errors="replace").splitlines():
        try:
            value = json.loads(line)
        except ValueError:
            continue  # drivers print on standard output, too
        if isinstance(value, dict):
            found.append(value)
    return found
