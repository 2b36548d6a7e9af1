"""What a plain YAML scalar means: JSON's words and numbers; readings of YAML 1.1 that surprise people are refused."""

from __future__ import annotations

import json
import re
from math import isfinite, isinf, isnan
from typing import Any

MERGE = ("<<",)
_WORDS = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
    ".inf": float("inf"), ".Inf": float("inf"), ".INF": float("inf"),
    "+.inf": float("inf"), "-.inf": float("-inf"), "-.Inf": float("-inf"), "-.INF": float("-inf"),
    ".nan": float("nan"), ".NaN": float("nan"), ".NAN": float("nan"),
}  # fmt: skip
_BOOLEAN_LOOKALIKES = re.compile(r"yes|no|on|off", re.IGNORECASE)
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]{0,63}|[1-9][0-9]{0,2}(_[0-9]{3}){1,16})")
_FLOAT = re.compile(r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?")
_BASED = re.compile(r"[-+]?0(x[0-9a-fA-F]{1,32}|b[01]{1,64})")
_OCTAL_LOOKALIKE = re.compile(r"[-+]?0(o?[0-9][0-9_]*)")
_SEXAGESIMAL = re.compile(r"[-+]?[0-9]+(:[0-5]?[0-9])+(\.[0-9]*)?")


def json_or_text(text: str) -> Any:
    """What a value on the command line is: JSON, else text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def plain_scalar(text: str) -> tuple[Any, ...]:
    """Return ``(value,)``, or ``(text, what is wrong, what to write)`` for a text that YAML readers disagree about."""
    if text in _WORDS:
        return (_WORDS[text],)
    if text == "<<":
        return MERGE
    first = text[0]
    if first in "yYnNoO":
        if _BOOLEAN_LOOKALIKES.fullmatch(text):
            return _trap(text, "YAML 1.1 reads it as a boolean", f'write true or false, or "{text}" if it is a name')
        return (text,)
    if first not in "+-.0123456789":
        return (text,)
    if _INTEGER.fullmatch(text):
        return (int(text),)
    if _FLOAT.fullmatch(text):
        return (float(text),) if isfinite(float(text)) else _trap(text, "no float64 is that large", "write .inf")
    if _BASED.fullmatch(text):
        sizes = text.lstrip("+-").replace("x", ", ") if re.fullmatch(r"0x[0-9]+", text) else ""
        as_shape = f"[{sizes}] if it is a shape, " if sizes else ""
        hint = f'write {int(text, 0)} if it is a number, {as_shape}"{text}" if it is a name'
        return _trap(text, f"YAML 1.1 reads it as {int(text, 0)}", hint)
    if _OCTAL_LOOKALIKE.fullmatch(text):
        digits = text.lstrip("+-0oO") or "0"
        return _trap(text, "YAML 1.1 reads it as an octal number", f'write {digits}, or "{text}" if it is a name')
    if _SEXAGESIMAL.fullmatch(text):
        return _trap(text, "YAML 1.1 reads it as a number to the base 60", f'write "{text}" in quotes')
    return (text,)


def _trap(text: str, fault: str, hint: str) -> tuple[str, str, str]:
    return text, fault, hint


def quoted(text: str) -> str:
    """``text`` in double quotes, in ASCII, as YAML of every version reads it."""
    return '"' + "".join(map(_quoted_character, text)) + '"'


def _quoted_character(char: str) -> str:
    code = ord(char)
    if char in '"\\':
        return f"\\{char}"
    if 0x20 <= code < 0x7F:
        return char
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def number_text(value: float) -> str:
    """A float that YAML of every version reads as that float: 1.1 wants a dot before the exponent."""
    if isnan(value):
        return ".nan"
    if isinf(value):
        return ".inf" if value > 0 else "-.inf"
    mantissa, exponent, power = repr(value).partition("e")
    return (mantissa if "." in mantissa else f"{mantissa}.0") + exponent + power
