"""Torch modes that record every call, as a model makes it or as the dispatcher receives it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from optest.torch.capture.values import Described, describe_call
from optest.torch.dispatch_modes import DispatchMode
from optest.torch.tensors import tensors_of

_NameCall = Callable[[Any, tuple[Any, ...], Mapping[str, Any]], NamedCall]
RANDOM = "draw random numbers, so no result is the right one"
INITIALISATION = "make, initialise or load parameters"
VACUOUS = "return no finite number, so a pass would be inconclusive"
AUTOCAST = "are refused without autocast, which cases do not use: capture the casted calls with --level aten"
OF_FUNCTIONS = "take functions of the model, whose own calls are not seen"
NESTED = "return nested tensors, which no file of cases can hold"
NO_MEMORY = "return zeros without memory, as derivatives in forward mode are"
EMPTY = "return no elements, so nothing can be compared"


@contextmanager
def record_calls(recorder: Recorder, level: str) -> Iterator[None]:
    """Pass every torch call within the block to the recorder; ``level`` is a key of LEVELS."""
    with warnings_at_the_model(), LEVELS[level](recorder):
        yield


class _CallWatcher:
    """Common part of both modes: describe a call, execute it, and record it if it is a case."""

    def __init__(self, recorder: Recorder, naming: _NameCall) -> None:
        self._recorder = recorder
        self._naming = naming

    def call(self, function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Execute the call and return its result; record it as a case, or its name and the reason against."""
        if isinstance(function, HigherOrderOperator):
            self._recorder.leave_out(f"torch.ops.higher_order.{function.name()}", OF_FUNCTIONS)
            return function(*args, **kwargs)
        call = self._described(function, args, kwargs)
        if isinstance(call, NoCase):
            name = torch.overrides.resolve_name(function) or getattr(function, "__name__", function)
            self._recorder.leave_out(str(name), str(call))
            result = function(*args, **kwargs)
            if isinstance(call, Unwritten):
                # Uninitialised values are no part of the model, and the file would differ from run to run.
                for tensor in tensors_of(result):
                    if tensor.layout is torch.strided and not tensor.is_nested and tensor.device.type != "meta":
                        # torch has no zeros of some dtypes.
                        with suppress(RuntimeError, NotImplementedError), torch.no_grad():
                            tensor.zero_()
            return result
        states = _random_states()
        result = function(*args, **kwargs)
        results = list(tensors_of(result))
        if not all(map(torch.equal, states, _random_states())) or (
            not call.tensors and _is_drawn_on_meta(result, call)
        ):
            self._recorder.leave_out(call.op, RANDOM)
        elif not results and not _changes_something(function, call.op):
            pass  # a query, such as size() or bool()
        elif any(tensor.is_nested for tensor in results):
            self._recorder.leave_out(call.op, NESTED)
        elif any(tensor._is_zerotensor() for tensor in results):
            self._recorder.leave_out(call.op, NO_MEMORY)
        elif results and all(tensor.numel() == 0 for tensor in results):
            self._recorder.leave_out(call.op, EMPTY)
        elif not call.tensors and not _holds_number(results):
            self._recorder.leave_out(call.op, VACUOUS)
        elif not (torch.is_autocast_enabled() or torch.is_autocast_enabled("cpu")):
            self._recorder.take(call, place_of_call())
        elif _is_refused_without_autocast(function, args, kwargs):
            self._recorder.leave_out(call.op, AUTOCAST)
        else:
            self._recorder.take(call, place_of_call(), "under autocast")
        return result

    def _described(self, function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Described | NoCase:
        """Return the described call, or the reason why it is no case."""
        # Before the call, which may change its arguments.
        try:
            call = self._naming(function, args, kwargs)
            return NoCase(INITIALISATION) if is_of_initialisation() else describe_call(call)
        except NoCase as reason:
            return reason


def _changes_something(function: Any, op: str) -> bool:
    """Return whether the call writes into its arguments, by its schema or, for a Python function, by its name."""
    if isinstance(function, OpOverloadPacket):
        return any(getattr(function, name)._schema.is_mutable for name in function.overloads())
    if isinstance(function, OpOverload):
        return bool(function._schema.is_mutable)
    return canonical(op).is_in_place


def _is_refused_without_autocast(function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Return whether the call has no kernel without autocast's casts; executed on copies of its tensors."""
    device = next((tensor.device.type for tensor in tensors_of((args, kwargs))), "cpu")
    copies, copied_kwargs = tree_map_only(torch.Tensor, lambda tensor: tensor.detach().clone(), (args, dict(kwargs)))
    without = torch.autocast(device if torch.amp.is_autocast_available(device) else "cpu", enabled=False)
    try:
        with without, torch.no_grad():
            function(*copies, **copied_kwargs)
    except NO_KERNEL:
        return True
    return False


def _holds_number(tensors: Sequence[torch.Tensor]) -> bool:
    """Return whether a tensor has a finite element; assumed for integers, sparse and meta tensors."""
    return any(
        not (t.is_floating_point() and t.layout is torch.strided) or t.is_meta or bool(t.isfinite().any())
        for t in tensors
    )


def _is_drawn_on_meta(result: Any, call: Described) -> bool:
    """Return whether the call is random and all its results are on the meta device, which draws no numbers."""
    packet = getattr(torch.ops.aten, canonical(call.op).operator, None)
    return (
        packet is not None
        and all(tensor.is_meta for tensor in tensors_of(result))
        and any(torch.Tag.nondeterministic_seeded in getattr(packet, name).tags for name in packet.overloads())
    )


def _random_states() -> list[torch.Tensor]:
    states = [torch.get_rng_state()]
    if torch.cuda.is_initialized():
        states += torch.cuda.get_rng_state_all()
    return states


class _FunctionMode(TorchFunctionMode):  # type: ignore[misc] # untyped in torch
    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._watch = _CallWatcher(recorder, named_torch)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.compiler.is_compiling():  # in torch.cond, for example: the traced functions are called afterwards
            return func(*args, **(kwargs or {}))
        return self._watch.call(func, args, kwargs or {})


class _DispatchedCalls(DispatchMode):
    supports_higher_order_operators = True

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._watch = _CallWatcher(recorder, named_aten)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._watch.call(func, args, kwargs or {})


LEVELS: Mapping[str, Callable[[Recorder], Any]] = {"torch": _FunctionMode, "aten": _DispatchedCalls}


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Filter of calls: patterns of names (no pattern selects all), and bounds of the bytes of a call's tensors."""

    ops: tuple[str, ...] = ()
    min_bytes: int = 0
    max_bytes: int | None = None

    def why_not(self, call: Described) -> str:
        """Return the reason why a call is not selected, "" if it is."""
        spelled = canonical(call.op)
        names = (call.op, spelled.word, spelled.operator)
        if self.ops and not any(fnmatchcase(name, pattern) for pattern in self.ops for name in names):
            return "match no pattern of --ops"
        size = sum(tensor.numel() * tensor.element_size() for tensor in call.tensors)
        if size < self.min_bytes:
            return f"take fewer than {self.min_bytes:,} bytes of tensors (--min-bytes)"
        if self.max_bytes is not None and size > self.max_bytes:
            return f"take more than {self.max_bytes:,} bytes of tensors (--max-bytes)"
        return ""


@dataclass(slots=True, kw_only=True)
class CapturedCase:
    """A call as the keys of a case, with the model's lines that make it, notes, and the number of calls."""

    entry: dict[str, Any]
    places: dict[str, None]
    notes: list[str]
    calls: int

    def written(self, name: str) -> dict[str, Any]:
        """Return the entry of ``cases``: the call with its name and a description of lines, notes and count."""
        place, *others = self.places
        if others:
            place += f" (and {len(others)} other line{'s' * (len(others) > 1)})"
        parts = [place, *self.notes]
        if self.calls > 1:
            parts.append(f"{self.calls} calls")
        return {"name": name, **self.entry, "description": "; ".join(parts)}


@dataclass(slots=True)
class Recorder:
    """Collector of recorded calls, one case for all equal calls.

    ``left_out`` counts calls by function and reason, ``not_selected`` by reason; ``devices`` are the types of the
    devices of their tensors.
    """

    selection: Selection = field(default_factory=Selection)
    calls: int = 0
    left_out: Counter[tuple[str, str]] = field(default_factory=Counter)
    not_selected: Counter[str] = field(default_factory=Counter)
    devices: set[str] = field(default_factory=set)
    _cases: dict[str, CapturedCase] = field(default_factory=dict)

    def take(self, call: Described, place: str, *notes: str) -> None:
        """Add a call as a case if it is selected, else count the reason."""
        if why_not := self.selection.why_not(call):
            self.not_selected[why_not] += 1
            return
        self.calls += 1
        self.devices |= {tensor.device.type for tensor in call.tensors}
        entry: dict[str, Any] = {"op": call.op}
        if call.inputs:
            entry["inputs"] = call.inputs
        if call.kwmap:
            entry["kwmap"] = call.kwmap
        self._add(CapturedCase(entry=entry, places={place: None}, notes=[*call.notes, *notes], calls=1))

    def _add(self, case: CapturedCase) -> None:
        known = self._cases.setdefault(repr(case.entry), case)
        if known is not case:
            known.calls += case.calls
            known.places |= case.places

    def leave_out(self, function: str, reason: str) -> None:
        self.left_out[function, reason] += 1

    def change(self, shrink: Callable[[Mapping[str, Any]], tuple[dict[str, Any], list[str]]]) -> None:
        """Replace each entry by the one that ``shrink`` returns, add its notes, and merge equal entries."""
        before, self._cases = self._cases, {}
        for case in before.values():
            case.entry, notes = shrink(case.entry)
            case.notes += notes
            self._add(case)

    def cases(self) -> list[dict[str, Any]]:
        """Return the entries of ``cases`` in the order of their first call, numbered by operator: ``add.1``."""
        counts: Counter[str] = Counter()
        entries = []
        for case in self._cases.values():
            word = _short_name(case.entry["op"])
            counts[word] += 1
            entries.append(case.written(f"{word}.{counts[word]}"))
        return entries


def _short_name(op: str) -> str:
    """Return ``view`` of ``torch.Tensor.view``, ``add.Tensor`` of ``torch.ops.aten.add.Tensor``, and
    ``mine.scale.default`` of ``torch.ops.mine.scale.default``.
    """
    if op.startswith("torch.ops."):
        return op.removeprefix("torch.ops.").removeprefix("aten.")
    return op.rpartition(".")[2]
