"""What was seen, once for each different call: cases, how often each was made, and what was left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from optest.spec.call_names import canonical
from optest.torch.capture.values import Described

__all__ = ["Asked", "CapturedCase", "Recorder"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Which calls are wanted: patterns of names (all if there are none), bytes of the tensors that a call takes."""

    ops: tuple[str, ...] = ()
    min_bytes: int = 0
    max_bytes: int | None = None

    def why_not(self, made: Described) -> str:
        """Why a call is not wanted, "" if it is."""
        spelled = canonical(made.op)
        names = (made.op, spelled.word, spelled.operator)
        if self.ops and not any(fnmatchcase(name, each) for each in self.ops for name in names):
            return "have another name than --ops asks for"
        size = sum(each.numel() * each.element_size() for each in made.tensors)
        if size < self.min_bytes:
            return f"take fewer than {self.min_bytes:,} bytes of tensors (--min-bytes)"
        if self.max_bytes is not None and size > self.max_bytes:
            return f"take more than {self.max_bytes:,} bytes of tensors (--max-bytes)"
        return ""


@dataclass(slots=True, kw_only=True)
class CapturedCase:
    """A call as the keys of a case, where it was first made, and how often."""

    entry: dict[str, Any]
    places: dict[str, None]
    notes: list[str]
    calls: int

    def written(self, name: str) -> dict[str, Any]:
        """The entry of ``cases``."""
        place, *others = self.places
        if others:
            place += f" (and {len(others)} other line{'s' * (len(others) > 1)})"
        parts = [place, *self.notes]
        if self.calls > 1:
            parts.append(f"{self.calls} calls")
        return {"name": name, **self.entry, "description": "; ".join(parts)}


@dataclass(slots=True)
class Recorder:
    """Takes calls one after the other."""

    asked: Asked = field(default_factory=Asked)
    calls: int = 0
    left_out: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How often a function was left out for a reason."""

    not_asked: Counter[str] = field(default_factory=Counter)
    """How many cases were not asked for, by reason."""

    devices: set[str] = field(default_factory=set)
    """Types of the devices on which tensors were."""

    _found: dict[str, CapturedCase] = field(default_factory=dict)

    def take(self, made: Described, place: str, *notes: str) -> None:
        """Note a call that is a case."""
        if why_not := self.asked.why_not(made):
            self.not_asked[why_not] += 1
            return
        self.calls += 1
        self.devices |= {each.device.type for each in made.tensors}
        entry: dict[str, Any] = {"op": made.op}
        if made.inputs:
            entry["inputs"] = made.inputs
        if made.kwmap:
            entry["kwmap"] = made.kwmap
        self._add(CapturedCase(entry=entry, places={place: None}, notes=[*made.notes, *notes], calls=1))

    def _add(self, found: CapturedCase) -> None:
        known = self._found.setdefault(repr(found.entry), found)
        if known is not found:
            known.calls += found.calls
            known.places |= found.places

    def leave_out(self, function: str, reason: str) -> None:
        self.left_out[function, reason] += 1

    def change(self, shrink: Callable[[Mapping[str, Any]], tuple[dict[str, Any], list[str]]]) -> None:
        """Replace every entry by what ``shrink`` makes of it, with notes; what becomes equal is one case."""
        before, self._found = self._found, {}
        for found in before.values():
            found.entry, notes = shrink(found.entry)
            found.notes += notes
            self._add(found)

    def cases(self) -> list[dict[str, Any]]:
        """Entries of ``cases`` in the order in which the model first made the calls."""
        counts: Counter[str] = Counter()
        entries = []
        for found in self._found.values():
            last = _word(found.entry["op"])
            counts[last] += 1
            entries.append(found.written(f"{last}.{counts[last]}"))
        return entries


def _word(op: str) -> str:
    """``view`` of ``torch.Tensor.view``, ``add.Tensor`` of ``torch.ops.aten.add.Tensor``, ``mine.scale.default`` of an
    operator of one's own."""
    if op.startswith("torch.ops."):
        return op.removeprefix("torch.ops.").removeprefix("aten.")
    return op.rpartition(".")[2]
