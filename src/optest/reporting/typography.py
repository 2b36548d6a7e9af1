"""How text and numbers look: digits that tell two numbers apart, safe characters, line widths, durations."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Sequence

from optest.errors import UnknownName
from optest.spec import DType, dtype

MOST_DIGITS = 9

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
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """``text`` with escape sequences and other controls spelled out, so that no output can steer the terminal."""
    text = text.replace("\r\n", "\n").expandtabs(4)
    return _UNPRINTABLE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


_ANSI = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # colours, cursor movement
    r"|(?:\x1b[\]PX^_]|\x9d)[^\x07\x1b\x9c]{0,4096}(?:\x07|\x1b\\|\x9c)"  # titles, links
    r"|\x1b[ -/]*[0-~]"
)


def without_ansi(text: str) -> str:
    """``text`` without the sequences that colour a terminal or steer it; for reports that nobody reads on one."""
    return _ANSI.sub("", text)


def ascii_only(text: str, encoding: str = "ascii") -> str:
    """``text`` for a stream that cannot show every character: signs become words, the rest is escaped."""
    return text.translate(_ASCII).encode(encoding, "backslashreplace").decode(encoding)


def tell_apart(got: float | str | None, expected: float | str | None, dtype_name: str) -> tuple[str, str]:
    """Both numbers with the digits that the dtype has, 9 at most, or a few more where those look the same.

    >>> tell_apart(0.1875, 0.1904296875, "float16")
    ('0.1875', '0.19043')
    """
    kind = _known(dtype_name)
    digits = min(MOST_DIGITS, _digits(kind))
    pair = number(got, digits, kind), number(expected, digits, kind)
    if pair[0] != pair[1] or not (isinstance(got, float) or isinstance(expected, float)):
        return pair
    if not (_finite(got) and _finite(expected)) or got == expected:
        return pair
    for more in range(digits + 1, MOST_DIGITS + 1):
        closer = number(got, more, kind), number(expected, more, kind)
        if closer[0] != closer[1]:
            return closer
    difference = float(got) - float(expected)  # type: ignore[arg-type]
    return f"{pair[0]}, {abs(difference):.2g} {'more' if difference > 0 else 'less'} than wanted", pair[1]


def number(value: float | str | None, digits: int = MOST_DIGITS, kind: DType | None = None) -> str:
    """One value as text; integers keep every digit."""
    if value is None:
        return "nothing"
    if isinstance(value, str):
        return printable(value)
    if kind is not None and kind.name == "bool" and value in (0, 1):
        return str(bool(value))
    if isinstance(value, int):
        return str(value)
    return f"{value:.{digits}g}"


def _known(name: str) -> DType | None:
    try:
        return dtype(name)
    except UnknownName:
        return None


def _digits(kind: DType | None) -> int:
    """How many decimal digits tell every two values of a binary format apart: 1 + ceil(p log10 2)."""
    if kind is None or not kind.precision:
        return MOST_DIGITS
    return 1 + math.ceil(kind.precision * math.log10(2))


def _finite(value: float | str | None) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)


def index_text(index: Sequence[int] | None) -> str:
    return "" if index is None else f"[{', '.join(map(str, index))}]"


def by_invariants_text(count: int) -> str:
    """What stands behind a number of passed cases, of those whose values were never compared."""
    return f" ({count:,} by invariants alone, never compared with a reference)"


def counted(count: int, word: str) -> str:
    """``1,234 cases``."""
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def duration(seconds: float) -> str:
    """``1.2 ms``, ``0.41 s``, ``2 min 05 s``, ``1 h 02 min``."""
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
    """Break prose at words; a command or quoted output (``again:``, ``command:``, deeper indents) stays one line."""
    indent = line[: len(line) - len(line.lstrip())]
    verbatim = len(indent) > 2 or line.lstrip().startswith(("again:", "command:"))
    if verbatim or width < 20 or len(line) <= width:
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
    """``text`` in at most ``width`` characters, the end replaced by an ellipsis."""
    return text if len(text) <= width else f"{text[: max(0, width - 1)]}…"


def columns(rows: Sequence[Sequence[str]], *, left: frozenset[int], indent: str = "  ") -> list[str]:
    """Align ``rows``: the columns numbered in ``left`` to the left, the others, numbers, to the right."""
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if place in left else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append((indent + "  ".join(cells)).rstrip())
    return lines
