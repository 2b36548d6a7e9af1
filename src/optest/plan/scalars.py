"""Values of plain YAML scalars: JSON's words and numbers; texts with surprising YAML 1.1 meanings are refused."""

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
# More than 64 digits are text: Python refuses to convert very long numbers.
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]{0,63}|[1-9][0-9]{0,2}(_[0-9]{3}){1,16})")
_FLOAT = re.compile(r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?")
_BASED = re.compile(r"[-+]?0(x[0-9a-fA-F]{1,32}|b[01]{1,64})")
_OCTAL_LOOKALIKE = re.compile(r"[-+]?0(o?[0-9][0-9_]*)")
_SEXAGESIMAL = re.compile(r"[-+]?[0-9]+(:[0-5]?[0-9])+(\.[0-9]*)?")


def json_or_text(text: str) -> Any:
    """Return the JSON value of a text on the command line, the text itself if it is not JSON."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def plain_scalar(text: str) -> tuple[Any, ...]:
    """Return ``(value,)``, or ``(text, why it is ambiguous, a hint)`` if YAML readers differ in its meaning."""
    if text in _WORDS:
        return (_WORDS[text],)
    if text == "<<":
        return MERGE
    # Most scalars are words: the first character avoids the regular expressions.
    first = text[0]
    if first in "yYnNoO":
        if _BOOLEAN_LOOKALIKES.fullmatch(text):
            return text, "YAML 1.1 reads it as a boolean", f'write true or false, or "{text}" if it is a name'
        return (text,)
    if first not in "+-.0123456789":
        return (text,)
    if _INTEGER.fullmatch(text):
        return (int(text),)
    if _FLOAT.fullmatch(text):
        return (float(text),) if isfinite(float(text)) else (text, "float64 has no number as large", "write .inf")
    if _BASED.fullmatch(text):
        sizes = text.lstrip("+-").replace("x", ", ") if re.fullmatch(r"0x[0-9]+", text) else ""
        as_shape = f"[{sizes}] if it is a shape, " if sizes else ""
        hint = f'write {int(text, 0)} if it is a number, {as_shape}"{text}" if it is a name'
        return text, f"YAML 1.1 reads it as {int(text, 0)}", hint
    if _OCTAL_LOOKALIKE.fullmatch(text):
        digits = text.lstrip("+-0oO") or "0"
        return text, "YAML 1.1 reads it as an octal number", f'write {digits}, or "{text}" if it is a name'
    if _SEXAGESIMAL.fullmatch(text):
        return text, "YAML 1.1 reads it as a base-60 number", f'write "{text}" in quotes'
    return (text,)


def quoted(text: str) -> str:
    """Return ``text`` in double quotes, in ASCII, as every YAML version reads it."""
    return '"' + "".join(map(_quoted_character, text)) + '"'


def _quoted_character(char: str) -> str:
    code = ord(char)
    if char in '"\\':
        return f"\\{char}"
    if 0x20 <= code < 0x7F:
        return char
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def number_text(value: float) -> str:
    """Return a float as text that every YAML version reads as this float."""
    if isnan(value):
        return ".nan"
    if isinf(value):
        return ".inf" if value > 0 else "-.inf"
    # YAML 1.1 needs a dot before the exponent.
    mantissa, exponent, power = repr(value).partition("e")
    return (mantissa if "." in mantissa else f"{mantissa}.0") + exponent + power
