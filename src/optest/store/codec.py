"""Exact conversion of results to strict JSON and back: a NaN never becomes null.

A non-finite number is the string ``"nan"``, ``"inf"`` or ``"-inf"`` in a field of type float, and
``{"$float": "nan"}`` inside a free-form mapping (attributes, details, case, options). A key of such a mapping that
begins with ``$`` gets a second ``$``. Tuples inside free-form mappings are read as lists.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import numbers
import re
import threading
from collections.abc import Hashable, Mapping
from enum import Enum
from functools import cache
from operator import attrgetter
from typing import Any, TypeVar

import msgspec

from optest.spec import CaseResult, Measure, Timings

Record = TypeVar("Record")

_FLOATS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_TAG = "$float"
_MARKS = (b'"nan"', b'inf"', b'"$')
# First bytes of a MessagePack double with the largest exponents: NaN, infinities, and some huge finite numbers.
_nonfinite_prefix = re.compile(rb"\xcb[\x7f\xff]").search


def encode(record: Any) -> bytes:
    """Return one line of strict JSON for a dataclass of :mod:`optest.spec`, without the line end.

    Values that are no plain data (a driver may put anything into its details) are written as their number or
    ``repr``, lone surrogates as ``\\udcff`` escapes.
    """
    line = bytearray()
    encode_after(b"", record, line)
    return bytes(line)


def encode_after(prefix: bytes, record: Any, line: bytearray) -> None:
    """Overwrite ``line`` with ``prefix`` and the JSON of ``record``, as :func:`encode` writes it."""
    start = len(prefix)
    # The rest of `line` keeps its size, so that its memory is reused.
    line[:start] = prefix
    if not _may_hold_nonfinite(record):
        try:
            _JSON.encode_into(record, line, start)
        except UnicodeEncodeError:
            pass
        else:
            # A search for one byte is ten times as fast as for two.
            if b"$" not in line or b'"$' not in line:
                return
    _JSON.encode_into(plain(record), line, start)


def decode(line: bytes, record: type[Record]) -> Record:
    """Parse a line that :func:`encode` wrote for a dataclass of type ``record``.

    Raises:
        msgspec.DecodeError: for text that is no JSON or not of this type.
    """
    decoder: msgspec.json.Decoder[Record] = _decoder(record)  # type: ignore[arg-type] # every type is hashable
    if not (_MARKS[0] in line or _MARKS[1] in line or _MARKS[2] in line):
        with contextlib.suppress(msgspec.ValidationError):
            return decoder.decode(line)
    return msgspec.convert(_revive(msgspec.json.decode(line), record), record)


def plain(value: Any) -> Any:
    """Convert dataclasses, enums and non-finite numbers to dicts, lists and strings that strict JSON can hold."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain_field(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return _plain_field(value)


def spell_float(value: float) -> str:
    """Return ``nan``, ``inf`` or ``-inf`` for a non-finite number."""
    return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")


def json_schema(record: Any) -> dict[str, Any]:
    """Return the JSON Schema of the output of :func:`encode` for a type; numbers may also be ``"nan"`` and so on."""
    schema: dict[str, Any] = _spell_numbers(msgspec.json.schema(record))
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _encode_foreign(value: Any) -> Any:
    """Convert an object that JSON cannot hold to int or float, or to its ``repr`` if it is no number."""
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    return repr(value)


_JSON = msgspec.json.Encoder(enc_hook=_encode_foreign)
_MSGPACK = msgspec.msgpack.Encoder(enc_hook=_encode_foreign)


def _may_hold_nonfinite(record: Any) -> bool:
    """Return whether a number in ``record`` may be NaN or infinite; may be True for finite numbers, never False for
    others."""
    # msgspec writes NaN as null and offers no hook for it. MessagePack keeps the bits, and a search in its output takes
    # a third of the time of a walk in Python.
    try:
        if type(record) is CaseResult:
            verdict = record.verdict
            total: float = sum(filter(None, _seconds(record.timings)))
            for measure in verdict.measures:
                total += sum(filter(None, _numbers(measure)))
            # A sum with a NaN or an infinity in it is not finite, and one that overflows may not be.
            if total - total != 0.0:
                return True
            record = (verdict.details, record.attributes, record.case)
        packed = _MSGPACK.encode(record)
    except (TypeError, OverflowError, UnicodeEncodeError):
        # Text can be in the place of a number, and an integer beyond every float.
        return True
    return _nonfinite_prefix(packed) is not None


_seconds = attrgetter(*[field.name for field in dataclasses.fields(Timings)])
_numbers = attrgetter(
    *[field.name for field in dataclasses.fields(Measure) if "float" in str(field.type)],
)


@cache
def _decoder(record: Hashable) -> msgspec.json.Decoder[Any]:
    with _DECODER_LOCK:
        return msgspec.json.Decoder(record)


