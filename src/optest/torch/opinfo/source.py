"""Torch's own OpInfo samples as cases: the call as text, the tensors by what makes them again."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import Any

import torch

from optest.core.border import Border
from optest.errors import UnknownName
from optest.plan.sources import Collected, SourceRequest
from optest.spec import ExpectedError, Fault, Reason, contiguous_strides, dtype_names
from optest.spec.calls import MOST_CHARACTERS, Call, call_text
from optest.torch.fact_sheet import facts_of
from optest.torch.opinfo.calls import Unstatable, Variant, call_of, variants_of
from optest.torch.opinfo.fill import array_of, database, digest_of, errors_of, samples_of, tensors_of
from optest.torch.opinfo.trial_call import Refused, facts_of_outputs, refusal_of


def collect(request: SourceRequest) -> Collected:
    """Every sample of the operators as an entry of a plan; one that cannot be stated is an entry that is skipped.

    Raises:
        UnknownName: for an operator that OpInfo does not have.
        Unavailable: if OpInfo needs a package that is not installed.
    """
    entries: list[dict[str, Any]] = []
    without: dict[str, list[str]] = {}
    for name, info in _chosen(request.names).items():
        supported = _dtypes(info, request.device)
        wanted = request.dtypes or supported
        for dtype in wanted:
            if dtype in supported:
                entries += _entries(name, info, dtype, request)
            else:
                without.setdefault(dtype, []).append(name)
        entries += error_entries(name, info, supported, request)
    notes = tuple(_note_without(dtype, names) for dtype, names in without.items())
    return Collected(backend="torch", origin=f"OpInfo of torch {torch.__version__}", entries=entries, notes=notes)


def _note_without(dtype: str, names: Sequence[str]) -> str:
    listed = ", ".join(names[:5]) + (" …" if len(names) > 5 else "")
    return f"OpInfo has no {dtype} of {len(names)} operator{'s' if len(names) > 1 else ''}: {listed}"


def _chosen(names: Sequence[str]) -> dict[str, Any]:
    """The OpInfo objects that the names mean: a full name, that of all its variants, a glob, or ``all`` alone.

    Beside other names ``all`` is the reduction ``torch.all``.
    """
    every = database()
    if set(names) == {"all"}:
        return dict(every)
    found: dict[str, Any] = {}
    for name in names:
        matching = {full: info for full, info in every.items() if name in _names_of(full, info)}
        if not matching and any(letter in name for letter in "*?["):
            matching = {full: info for full, info in every.items() if fnmatchcase(full, name)}
        if not matching:
            known = dict.fromkeys(each for full, info in every.items() for each in _names_of(full, info))
            error = UnknownName("operator of OpInfo", name, known)
            raise UnknownName("operator of OpInfo", name, [error.suggestion] if error.suggestion else ())
        found |= matching
    return found


def _names_of(full: str, info: Any) -> tuple[str, ...]:
    return (full, info.name, f"torch.{info.name}", *(alias.name for alias in info.aliases))


def _dtypes(info: Any, device: str) -> tuple[str, ...]:
    """What OpInfo says that the device has, of the dtypes that optest knows; for a device unknown to it, the CPU's."""
    try:
        supported = info.supported_dtypes(device)
    except RuntimeError:
        supported = info.supported_dtypes("cpu")
    known = {str(each).removeprefix("torch.") for each in supported}
    return tuple(name for name in dtype_names() if name in known)


def _entries(name: str, info: Any, dtype: str, request: SourceRequest) -> list[dict[str, Any]]:
    """The cases of one operator in one dtype."""
    variants = variants_of(info)
    stem = f"opinfo::{name}::{dtype}"
    try:
        if reason := facts_of(f"torch.{name}").no_sample or facts_of(f"torch.{info.name}").no_sample:
            raise Unstatable(reason)
        samples = _made("its samples", lambda: samples_of(name, dtype, request.seed))
    except Unstatable as why:
        return [_entry(variants[0].function, stem, dtype, skip=str(why))]
    place = {"op": name, "dtype": dtype}
    with _trial_calls():
        return [
            each
            for number, sample in enumerate(samples)
            for each in _entries_of_sample(
                info, sample, f"{stem}::sample{number}", {**place, "sample": number}, variants, request.device
            )
        ]


