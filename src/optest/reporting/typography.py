"""Formatting of text and numbers: digits that distinguish two numbers, safe characters, line widths, durations."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Sequence

from optest.errors import UnknownName
from optest.spec import DType, dtype

# Enough to distinguish any two float32 values.
MAX_DIGITS = 9

_ASCII = str.maketrans(
    {
        "±": "+/-",
        "×": "x",
        "…": "...",
        "≤": "<=",
        "≥": ">=",
        "≠": "!=",
        "√": "sqrt",
        "Σ": "sum ",
        "½": "1/2",
        "·": "*",
        "−": "-",
        "–": "-",
        "—": "-",
        "→": "->",
        "∞": "inf",
        "µ": "u",
        "²": "^2",
        "━": "=",
        "─": "-",
        "░": "-",
        "▒": "+",
        "▓": "*",
        "█": "#",
        "“": '"',
        "”": '"',
        "’": "'",
    }
)
# Controls except tab and newline, line separators, bidirectional controls, surrogates.
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """Return ``text`` with tabs expanded and control characters escaped, so that it cannot control a terminal."""
    text = text.replace("\r\n", "\n").expandtabs(4)
    return _UNPRINTABLE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


_ANSI = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # colours, cursor movement
    r"|(?:\x1b[\]PX^_]|\x9d)[^\x07\x1b\x9c]{0,4096}(?:\x07|\x1b\\|\x9c)"  # titles, links
    r"|\x1b[ -/]*[0-~]"
)


def without_ansi(text: str) -> str:
    """Return ``text`` without escape sequences of terminals, for reports that are not read on one."""
    return _ANSI.sub("", text)


def ascii_only(text: str, encoding: str = "ascii") -> str:
    """Return ``text`` in the characters of an encoding: symbols become words or ASCII signs, others are escaped."""
    return text.translate(_ASCII).encode(encoding, "backslashreplace").decode(encoding)


def tell_apart(got: float | str | None, expected: float | str | None, dtype_name: str) -> tuple[str, str]:
    """Return both numbers with the digits of their dtype, at most 9; with more digits if the texts are equal.

    If 9 digits do not distinguish them, the first text has the difference: ``0.1, 1.5e-12 more than expected``.

    >>> tell_apart(0.1875, 0.1904296875, "float16")
    ('0.1875', '0.19043')
    """
    try:
        kind = dtype(dtype_name)
    except UnknownName:  # of an imported result
        kind = None
    digits = MAX_DIGITS
    if kind is not None and kind.precision:
        # 1 + ceil(p log10 2) decimal digits distinguish any two values of a binary format of precision p.
        digits = min(MAX_DIGITS, 1 + math.ceil(kind.precision * math.log10(2)))
    pair = number(got, digits, kind), number(expected, digits, kind)
    if pair[0] != pair[1] or not (isinstance(got, float) or isinstance(expected, float)):
        return pair
    if not (_is_finite(got) and _is_finite(expected)) or got == expected:
        return pair
    for more in range(digits + 1, MAX_DIGITS + 1):
        closer = number(got, more, kind), number(expected, more, kind)
        if closer[0] != closer[1]:
            return closer
    difference = float(got) - float(expected)  # type: ignore[arg-type]
    return f"{pair[0]}, {abs(difference):.2g} {'more' if difference > 0 else 'less'} than expected", pair[1]


def number(value: float | str | None, digits: int = MAX_DIGITS, kind: DType | None = None) -> str:
    """Return a value with ``digits`` significant digits; an integer with all of them, None as ``nothing``."""
    if value is None:
        return "nothing"
    if isinstance(value, str):
        return printable(value)
    if kind is not None and kind.name == "bool" and value in (0, 1):
        return str(bool(value))
    if isinstance(value, int):
        return str(value)
    return f"{value:.{digits}g}"


def _is_finite(value: float | str | None) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)


def index_text(index: Sequence[int] | None) -> str:
    return "" if index is None else f"[{', '.join(map(str, index))}]"


def by_invariants_text(count: int) -> str:
    """Return the remark that follows a number of passed cases: ``count`` of them have no reference."""
    return f" ({count:,} only by invariants, without a reference)"


def counted(count: int, word: str) -> str:
    """Return ``1,234 cases``: with separators of thousands, and the plural of ``word`` if needed."""
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def duration(seconds: float) -> str:
    """Return a time in a fitting unit: ``1.2 ms``, ``0.41 s``, ``2 min 05 s``, ``1 h 02 min``."""
    # The limits are half a digit lower than the units: 0.0996 s would be rounded to 100 ms.
    if seconds < 0.0995:
        milliseconds = seconds * 1e3
        return f"{milliseconds:.3f} ms" if milliseconds < 0.0995 else f"{milliseconds:.1f} ms"
    if seconds < 9.995:
        return f"{seconds:.2f} s"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"


def wrap(line: str, width: int) -> list[str]:
    """Break a line of prose at words into lines of ``width``; return commands and quoted output as one line."""
    indent = line[: len(line) - len(line.lstrip())]
    # A command must stay one line to be copied. Quoted output is indented by more than two spaces.
    is_verbatim = len(indent) > 2 or line.lstrip().startswith(("reproduce:", "command:"))
    if is_verbatim or width < 20 or len(line) <= width:
        return [line]
    return textwrap.wrap(
        line.strip(),
        width,
        initial_indent=indent,
        subsequent_indent=f"{indent}  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def clip(text: str, width: int) -> str:
    """Return ``text`` in at most ``width`` characters; an ellipsis replaces the end of a longer one."""
    return text if len(text) <= width else f"{text[: max(0, width - 1)]}…"


def columns(rows: Sequence[Sequence[str]], *, left: frozenset[int], indent: str = "  ") -> list[str]:
    """Return ``rows`` as aligned lines; columns with an index in ``left`` to the left, the others to the right."""
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if index in left else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append((indent + "  ".join(cells)).rstrip())
    return lines
