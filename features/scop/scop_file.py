"""Scops as texts: YAML, for kernels described by hand, and JSON, in the store and on the way to other processes."""

from __future__ import annotations

import copyreg
import hashlib
import re
from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate
from pathlib import Path
from typing import Any

import msgspec
import yaml

from perflex.errors import UnsupportedKernelError
from perflex.features.polynomials.cardinality import TooManyOperationsError, limited
from perflex.features.polynomials.quasipolynomial import QuasiPolynomial, polynomial_from_record, polynomial_record
from perflex.features.scop.checks import read_fraction
from perflex.features.scop.numbering import by_number
from perflex.features.scop.scop import READING, Scop, require_scop
from perflex.file_io import read_text
from perflex.isl import align_parameters, isl, parameter_space
from perflex.yaml_file import Section, parse_yaml

SCHEMA = "perflex-scop/2"

# isl reads brackets by recursion, and powers by multiplying: a short text can end the process, or take for ever.
_MAX_LENGTH = 500_000
_MAX_DEPTH = 100
_MAX_OPERATIONS = 200_000
_LONG_NUMBER = re.compile(r"\d{16}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MOST = 2**53


class _Stored(msgspec.Struct):
    """A Scop that was checked, and what checking sizes needs, so that nothing has to be parsed for that."""

    scop: Scop
    validity: list[Any]


def _written(value: Any) -> Any:
    return value.text if isinstance(value, QuasiPolynomial) else str(value)


_ENCODER = msgspec.json.Encoder(enc_hook=_written)
_DECODER = msgspec.json.Decoder(_Stored, dec_hook=lambda kind, value: kind(value))


def scop_to_text(scop: Scop) -> str:
    """Return the Scop as JSON; `scop_from_text` restores an equal Scop."""
    return scop.derived("text", (), lambda: _ENCODER.encode(_Stored(scop, polynomial_record(scop.validity))).decode())


def scop_from_text(text: str) -> Scop:
    """Return the Scop that `scop_to_text` wrote; unlike with YAML, nothing is checked, and nothing parsed by isl."""
    token = READING.set(True)
    try:
        stored = _DECODER.decode(text)
    finally:
        READING.reset(token)
    vars(stored.scop)["validity"] = polynomial_from_record(stored.validity)
    # Writing it again would parse texts.
    stored.scop.derived("text", (), lambda: text)
    return stored.scop


def content_hash(scop: Scop) -> str:
    """Return a digest of everything that counts depend on."""
    require_scop(scop)
    return scop.derived("content hash", (), lambda: hashlib.sha256(scop_to_text(scop).encode()).hexdigest())


def scop_to_yaml(scop: Scop) -> str:
    """Return the Scop as YAML text; `scop_from_yaml` restores an equal Scop."""
    document = {"schema": SCHEMA, **msgspec.to_builtins(scop, enc_hook=_written)}
    # Where a condition leaves out the first iterations, the loop would be taken to begin later.
    if by_number(scop) == (scop.statements, scop.barriers):
        del document["numbered"]
    # Wide: PyYAML folds at 80 columns, in the middle of isl's sets.
    return yaml.safe_dump(document, sort_keys=False, width=1_000_000)


def scop_from_yaml(text: str) -> Scop:
    """Read a Scop; extents and strides may be plain numbers or expressions in the parameters.

    Parameters
    ----------
    text
        YAML with ``schema: perflex-scop/2``. Domains and relations are isl strings; extents, strides and
        repeats are numbers, isl strings, or expressions such as ``"16*n"`` or ``"floor(n/16)"``.

    Raises
    ------
    FileFormatError
        The text is no such document; the field is named with its line.
    UnsupportedKernelError
        The description contradicts itself.
    """
    return _scop(text, "the Scop description")


def read_scop(path: Path | str) -> Scop:
    """Read a Scop from a YAML file, as `scop_from_yaml`; messages name the file."""
    return _scop(read_text(path), Path(path))


def _scop(text: str, place: Path | str) -> Scop:
    top = parse_yaml(text, SCHEMA, place)
    _leave_out_empty(top)
    parameters = top.entries.get("parameters")
    names = tuple(parameters) if isinstance(parameters, list) else ()
    for number, name in enumerate(names):
        if not isinstance(name, str) or not _NAME.fullmatch(name) or names.index(name) != number:
            msg = "names of sizes must stand here, each once"
            raise top.error(msg, "parameters", number)
    top.entries.setdefault("assumptions", f"[{', '.join(map(str, names))}] -> {{ : }}")
    try:
        parameter_space(names)
        return top.read(Scop, lambda kind, value: _checked(kind, value, names))
    except isl.Error as error:
        msg = f"isl does not take these names: {_cause(error)}"
        raise top.error(msg, "parameters") from None
    except UnsupportedKernelError as error:
        if isinstance(place, Path):
            error.message = f"{place}: {error.message}"
        raise


def _leave_out_empty(value: Any) -> None:
    """Leave out fields without a value: YAML reads ``barriers:`` as null."""
    if isinstance(value, Section):
        value.entries = {name: entry for name, entry in value.entries.items() if entry is not None}
    for entry in value.entries.values() if isinstance(value, Section) else value if isinstance(value, list) else ():
        _leave_out_empty(entry)


def _checked(kind: Any, value: Any, parameters: Sequence[str]) -> Any:
    """Return what a field has of a class of ours; a `ValueError` says what is wrong with it."""
    if kind is Fraction:
        average = read_fraction(str(value))
        if average is None:
            msg = f"a positive number such as 5/6 must stand here, not {value!r}"
            raise ValueError(msg)
        return average
    if kind is QuasiPolynomial and type(value) is int and abs(value) <= _MOST:
        value = str(value)
    if not isinstance(value, str):
        msg = f"a {'number or ' * (kind is QuasiPolynomial)}text must stand here"
        raise ValueError(msg)  # noqa: TRY004 - what msgspec takes for a wrong value
    if kind is QuasiPolynomial:
        # Expressions are written without isl's frame.
        framed = value if "{" in value else f"[{', '.join(parameters)}] -> {{ {value} }}"
        found = _isl(isl.PwQPolynomial, framed, parameters)
        if found.dim(isl.dim_type.in_):
            msg = "an expression in the parameters must stand here, not in other variables"
            raise ValueError(msg)
        return QuasiPolynomial(found)
    found = _isl(kind.kind, value, parameters)
    # As isl prints it, a text may be another one when isl has read it: those of equal Scops are equal.
    in_order = tuple(found.get_var_names(isl.dim_type.param)) == tuple(parameters)
    return kind(value if in_order else align_parameters(found, parameters))


def _isl(kind: Any, text: str, parameters: Sequence[str]) -> Any:
    """Return an isl object whose parameters are sizes."""
    cause = ""
    depths = accumulate((character in "([{") - (character in ")]}") for character in text)
    if len(text) > _MAX_LENGTH or max(depths, default=0) > _MAX_DEPTH:
        cause = f"it is longer than {_MAX_LENGTH} characters, or nested more than {_MAX_DEPTH} deep"
    elif _LONG_NUMBER.search(text):
        cause = "a number has more than 15 digits"
    if cause:
        raise ValueError(cause)
    try:
        with limited(_MAX_OPERATIONS):
            found = kind(text)
    except (isl.Error, TooManyOperationsError) as error:
        # At its limit, isl mostly takes the text for wrong, too.
        shown = text if len(text) <= 200 else f"{text[:200]}..."
        msg = f"it is not isl notation, or takes isl too long: {shown!r} ({_cause(error)})"
        raise ValueError(msg) from None
    unknown = [name for name in found.get_var_names(isl.dim_type.param) if name not in parameters]
    if unknown:
        msg = f"{unknown[0]!r} is none of the parameters; add it to them"
        raise ValueError(msg)
    return found


def _cause(error: Exception) -> str:
    return str(error).partition("\n")[0] or "too many operations"


def _pickled(scop: Scop) -> tuple[Any, tuple[str]]:
    return scop_from_text, (scop_to_text(scop),)


# Parsed objects cannot be pickled. The class itself cannot say how: this module knows it, not the other way round.
copyreg.pickle(Scop, _pickled)