def _entries_of_sample(
    info: Any, sample: Any, title: str, place: dict[str, Any], variants: Sequence[Variant], device: str
) -> Iterator[dict[str, Any]]:
    """The function on the sample, and its other forms where torch takes it in them too."""
    tensors = tensors_of(sample)
    keys: dict[str, Any] | None = None
    for variant in variants:
        if not variant.takes(sample):
            continue
        about = title + variant.ending, place["dtype"]
        try:
            _require_within_bins(info, sample)
            call = call_of(variant, info, sample, tensors, device)
            stated = _entry(call.function, *about, call=call, kind=variant.kind)
            keys = keys or _tensor_keys(tensors, place)
            facts = facts_of_outputs(stated["attributes"]["call"], tensors)
        except Unstatable as why:
            yield _entry(variant.function, *about, kind=variant.kind, skip=str(why))
            return
        except Refused as why:
            if variant is variants[0]:
                yield _entry(variant.function, *about, kind=variant.kind, skip=str(why))
            continue
        yield {**stated, **keys, **{key: {**keys.get(key, {}), **value} for key, value in facts.items()}}


def _require_within_bins(info: Any, sample: Any) -> None:
    """Raise Unstatable for values on the edge between two bins that are made around them."""
    if not facts_of(f"torch.{info.name}").bins_follow_values:
        return
    has_edges = any(isinstance(each, torch.Tensor) for each in sample.args) or "range" in sample.kwargs
    values = sample.input
    if not has_edges and values.numel() and bool((values == values.flatten()[0]).all()):
        raise Unstatable("its values lie on the edge between two bins, which are made around them")


# What OpInfo says that an operator has to refuse, as cases that expect the refusal.


_ERROR = "error"
"""The tag of these cases, in the place of the form in which a sample is asked."""


def error_entries(name: str, info: Any, supported: Sequence[str], request: SourceRequest) -> list[dict[str, Any]]:
    """The error inputs of one operator, ``opinfo::NAME::DTYPE::errorN``; N counts those of all dtypes.

    The dtype is that of the first tensor. A call without a tensor goes with float32, or with the first of ``supported``
    dtypes, where the operator has no float32. What torch on the CPU accepts, or refuses otherwise, is skipped.
    """
    variant = variants_of(info)[0]
    without_tensors = "float32" if "float32" in supported or not supported else supported[0]
    try:
        if reason := facts_of(f"torch.{info.name}").no_refusal:
            raise Unstatable(reason)
        errors = _made("its error inputs", lambda: errors_of(name, request.seed))
    except Unstatable as why:
        return [_entry(variant.function, f"opinfo::{name}::errors", without_tensors, kind=_ERROR, skip=str(why))]
    found = []
    with _trial_calls():
        for number, error in enumerate(errors):
            tensors = tensors_of(error.sample_input)
            dtype = str(tensors[0].dtype).removeprefix("torch.") if tensors else without_tensors
            if not request.dtypes or dtype in request.dtypes:
                place = {"op": name, "dtype": dtype, "sample": number, "of": "errors"}
                title = f"opinfo::{name}::{dtype}::error{number}"
                found.append(_error_entry(info, error, title, place, variant, request.device))
    return found


def _error_entry(
    info: Any, error: Any, title: str, place: Mapping[str, Any], variant: Variant, device: str
) -> dict[str, Any]:
    tensors, dtype = tensors_of(error.sample_input), place["dtype"]
    try:
        keys = _tensor_keys(tensors, place)
        call = call_of(variant, info, error.sample_input, tensors, device, is_refused=True)
        stated = _entry(call.function, title, dtype, call=call, kind=_ERROR, **keys)
        # each tensor of a case has memory of its own, so nothing can be said of what is refused as they share it
        places = [each.untyped_storage().data_ptr() for each in tensors if each.numel()]
        if len(set(places)) < len(places):
            raise Unstatable("two of its tensors share memory")
        # The type and the regular expression of OpInfo have to fit torch on the CPU: else no device can be right.
        raised = refusal_of(stated["attributes"]["call"], tensors)
        kind = error.error_type
        if kind is Exception and isinstance(raised, _SLIPS):
            kind = type(raised)
        wanted = ExpectedError(type=kind.__name__, pattern=error.error_regex)
        message = f"{type(raised).__name__}: {raised}"
        if not isinstance(raised, kind) or not wanted.matches(message):
            text = wanted.required_text()
            raise Refused(
                f"torch on the CPU says {message[:200]!r}, but OpInfo {wanted.type}{f' with {text}' if text else ''}"
            )
        stated["expects_error"] = {"type": wanted.type, **({"pattern": wanted.pattern} if wanted.pattern else {})}
    except (Unstatable, Refused) as why:
        return _entry(variant.function, title, dtype, kind=_ERROR, skip=str(why))
    return stated


