"""Collect OpInfo samples as entries of a plan: the call as text, the tensors by the fill that rebuilds them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import Any

import torch

from optest.core.border import Border
from optest.errors import UnknownName, plural, shortened
from optest.plan.sources import Collected, SourceRequest
from optest.spec import ExpectedError, Fault, Reason, contiguous_strides, dtype_names
from optest.spec.calls import MOST_CHARACTERS, Call, call_text
from optest.torch.fact_sheet import facts_of
from optest.torch.opinfo.calls import Unwritable, Variant, call_of, variants_of
from optest.torch.opinfo.fill import array_of, database, digest_of, errors_of, samples_of, tensors_of
from optest.torch.opinfo.trial_call import Refused, facts_of_outputs, refusal_of


def collect(request: SourceRequest) -> Collected:
    """Return every sample and error input of the requested operators as an entry; unusable ones are skipped entries.

    Raises:
        UnknownName: for an operator that OpInfo does not have.
        Unavailable: if OpInfo needs a package that is not installed.
    """
    entries: list[dict[str, Any]] = []
    unsupported: dict[str, list[str]] = {}
    for name, info in _select_operators(request.names).items():
        supported = _supported_dtypes(info, request.device)
        for dtype in request.dtypes or supported:
            if dtype in supported:
                entries += _operator_entries(name, info, dtype, request)
            else:
                unsupported.setdefault(dtype, []).append(name)
        entries += error_entries(name, info, supported, request)
    notes = tuple(
        f"OpInfo has no {dtype} samples of {plural(len(names), 'operator')}: {shortened(names, 5)}"
        for dtype, names in unsupported.items()
    )
    return Collected(backend="torch", origin=f"OpInfo of torch {torch.__version__}", entries=entries, notes=notes)


def _select_operators(names: Sequence[str]) -> dict[str, Any]:
    """Return OpInfo objects for names: full, of all variants, globs; ``all`` without other names means all."""
    infos = database()
    if set(names) == {"all"}:
        return dict(infos)
    selected: dict[str, Any] = {}
    for name in names:
        matching = {full: info for full, info in infos.items() if name in _operator_names(full, info)}
        if not matching and any(letter in name for letter in "*?["):
            matching = {full: info for full, info in infos.items() if fnmatchcase(full, name)}
        if not matching:
            known = dict.fromkeys(alias for full, info in infos.items() for alias in _operator_names(full, info))
            # Only the suggestion: OpInfo has hundreds of names.
            error = UnknownName("operator of OpInfo", name, known)
            raise UnknownName("operator of OpInfo", name, [error.suggestion] if error.suggestion else ())
        selected |= matching
    return selected


def _operator_names(full: str, info: Any) -> tuple[str, ...]:
    return (full, info.name, f"torch.{info.name}", *(alias.name for alias in info.aliases))


def _supported_dtypes(info: Any, device: str) -> tuple[str, ...]:
    """Return the dtypes that OpInfo lists for the device and optest knows; those of the CPU for an unknown device."""
    try:
        supported = info.supported_dtypes(device)
    except RuntimeError:
        supported = info.supported_dtypes("cpu")
    listed = {str(dtype).removeprefix("torch.") for dtype in supported}
    return tuple(name for name in dtype_names() if name in listed)


def _operator_entries(name: str, info: Any, dtype: str, request: SourceRequest) -> list[dict[str, Any]]:
    """Return the entries of one operator in one dtype; a single skipped one if its samples cannot be used."""
    variants = variants_of(info)
    stem = f"opinfo::{name}::{dtype}"
    try:
        if reason := facts_of(f"torch.{name}").no_sample or facts_of(f"torch.{info.name}").no_sample:
            raise Unwritable(reason)
        samples = _build("its samples", lambda: samples_of(name, dtype, request.seed))
    except Unwritable as reason:
        return [_plan_entry(variants[0].function, stem, dtype, skip=str(reason))]
    entries: list[dict[str, Any]] = []
    with _trial_calls():
        for number, sample in enumerate(samples):
            source = {"op": name, "dtype": dtype, "sample": number}
            entries += _entries_of_sample(info, sample, f"{stem}::sample{number}", source, variants, request.device)
    return entries


def _entries_of_sample(
    info: Any, sample: Any, title: str, source: dict[str, Any], variants: Sequence[Variant], device: str
) -> Iterator[dict[str, Any]]:
    """Yield the entry of the function on a sample, and those of the other variants that torch accepts."""
    tensors = tensors_of(sample)
    keys: dict[str, Any] | None = None
    for variant in variants:
        if not variant.takes(sample):
            continue
        name = title + variant.ending, source["dtype"]
        try:
            _require_within_bins(info, sample)
            call = call_of(variant, info, sample, tensors, device)
            entry = _plan_entry(call.function, *name, call=call, kind=variant.kind)
            keys = keys or _tensor_keys(tensors, source)
            facts = facts_of_outputs(entry["attributes"]["call"], tensors)
        except Unwritable as reason:
            yield _plan_entry(variant.function, *name, kind=variant.kind, skip=str(reason))
            return
        except Refused as reason:
            if variant is variants[0]:
                yield _plan_entry(variant.function, *name, kind=variant.kind, skip=str(reason))
            continue
        yield {**entry, **keys, **{key: {**keys.get(key, {}), **value} for key, value in facts.items()}}


def _require_within_bins(info: Any, sample: Any) -> None:
    """Raise Unwritable if equal values are on the edge between bins that the function computes from them."""
    if not facts_of(f"torch.{info.name}").bins_follow_values:
        return
    has_edges = any(isinstance(argument, torch.Tensor) for argument in sample.args) or "range" in sample.kwargs
    values = sample.input
    if not has_edges and values.numel() and bool((values == values.flatten()[0]).all()):
        raise Unwritable("its values are on the edge between two bins, which are computed from them")


# Tag of the cases that expect an error.
_ERROR = "error"


def error_entries(name: str, info: Any, supported: Sequence[str], request: SourceRequest) -> list[dict[str, Any]]:
    """Return the error inputs of one operator as entries ``opinfo::NAME::DTYPE::errorN``; N counts all dtypes.

    The dtype is that of the first tensor; without a tensor float32, or the first of ``supported`` if that lacks it.
    Inputs that torch on the CPU accepts, or refuses with another error, become skipped entries.
    """
    variant = variants_of(info)[0]
    default_dtype = "float32" if "float32" in supported or not supported else supported[0]
    try:
        if reason := facts_of(f"torch.{info.name}").no_refusal:
            raise Unwritable(reason)
        errors = _build("its error inputs", lambda: errors_of(name, request.seed))
    except Unwritable as reason:
        return [_plan_entry(variant.function, f"opinfo::{name}::errors", default_dtype, kind=_ERROR, skip=str(reason))]
    entries = []
    with _trial_calls():
        for number, error in enumerate(errors):
            tensors = tensors_of(error.sample_input)
            dtype = str(tensors[0].dtype).removeprefix("torch.") if tensors else default_dtype
            if not request.dtypes or dtype in request.dtypes:
                source = {"op": name, "dtype": dtype, "sample": number, "of": "errors"}
                title = f"opinfo::{name}::{dtype}::error{number}"
                entries.append(_error_entry(info, error, title, source, variant, request.device))
    return entries


def _error_entry(
    info: Any, error: Any, title: str, source: Mapping[str, Any], variant: Variant, device: str
) -> dict[str, Any]:
    """Return the entry of an error input; a skipped one unless torch on the CPU raises the error OpInfo expects."""
    tensors, dtype = tensors_of(error.sample_input), source["dtype"]
    try:
        keys = _tensor_keys(tensors, source)
        call = call_of(variant, info, error.sample_input, tensors, device, is_refused=True)
        entry = _plan_entry(call.function, title, dtype, call=call, kind=_ERROR, **keys)
        # The tensors of a case never share memory, so an error because of shared memory cannot be reproduced.
        addresses = [tensor.untyped_storage().data_ptr() for tensor in tensors if tensor.numel()]
        if len(set(addresses)) < len(addresses):
            raise Unwritable("two of its tensors share memory")
        # If OpInfo's error does not fit torch on the CPU, no device can pass.
        raised = refusal_of(entry["attributes"]["call"], tensors)
        kind = error.error_type
        if kind is Exception and isinstance(raised, _MISTAKES):
            kind = type(raised)
        expected = ExpectedError(type=kind.__name__, pattern=error.error_regex)
        message = f"{type(raised).__name__}: {raised}"
        if not isinstance(raised, kind) or not expected.matches(message):
            text = expected.required_text()
            wanted = f"{expected.type}{f' with {text}' if text else ''}"
            raise Refused(f"torch on the CPU raises {message[:200]!r}, but OpInfo expects {wanted}")
        entry["expects_error"] = {"type": expected.type, **({"pattern": expected.pattern} if expected.pattern else {})}
    except (Unwritable, Refused) as reason:
        return _plan_entry(variant.function, title, dtype, kind=_ERROR, skip=str(reason))
    return entry


# Errors of mistakes in code, not of refusals: a case expects one only by its type.
_MISTAKES = (AttributeError, ImportError, NameError)


def _plan_entry(
    function: str, name: str, dtype: str, *, call: Call | None = None, kind: str = "function", **keys: Any
) -> dict[str, Any]:
    """Return an entry of ``cases``; ``keys`` need ``skip`` without a call. Raise Unwritable for a call too long."""
    text = call_text(call or Call(function))
    if len(text) > MOST_CHARACTERS:
        raise Unwritable(f"the call has {len(text):,} characters, expected at most {MOST_CHARACTERS:,}")
    return {
        "op": function,
        "name": name,
        "attributes": {"call": text},
        "tags": ["opinfo", dtype, kind],
        **keys,
    }


def _build(subject: str, function: Callable[[], Sequence[Any]]) -> Sequence[Any]:
    """Return the value of an OpInfo function; raise Unwritable if it fails with any exception."""
    try:
        with Border("OpInfo", Reason.BAD_CASE, let_through=lambda: True):
            return function()
    except Fault as fault:
        raise Unwritable(f"{subject} cannot be built: {fault.message[:300]}") from None


@contextmanager
def _trial_calls() -> Iterator[None]:
    """Suppress warnings, keep the random state, and run torch with one thread within the block."""
    # Samples are small: threads that wait for each other cost more than the calls, 20 times more on a busy machine.
    threads = torch.get_num_threads()
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("ignore")
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(threads)


def _tensor_keys(tensors: Sequence[torch.Tensor], source: Mapping[str, Any]) -> dict[str, Any]:
    """Return shapes, dtypes and fills of an entry's tensors; raise Unwritable for a tensor that is not plain memory."""
    if not tensors:
        return {}
    shapes, dtypes, fills = {}, {}, {}
    for index, tensor in enumerate(tensors):
        path = f"input{index}"
        kind, name = type(tensor), str(tensor.dtype).removeprefix("torch.")
        if kind not in (torch.Tensor, torch.nn.Parameter):
            raise Unwritable(f"a tensor is a {kind.__name__}")
        if tensor.layout is not torch.strided:
            raise Unwritable(f"a tensor is {str(tensor.layout).removeprefix('torch.')}")
        if tensor.is_quantized or tensor.device.type != "cpu":
            raise Unwritable(f"a tensor is {'quantized' if tensor.is_quantized else f'on {tensor.device}'}")
        if name not in dtype_names():
            raise Unwritable(f"a tensor is {name}, which optest does not know")
        try:
            digest = digest_of(array_of(tensor))
        except ValueError:
            raise Unwritable(f"a tensor has {tensor.dim()} dimensions, more than NumPy holds") from None
        shape, strides, offset = tuple(tensor.shape), tuple(tensor.stride()), tensor.storage_offset()
        is_plain = strides == contiguous_strides(shape) and not offset
        shapes[path] = [*shape] if is_plain else {"shape": [*shape], "strides": [*strides], "offset": offset}
        dtypes[path] = name
        fills[path] = {"fill": "opinfo", **source, "tensor": index, "digest": digest}
    return {"shapes": shapes, "dtypes": dtypes, "generator": fills}
