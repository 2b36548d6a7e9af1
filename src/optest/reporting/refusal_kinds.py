"""What kind of thing an error complains of, by its words: every backend words the same refusal in its own way."""

from __future__ import annotations

import re

__all__ = ["KINDS", "refusal_kind"]

KINDS = {
    "unsupported": r"NotImplemented|not (yet )?(implemented|supported)|unsupported|find an implementation",
    "dtype": r"\bdtypes?\b|data ?types?\b|(scalar|element) types?\b|not defined for|long tensor|or complex|promot",
    "index": r"\bind(ex|ices)\b.*\b(bounds|range)\b|\btarget\b.*\bbounds\b|\bis -?\d+ at \[",
    "dimension": r"\bax[ei]s\b|\branks?\b|\bn?dims?\d?\b.*\b(range|bounds|once|to|least|unique)\b|\bperm|\d-?D\b"
    r"|\d-dim|\bdimension out of range|\d dimensions?\b|dimension or more|(duplicate|unique|repeated).*\bdim",
    "shape": r"\d+x\d+|shape|\bsizes?\b|broadcast|mismatch|incompatible|\bmatch|elements?\b|channels|rows\b"
    r"|columns\b|dimension|same reduction",
    "attribute": r"must|should|expect|invalid|negative|positive|greater|required|cannot|divisor|divi[ds]|value|zero"
    r"|bounds",
}
"""The words of each kind, as a regular expression; of several that fit, the first counts. Else it is ``other``."""

_PATTERNS = {kind: re.compile(words, re.IGNORECASE | re.DOTALL) for kind, words in KINDS.items()}
_PLACES = re.compile(r"\S*/\S*|\S*::\S*|\[\w+Error\]")
"""Files and names of C++, which say where an error was raised."""


def refusal_kind(message: str) -> str:
    """The kind of an error, given as ``TypeError: text``: a key of :data:`KINDS`, or ``other``."""
    text = _PLACES.sub("", message)
    return next((kind for kind, pattern in _PATTERNS.items() if pattern.search(text)), "other")
