"""Another answer to the same case: the same call under other circumstances, judged by the same rule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from optest.spec import Reason

__all__ = ["FurtherAnswer"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FurtherAnswer:
    """``outputs`` by name or in order, with other bits than those that ``run`` returned.

    ``how`` says what was different ("with 2 threads"). ``reason`` is what it is called when this answer leaves the
    rule and the first one does not; None keeps the reason of the comparison. ``inputs`` are those that had other values
    than the case's, by name; what is expected is asked of the reference once more, and nothing where it refuses.
    """

    outputs: Any
    how: str
    reason: Reason | None = None
    inputs: Mapping[str, Any] | None = None
