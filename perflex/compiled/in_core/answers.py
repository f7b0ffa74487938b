"""What tools say of pieces of functions: asked once, and kept in perflex's cache folder."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING

from perflex.caches import own_cache
from perflex.compiled.in_core.llvm_mca import llvm_mca_cycles
from perflex.compiled.in_core.piece import PieceCycles, piece_of
from perflex.errors import FileFormatError, UnsupportedKernelError
from perflex.file_io import read_bytes, writing

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from perflex.compiled.elf import Function
    from perflex.compiled.in_core.piece import Piece
    from perflex.compiled.in_core.source import CycleSource
    from perflex.compiled.instructions import Instruction

# Part of every key: counts what changes in how tools are asked.
_SCHEME = 1


class Answers:
    """What a tool says of a function's pieces.

    Parameters
    ----------
    source
        The tool.
    function
        The function.
    """

    def __init__(self, source: CycleSource, function: Function) -> None:
        self._source = source
        self._function = function
        text = repr((_SCHEME, source.name, source.version, source.core, function.address)).encode()
        digest = hashlib.sha256(text + function.code).hexdigest()
        self._place = own_cache() / "cycles" / digest[:2] / f"{digest}.json"
        self._known = _read(self._place)

    def of(self, parts: Sequence[tuple[Sequence[Instruction], bool]]) -> list[PieceCycles]:
        """Return cycles of pieces of the function, given as instructions and whether they are repeated.

        Raises
        ------
        UnsupportedKernelError
            The tool does not know an instruction, or failed.
        MissingExtraError
            The disassembler is not installed.
        """
        pieces = [piece_of(self._function, part, repeated=repeated) for part, repeated in parts]
        keys = [_key(piece) for piece in pieces]
        missing = {key: piece for key, piece in zip(keys, pieces, strict=True) if key not in self._known}
        if missing:
            found = llvm_mca_cycles(self._source, list(missing.values()))
            self._known |= dict(zip(missing, found, strict=True))
            _write(self._place, self._known)
        answers = [self._known[key] for key in keys]
        refused = next((one.unknown for one in answers if one.unknown), "")
        if refused:
            msg = (
                f"{self._source} does not know this in the compiled code of {self._function.name}: {refused}; "
                "use another source of cycles (ports knows all)"
            )
            raise UnsupportedKernelError(msg)
        return answers


@lru_cache(maxsize=512)
def answers_for(source: CycleSource, function: Function) -> Answers:
    """Return what a tool says of a function, the same object for the same ones."""
    return Answers(source, function)


def _key(piece: Piece) -> str:
    text = "\n".join((str(piece.repeated), *piece.lines))
    return hashlib.sha256(text.encode()).hexdigest()


def _read(place: Path) -> dict[str, PieceCycles]:
    # What cannot be read is asked again.
    with suppress(FileFormatError, OSError, ValueError, TypeError, AttributeError):
        if place.is_file():
            return {key: PieceCycles(*entry) for key, entry in json.loads(read_bytes(place)).items()}
    return {}


def _write(place: Path, known: dict[str, PieceCycles]) -> None:
    content = {key: [one.busiest, one.chained, one.unknown] for key, one in known.items()}
    # A cache that cannot be written costs time the next time, nothing else.
    with suppress(FileFormatError, OSError):
        place.parent.mkdir(parents=True, exist_ok=True)
        with writing(place) as stream:
            json.dump(content, stream)
