"""What a compiler's options say of a source: macros, and folders of headers; standards and levels do not count."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from perflex.errors import SpaceError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_LONG = {"--define-macro": "-D", "--undefine-macro": "-U", "--include-path": "-I", "-isystem": "-I"}
# What these define, by OpenCL's specification.
_ARCHITECTURE = re.compile(r"-?-(?:arch|gpu-architecture|gencode|generate-code)\b.*?(?:sm|compute)_(\d+)")
_IMPLIED = {"-cl-fast-relaxed-math": "__FAST_RELAXED_MATH__"}
# They put a file before the source, which is not looked at.
_FILES = ("-include", "--pre-include", "-imacros")


@dataclass(frozen=True)
class CompilerOptions:
    """Macros with their texts, and folders in which headers are looked for."""

    defines: dict[str, str] = field(default_factory=dict)
    folders: list[Path] = field(default_factory=list)


def read_options(options: str | Iterable[object] | None, folder: Path) -> CompilerOptions:
    """Return what options say, the last of a macro's definitions; folders are relative to the given one."""
    words = [options] if isinstance(options, str) else [str(each) for each in options or ()]
    # Several may stand in one text; what does not begin with a hyphen belongs to the option before.
    parts = iter([part for word in words for part in re.split(r"\s+(?=-[A-Za-z-])", word.strip())])
    found = CompilerOptions()
    for part in parts:
        long = next((each for each in _LONG if re.match(rf"{each}(=|\s|$)", part)), None)
        option = _LONG[long] if long else part[:2]
        value = part.removeprefix(long or option).lstrip("= " if long else " ")
        if option in {"-D", "-U", "-I"}:
            # The value of an option may be the next word.
            value = value or next(parts, "")
            name, equals, text = value.partition("=")
            if option == "-I":
                found.folders.append(folder / value)
            elif option == "-U":
                found.defines.pop(name, None)
            else:
                found.defines[name] = text if equals else "1"
        elif part.startswith(_FILES):
            msg = f"the compiler's option {part!r} includes a file that is not read; write #include into the source"
            raise SpaceError(msg, option=part)
        elif target := _ARCHITECTURE.match(part):
            found.defines["__CUDA_ARCH__"] = f"{target[1]}0"
        elif part in _IMPLIED:
            found.defines[_IMPLIED[part]] = "1"
    return found
