"""A function captured here, without a file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from optest.torch.capture.watching import Recorder, Selection, record_calls


def recorded(function: Callable[[], object], level: str = "torch", **asked: Any) -> Recorder:
    recorder = Recorder(selection=Selection(**asked))
    with record_calls(recorder, level):
        function()
    return recorder


def entries_of(function: Callable[[], object], level: str = "torch", **asked: Any) -> list[dict[str, Any]]:
    """The cases without name and description."""
    cases = recorded(function, level, **asked).cases()
    return [{key: value for key, value in case.items() if key not in ("name", "description")} for case in cases]


def entry_of(function: Callable[[], object], level: str = "torch") -> dict[str, Any]:
    (entry,) = entries_of(function, level)
    return entry


def call_of(function: Callable[[], object], level: str = "torch") -> str:
    """The one call as a line, its tensors by their shapes."""
    entry = entry_of(function, level)
    words = [_word(each) for each in entry.get("inputs", ())]
    words += [
        f"{name}={_word({'value': v} if not isinstance(v, dict) else v)}" for name, v in entry.get("kwmap", {}).items()
    ]
    return f"{entry['op']}({', '.join(words)})"


def _word(entry: dict[str, Any]) -> str:
    ((kind, value),) = entry.items()
    if kind == "tensor":
        return "x".join(map(str, value["shape"])) or "scalar"
    if kind == "tensor_list":
        return f"[{', '.join(_word({'tensor': each}) for each in value)}]"
    if kind in ("tuple", "list"):
        return f"{kind}({', '.join(map(_word, value))})"
    return str(value)
