"""Modes of torch that see every call, as a model makes it or as it reaches the dispatcher, and what is kept of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map_only

from optest.spec.call_names import canonical
from optest.torch.calls.refusals import NO_KERNEL
from optest.torch.capture.naming import NamedCall, NoCase, Unwritten, named_aten, named_torch
from optest.torch.capture.places import is_of_initialisation, place_of_call, warnings_at_the_model
from optest.torch.capture.values import Described, described
from optest.torch.dispatch_modes import DispatchMode
from optest.torch.tensors import tensors_of

_Naming = Callable[[Any, tuple[Any, ...], Mapping[str, Any]], NamedCall]
RANDOM = "draw random numbers, so no result is the right one"
INITIALISATION = "make, initialise or load parameters"
VACUOUS = "return no finite number, so a pass would prove little"

AUTOCAST = "are refused without autocast, which no case has: capture what it makes of them with --level aten"
OF_FUNCTIONS = "take functions of the model, whose own calls are not seen"
NESTED = "return nested tensors, which no file of cases can hold"
NO_MEMORY = "return zeros without memory, as derivatives in forward mode are"
EMPTY = "return no elements, so nothing can be compared"


@contextmanager
def watched(recorder: Recorder, level: str) -> Iterator[None]:
    """Hand every call that is made inside to the recorder."""
    with warnings_at_the_model(), LEVELS[level](recorder):
        yield


class _Watch:
    """What both modes do with a call: describe it, make it, and keep it if it is a case."""

    def __init__(self, recorder: Recorder, naming: _Naming) -> None:
        self._recorder = recorder
        self._naming = naming

    def call(self, function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        if isinstance(function, HigherOrderOperator):
            self._recorder.leave_out(f"torch.ops.higher_order.{function.name()}", OF_FUNCTIONS)
            return function(*args, **kwargs)
        made = self._described(function, args, kwargs)
        if isinstance(made, NoCase):
            name = torch.overrides.resolve_name(function) or getattr(function, "__name__", function)
            self._recorder.leave_out(str(name), str(made))
            returned = function(*args, **kwargs)
            if isinstance(made, Unwritten):
                # What lay in new memory is no part of the model: the file would be another one each time.
                for each in tensors_of(returned):
                    if each.layout is torch.strided and not each.is_nested and each.device.type != "meta":
                        # There are dtypes of which torch has no zeros.
                        with suppress(RuntimeError, NotImplementedError), torch.no_grad():
                            each.zero_()
            return returned
        states = _random_states()
        returned = function(*args, **kwargs)
        if not all(map(torch.equal, states, _random_states())) or (
            not made.tensors and _is_drawn_on_meta(returned, made)
        ):
            self._recorder.leave_out(made.op, RANDOM)
        elif next(tensors_of(returned), None) is None and not _changes_something(function, made.op):
            pass  # a question: its size, whether it is true
        elif any(each.is_nested for each in tensors_of(returned)):
            self._recorder.leave_out(made.op, NESTED)
        elif any(each._is_zerotensor() for each in tensors_of(returned)):
            self._recorder.leave_out(made.op, NO_MEMORY)
        elif _is_empty(returned):
            self._recorder.leave_out(made.op, EMPTY)
        elif not made.tensors and not _holds_number(returned):
            self._recorder.leave_out(made.op, VACUOUS)
        elif not (torch.is_autocast_enabled() or torch.is_autocast_enabled("cpu")):
            self._recorder.take(made, place_of_call())
        elif _is_refused_without_autocast(function, args, kwargs):
            self._recorder.leave_out(made.op, AUTOCAST)
        else:
            self._recorder.take(made, place_of_call(), "under autocast")
        return returned

    def _described(self, function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Described | NoCase:
        """The call before it is made, since it may change its arguments; why if it is no case."""
        try:
            named = self._naming(function, args, kwargs)
            return NoCase(INITIALISATION) if is_of_initialisation() else described(named)
        except NoCase as reason:
            return reason


def _changes_something(function: Any, op: str) -> bool:
    """Whether a call that returns nothing writes into its arguments: by its name, or as its schema says."""
    if isinstance(function, OpOverloadPacket):
        return any(getattr(function, each)._schema.is_mutable for each in function.overloads())
    if isinstance(function, OpOverload):
        return bool(function._schema.is_mutable)
    return canonical(op).is_in_place


def _is_refused_without_autocast(function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Whether the call needs the dtypes that autocast makes of its tensors; asked on copies."""
    device = next((each.device.type for each in tensors_of((args, kwargs))), "cpu")
    given, named = tree_map_only(torch.Tensor, lambda each: each.detach().clone(), (args, dict(kwargs)))
    without = torch.autocast(device if torch.amp.is_autocast_available(device) else "cpu", enabled=False)
    try:
        with without, torch.no_grad():
            function(*given, **named)
    except NO_KERNEL:
        return True
    return False


def _holds_number(returned: Any) -> bool:
    """Whether a result has a finite element; of what cannot be asked, as a sparse one, it is assumed."""
    return any(
        not (each.is_floating_point() and each.layout is torch.strided) or each.is_meta or bool(each.isfinite().any())
        for each in tensors_of(returned)
    )


def _is_drawn_on_meta(returned: Any, made: Described) -> bool:
    """Whether the call makes random numbers where none are drawn, since nothing has values."""
    packet = getattr(torch.ops.aten, canonical(made.op).operator, None)
    return (
        packet is not None
        and all(each.is_meta for each in tensors_of(returned))
        and any(torch.Tag.nondeterministic_seeded in getattr(packet, each).tags for each in packet.overloads())
    )


def _is_empty(returned: Any) -> bool:
    found = list(tensors_of(returned))
    return bool(found) and all(each.numel() == 0 for each in found)


def _random_states() -> list[torch.Tensor]:
    """Of the generators that a call may have drawn from."""
    states = [torch.get_rng_state()]
    if torch.cuda.is_initialized():
        states += torch.cuda.get_rng_state_all()
    return states


class _Functions(TorchFunctionMode):  # type: ignore[misc] # torch leaves it without types
    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._watch = _Watch(recorder, named_torch)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.compiler.is_compiling():  # by torch.cond, say: what is traced now is called afterwards
            return func(*args, **(kwargs or {}))
        return self._watch.call(func, args, kwargs or {})


class _Dispatched(DispatchMode):
    supports_higher_order_operators = True

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._watch = _Watch(recorder, named_aten)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._watch.call(func, args, kwargs or {})


LEVELS: Mapping[str, Callable[[Recorder], Any]] = {"torch": _Functions, "aten": _Dispatched}


# What was seen, once for each different call: cases, how often each was made, and what was left out.


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which calls become cases: patterns of names (all if there are none), bytes of the tensors that a call takes."""

    ops: tuple[str, ...] = ()
    min_bytes: int = 0
    max_bytes: int | None = None

    def why_not(self, made: Described) -> str:
        """Why a call is none of them, "" if it is."""
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

    selection: Selection = field(default_factory=Selection)
    calls: int = 0
    left_out: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How often a function was left out for a reason."""

    not_selected: Counter[str] = field(default_factory=Counter)
    """How many calls were not selected, by reason."""

    devices: set[str] = field(default_factory=set)
    """Types of the devices on which tensors were."""

    _found: dict[str, CapturedCase] = field(default_factory=dict)

    def take(self, made: Described, place: str, *notes: str) -> None:
        """Note a call that is a case."""
        if why_not := self.selection.why_not(made):
            self.not_selected[why_not] += 1
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