_SLIPS = (AttributeError, ImportError, NameError)
"""What code raises that meant to do something: a refusal by one of them has to be asked for by its name."""


# What entries of a plan say of OpInfo's tensors and calls, whether these are to be answered or to be refused.


def _entry(
    function: str, name: str, dtype: str, *, call: Call | None = None, kind: str = "function", **keys: Any
) -> dict[str, Any]:
    """An entry of ``cases``, with what else its ``keys`` say; without a call it has to say why it is skipped.

    Raises:
        Unstatable: for a call that is too long.
    """
    text = call_text(call or Call(function))
    if len(text) > MOST_CHARACTERS:
        raise Unstatable(f"the call has {len(text):,} characters, more than {MOST_CHARACTERS:,}")
    return {
        "op": function,
        "name": name,
        "attributes": {"call": text},
        "tags": ["opinfo", dtype, kind],
        **keys,
    }


def _made(what: str, make: Callable[[], Sequence[Any]]) -> Sequence[Any]:
    """What OpInfo makes.

    Raises:
        Unstatable: if it cannot.
    """
    try:
        with Border("OpInfo", Reason.BAD_CASE, let_through=lambda: True):
            return make()
    except Fault as fault:
        raise Unstatable(f"{what} cannot be made: {fault.message[:300]}") from None


@contextmanager
def _trial_calls() -> Iterator[None]:
    """Calls that are made here and again by the run: nothing is warned of, and random numbers go on as before.

    Samples are small: threads that wait for each other cost more than the calls, twentyfold on a busy machine.
    """
    threads = torch.get_num_threads()
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("ignore")
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(threads)


def _tensor_keys(tensors: Sequence[torch.Tensor], place: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of an entry that say what its tensors are; ``place`` says for the fill where they are found again.

    Raises:
        Unstatable: for a tensor that is more than elements in memory.
    """
    if not tensors:
        return {}
    shapes, dtypes, fills = {}, {}, {}
    for index, tensor in enumerate(tensors):
        path = f"input{index}"
        kind, name = type(tensor), str(tensor.dtype).removeprefix("torch.")
        if kind not in (torch.Tensor, torch.nn.Parameter):
            raise Unstatable(f"a tensor is a {kind.__name__}")
        if tensor.layout is not torch.strided:
            raise Unstatable(f"a tensor is {str(tensor.layout).removeprefix('torch.')}")
        if tensor.is_quantized or tensor.device.type != "cpu":
            raise Unstatable(f"a tensor is {'quantized' if tensor.is_quantized else f'on {tensor.device}'}")
        if name not in dtype_names():
            raise Unstatable(f"a tensor is {name}, which optest does not know")
        try:
            digest = digest_of(array_of(tensor))
        except ValueError:
            raise Unstatable(f"a tensor has {tensor.dim()} dimensions, more than NumPy holds") from None
        shape, strides, offset = tuple(tensor.shape), tuple(tensor.stride()), tensor.storage_offset()
        is_plain = strides == contiguous_strides(shape) and not offset
        shapes[path] = [*shape] if is_plain else {"shape": [*shape], "strides": [*strides], "offset": offset}
        dtypes[path] = name
        fills[path] = {"fill": "opinfo", **place, "tensor": index, "digest": digest}
    return {"shapes": shapes, "dtypes": dtypes, "generator": fills}
