"""Torch's own OpInfo samples as cases: the call as text, the tensors by what makes them again."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any

import torch

from optest.core.border import Border
from optest.errors import UnknownName
from optest.plan.sources import Collected, SourceRequest
from optest.spec import Fault, Reason, dtype_names
from optest.torch.fact_sheet import facts_of
from optest.torch.opinfo.calls import Unstatable, recorded_call, sample_call
from optest.torch.opinfo.entries import one_thread, skipped, tensor_keys, text_of_call
from optest.torch.opinfo.errors import error_entries
from optest.torch.opinfo.fill import database, samples_of, tensors_of
from optest.torch.opinfo.trial_call import Refused, facts_of_outputs, is_normwise
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
    if reason := facts_of(f"torch.{name}").no_sample or facts_of(f"torch.{info.name}").no_sample:
        yield skipped(variants[0].function, stem, dtype, reason)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of deprecated functions, of which the run tells again
        try:
            with Border("OpInfo", Reason.BAD_CASE, let_through=lambda: True):
                samples = samples_of(name, dtype, request.seed)
        except Fault as fault:
            yield skipped(variants[0].function, stem, dtype, f"its samples cannot be made: {fault.message[:300]}")
            return
        with torch.random.fork_rng(devices=[]), one_thread():
            entries = [
                entry
                for number, sample in enumerate(samples)
                for entry in _entries_of_sample(info, sample, number, variants, stem, request)
            ]
    yield from entries


def _why_sample_left_out(info: Any, sample: Any) -> str | None:
    """Why one sample of an operator is not asked, None if it is."""
    has_edges = any(isinstance(each, torch.Tensor) for each in sample.args) or "range" in sample.kwargs
    if facts_of(f"torch.{info.name}").bins_follow_values and not has_edges:
        values = sample.input
        if values.numel() and bool((values == values.flatten()[0]).all()):
            return "its values lie on the edge between two bins, which are made around them"
    return None


def _entries_of_sample(
    info: Any, sample: Any, number: int, variants: Sequence[Variant], stem: str, request: SourceRequest
) -> Iterator[dict[str, Any]]:
    _, operator, dtype = stem.split("::")
    tensors = tensors_of(sample)
    stated: dict[str, Any] | None = None
    if (reason := _why_sample_left_out(info, sample)) is not None:
        yield skipped(variants[0].function, f"{stem}::sample{number}", dtype, reason)
        return
    for variant in variants:
        if not variant.takes(sample):
            continue
        title = f"{stem}::sample{number}{variant.ending}"
        try:
            call = (
                recorded_call(info.op, sample, tensors, request.device)
                if variant.is_recorded
                else sample_call(variant.function, sample, tensors, request.device)
            )
            text = text_of_call(call)
            stated = stated or tensor_keys(tensors, {"op": operator, "dtype": dtype, "sample": number})
            facts = facts_of_outputs(text, tensors, is_normwise=is_normwise(info.name))
        except Unstatable as error:
            yield skipped(variant.function, title, dtype, str(error), variant.kind)
            return
        except Refused as error:
            if variant is variants[0]:
                yield skipped(variant.function, title, dtype, str(error), variant.kind)
            continue
        yield {
            "op": call.function,
            "name": title,
            "attributes": {"call": text},
            "tags": ["opinfo", dtype, variant.kind],
            **stated,
            **{key: {**stated.get(key, {}), **value} for key, value in facts.items()},
        }
