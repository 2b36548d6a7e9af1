"""Torch's own OpInfo samples as cases: the call as text, the tensors by what makes them again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any

import torch

from optest.errors import UnknownName
from optest.plan.sources import Collected, SourceRequest
from optest.spec import dtype_names
from optest.torch.fact_sheet import facts_of
from optest.torch.opinfo.calls import Unstatable, call_of
from optest.torch.opinfo.entries import entry, made, tensor_keys, trial_calls
from optest.torch.opinfo.errors import error_entries
from optest.torch.opinfo.fill import database, samples_of, tensors_of
from optest.torch.opinfo.trial_call import Refused, facts_of_outputs
from optest.torch.opinfo.variants import Variant, variants_of

__all__ = ["collect"]


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
    notes = tuple(_told_without(dtype, names) for dtype, names in without.items())
    return Collected(origin=f"OpInfo of torch {torch.__version__}", entries=entries, notes=notes)


def _told_without(dtype: str, names: Sequence[str]) -> str:
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


def _entries(name: str, info: Any, dtype: str, request: SourceRequest) -> Iterator[dict[str, Any]]:
    """The cases of one operator in one dtype."""
    variants = variants_of(info)
    stem = f"opinfo::{name}::{dtype}"
    try:
        if reason := facts_of(f"torch.{name}").no_sample or facts_of(f"torch.{info.name}").no_sample:
            raise Unstatable(reason)
        samples = made("its samples", lambda: samples_of(name, dtype, request.seed))
    except Unstatable as why:
        yield entry(variants[0].function, stem, dtype, skip=str(why))
        return
    with trial_calls():
        for number, sample in enumerate(samples):
            place = {"op": name, "dtype": dtype, "sample": number}
            yield from _entries_of_sample(info, sample, f"{stem}::sample{number}", place, variants, request.device)


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
            stated = entry(call.function, *about, call=call, kind=variant.kind)
            keys = keys or tensor_keys(tensors, place)
            facts = facts_of_outputs(stated["attributes"]["call"], tensors)
        except Unstatable as why:
            yield entry(variant.function, *about, kind=variant.kind, skip=str(why))
            return
        except Refused as why:
            if variant is variants[0]:
                yield entry(variant.function, *about, kind=variant.kind, skip=str(why))
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