# msgspec caches its analysis of a type at the first use, and crashes if two threads do that at once.
_DECODER_LOCK = threading.Lock()


def _plain_field(value: Any) -> Any:
    """Convert the value of a dataclass field; mappings are free-form, so their numbers get tags."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, str):
        return _writable(value)
    if isinstance(value, float) and not math.isfinite(value):
        return spell_float(value)
    if isinstance(value, Mapping):
        return _tag(value)
    if isinstance(value, (list, tuple)):
        return [plain(element) for element in value]
    if dataclasses.is_dataclass(value):
        return plain(value)
    return value


def _tag(value: Any) -> Any:
    """Convert a free-form value recursively: tag non-finite numbers, escape keys, replace enums by their values."""
    if isinstance(value, Mapping):
        return {_escape(key): _tag(element) for key, element in value.items()}
    if isinstance(value, (list, tuple)):
        return [_tag(element) for element in value]
    if isinstance(value, Enum):
        return _tag(value.value)
    if isinstance(value, str):
        return _writable(value)
    if isinstance(value, numbers.Real) and not isinstance(value, numbers.Rational) and not math.isfinite(value):
        return {_TAG: spell_float(float(value))}
    return value


def _escape(key: Any) -> str:
    text = _writable(str(key))
    return f"${text}" if text.startswith("$") else text


def _writable(text: str) -> str:
    """Replace lone surrogates by ``\\udcff`` escapes."""
    # A stderr may contain them, and UTF-8 cannot encode them.
    return text.encode("utf-8", "backslashreplace").decode()


def _revive(value: Any, record: Any) -> Any:
    """Undo :func:`plain` for a dict that represents the dataclass ``record``; return other values unchanged."""
    if not isinstance(value, dict) or record is None:
        return value
    kinds = _field_kinds(record)
    return {name: _revive_field(element, kinds.get(name)) for name, element in value.items()}


def _revive_field(value: Any, kind: Any) -> Any:
    """Undo :func:`plain` for a field of ``kind`` float, Mapping, a dataclass, or None for unchanged kinds."""
    if kind is float and isinstance(value, bool):
        # the worst element of a bool output
        return int(value)
    if kind is float:
        return _FLOATS.get(value, value) if isinstance(value, str) else value
    if kind is Mapping:
        return _untag(value)
    if isinstance(value, list):
        return [_revive(element, kind) for element in value]
    return _revive(value, kind)


@cache
def _field_kinds(record: Hashable) -> dict[str, Any]:
    """Map the fields that :func:`plain` may change to ``float``, ``Mapping`` or a dataclass."""
    kinds: dict[str, Any] = {}
    for field in msgspec.inspect.type_info(record).fields:  # type: ignore[attr-defined]
        members = [kind for kind in map(_kind_of, _members(field.type)) if kind is not None]
        if members:
            kinds[field.encode_name] = members[0]
    return kinds


def _members(info: Any) -> list[Any]:
    """Return the member types of a union or a variable-length tuple, recursively; else the type itself."""
    if isinstance(info, msgspec.inspect.UnionType):
        return [member for part in info.types for member in _members(part)]
    if isinstance(info, msgspec.inspect.VarTupleType):
        return _members(info.item_type)
    return [info]


def _kind_of(info: Any) -> Any:
    if isinstance(info, msgspec.inspect.FloatType):
        return float
    if isinstance(info, msgspec.inspect.DictType):
        return Mapping
    if isinstance(info, msgspec.inspect.DataclassType):
        return info.cls
    return None


def _untag(value: Any) -> Any:
    """Undo :func:`_tag`; raise ValidationError for a tag with another word."""
    if isinstance(value, list):
        return [_untag(element) for element in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1 and _TAG in value:
        word = value[_TAG]
        if isinstance(word, str) and word in _FLOATS:
            return _FLOATS[word]
        raise msgspec.ValidationError(f"{_TAG} is {word!r}, expected one of {', '.join(_FLOATS)}")
    return {key[1:] if key.startswith("$$") else key: _untag(element) for key, element in value.items()}


_NUMBER = {"anyOf": [{"type": "number"}, {"enum": list(_FLOATS)}]}


def _spell_numbers(schema: Any) -> Any:
    """Allow ``"nan"``, ``"inf"`` and ``"-inf"`` for every number of a JSON Schema, and drop its docstrings."""
    if isinstance(schema, list):
        return [_spell_numbers(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("type") == "number":
        return _NUMBER
    # A description that is text is a docstring: for readers of the code, not of the schema.
    parts = {key: part for key, part in schema.items() if key != "description" or not isinstance(part, str)}
    return {key: _spell_numbers(part) for key, part in parts.items()}
