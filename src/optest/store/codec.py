"""Results to strict JSON and back, exactly: a NaN never becomes null, and whatever is written can be read.

A non-finite number is the string ``"nan"``, ``"inf"`` or ``"-inf"`` where the vocabulary says a number stands, and
``{"$float": "nan"}`` inside a free-form mapping (attributes, details, case, options). A key of such a mapping that
begins with ``$`` gets a second ``$``. Tuples inside free-form mappings come back as lists.
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

Noun = TypeVar("Noun")

_FLOATS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_TAG = "$float"
_MARKS = (b'"nan"', b'inf"', b'"$')
_nonfinite_prefix = re.compile(rb"\xcb[\x7f\xff]").search
"""How a MessagePack double with the largest exponents begins: NaN, infinities, and some huge finite numbers."""


def encode(noun: Any) -> bytes:
    """One line of strict JSON for a dataclass of :mod:`optest.spec`, without the line end.

    Values that are no plain data (a driver may put anything into its details) are written as their number or
    ``repr``; half surrogates as ``\\udcff`` escapes.
    """
    line = bytearray()
    encode_after(b"", noun, line)
    return bytes(line)


def encode_after(prefix: bytes, noun: Any, line: bytearray) -> None:
    """:func:`encode` into memory that is used again, behind ``prefix``; what ``line`` held is lost."""
    start = len(prefix)
    line[:start] = prefix  # the rest keeps its size, so that memory need not grow again
    if not _may_hold_nonfinite(noun):
        try:
            _JSON.encode_into(noun, line, start)
        except UnicodeEncodeError:
            pass
        else:
            if b"$" not in line or b'"$' not in line:  # one byte is found ten times as fast as two
                return
    _JSON.encode_into(plain(noun), line, start)


def decode(line: bytes, noun: type[Noun]) -> Noun:
    """Read what :func:`encode` wrote.

    Raises:
        msgspec.DecodeError: for text that is no JSON or not of this type.
    """
    decoder: msgspec.json.Decoder[Noun] = _decoder(noun)  # type: ignore[arg-type] # every type is hashable
    if not (_MARKS[0] in line or _MARKS[1] in line or _MARKS[2] in line):
        with contextlib.suppress(msgspec.ValidationError):
            return decoder.decode(line)
    return msgspec.convert(_revive(msgspec.json.decode(line), noun), noun)


def plain(value: Any) -> Any:
    """Dataclasses, enums and numbers as dicts, strings and lists that any strict JSON writer takes."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain_field(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return _plain_field(value)


def spell_float(value: float) -> str:
    """``nan``, ``inf`` or ``-inf`` for a non-finite number."""
    return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")


def json_schema(noun: Any) -> dict[str, Any]:
    """The JSON Schema of what :func:`encode` writes for a type: numbers may also be spelled ``"nan"`` and so on."""
    schema: dict[str, Any] = _spell_numbers(msgspec.json.schema(noun))
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _foreign(value: Any) -> Any:
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    return repr(value)


_JSON = msgspec.json.Encoder(enc_hook=_foreign)
_MSGPACK = msgspec.msgpack.Encoder(enc_hook=_foreign)


def _may_hold_nonfinite(noun: Any) -> bool:
    """Whether a number in ``noun`` could be NaN or infinite; sometimes True without need, never wrongly False.

    msgspec writes NaN as null and offers no hook for it. MessagePack keeps the bits, and looking for them in its
    output takes a third of the time of a walk in Python.
    """
    try:
        if type(noun) is CaseResult:
            verdict = noun.verdict
            total: float = sum(filter(None, _seconds(noun.timings)))
            for measure in verdict.measures:
                total += sum(filter(None, _numbers(measure)))
            # A sum with a NaN or an infinity in it is not finite, and one that overflows may not be.
            if total - total != 0.0:
                return True
            noun = (verdict.details, noun.attributes, noun.case)
        packed = _MSGPACK.encode(noun)
    except (TypeError, OverflowError, UnicodeEncodeError):
        # Text can be in the place of a number, and an integer beyond every float.
        return True
    return _nonfinite_prefix(packed) is not None


_seconds = attrgetter(*[field.name for field in dataclasses.fields(Timings)])
_numbers = attrgetter(
    *[field.name for field in dataclasses.fields(Measure) if "float" in str(field.type)],
)


@cache
def _decoder(noun: Hashable) -> msgspec.json.Decoder[Any]:
    with _GETTING_TO_KNOW_A_TYPE:
        return msgspec.json.Decoder(noun)


_GETTING_TO_KNOW_A_TYPE = threading.Lock()
"""msgspec keeps what it knows of a type from its first use on, and crashes where two threads use it first."""


def _plain_field(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, str):
        return _writable(value)
    if isinstance(value, float) and not math.isfinite(value):
        return spell_float(value)
    if isinstance(value, Mapping):
        return _tag(value)
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if dataclasses.is_dataclass(value):
        return plain(value)
    return value


def _tag(value: Any) -> Any:
    """A free-form value with its non-finite numbers tagged."""
    if isinstance(value, Mapping):
        return {_escape(key): _tag(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_tag(each) for each in value]
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
    """Half surrogates, which a stderr may hold, have no UTF-8; they are spelled out."""
    return text.encode("utf-8", "backslashreplace").decode()


def _revive(value: Any, noun: Any) -> Any:
    """Undo :func:`plain`; ``noun`` is the dataclass that an object at this place stands for, None if none."""
    if not isinstance(value, dict) or noun is None:
        return value
    kinds = _field_kinds(noun)
    return {name: _revive_field(each, kinds.get(name)) for name, each in value.items()}


def _revive_field(value: Any, kind: Any) -> Any:
    if kind is float and isinstance(value, bool):
        return int(value)  # the worst element of a bool output
    if kind is float:
        return _FLOATS.get(value, value) if isinstance(value, str) else value
    if kind is Mapping:
        return _untag(value)
    if isinstance(value, list):
        return [_revive(each, kind) for each in value]
    return _revive(value, kind)


@cache
def _field_kinds(noun: Hashable) -> dict[str, Any]:
    """Field name to ``float``, ``Mapping`` or a dataclass, for the fields that :func:`plain` may have changed."""
    kinds: dict[str, Any] = {}
    for field in msgspec.inspect.type_info(noun).fields:  # type: ignore[attr-defined]
        fields = [kind for kind in map(_kind_of, _members(field.type)) if kind is not None]
        if fields:
            kinds[field.encode_name] = fields[0]
    return kinds


def _members(info: Any) -> list[Any]:
    if isinstance(info, msgspec.inspect.UnionType):
        return [member for each in info.types for member in _members(each)]
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
    if isinstance(value, list):
        return [_untag(each) for each in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1 and _TAG in value:
        word = value[_TAG]
        if isinstance(word, str) and word in _FLOATS:
            return _FLOATS[word]
        raise msgspec.ValidationError(f"{_TAG} is {word!r}, but should be one of {', '.join(_FLOATS)}")
    return {key[1:] if key.startswith("$$") else key: _untag(each) for key, each in value.items()}


_NUMBER = {"anyOf": [{"type": "number"}, {"enum": list(_FLOATS)}]}


def _spell_numbers(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_spell_numbers(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("type") == "number":
        return _NUMBER
    # A description that is text is a docstring: for readers of the code, not of the schema.
    shown = {key: each for key, each in schema.items() if key != "description" or not isinstance(each, str)}
    return {key: _spell_numbers(each) for key, each in shown.items()}
