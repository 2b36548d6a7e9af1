"""Selection of the samples that a check runs, and samples derived from an operator's signature."""

from __future__ import annotations

import json
import math
import re
import sys
import tracemalloc
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from optest.backends import BackendDriver
from optest.backends.abilities import CapturesPrograms, InfersShapes
from optest.core.border import Border
from optest.core.reference_functions import CHANGES_NOTHING
from optest.numerics import Array, dtype_of, numpy_dtype
from optest.operators.signature_samples import SignatureSamples, Trial, signature_samples
from optest.plan.select import glob_filter
from optest.registry import load_object
from optest.spec import TIERS, Fault, OperatorDescriptor, Reason, Sample, TensorSpec, Tier, UnfitArguments
from optest.spec.case import GRAPH
from optest.spec.references import Unrounded, undeclared_output_dtype
from optest.spec.tensors import format_shape

_LONG = 256
"""Size above which a reference may loop over a dimension for long."""
_LIBRARY_FOLDERS = "|".join(
    map(re.escape, ("site-packages", str(Path(re.__file__).parents[1]), str(Path(__file__).parents[1])))
)
"""Pattern of files whose lines do not count as lines of a reference."""
# Refused calls before the search gives up: a minute for a function of torch.
_MOST_REFUSED = 8_000
# Graphs depend on attributes and dtypes more than on sizes; so many calls are captured for each of the two.
_GRAPHS = 6

WantedSample: TypeAlias = Callable[[Sample, str], bool]


def sample_filter(globs: Sequence[str], case_sets: Collection[str], dtypes: Collection[str]) -> WantedSample | None:
    """Return a function of a sample and the beginning of its case's id that is false only if a filter drops the case.

    Return None if no filter is set.
    """
    by_id = glob_filter(globs)
    if by_id is None and not case_sets and not dtypes:
        return None

    def may_be_selected(sample: Sample, head: str) -> bool:
        if case_sets and sample.case_set not in case_sets:
            return False
        named = sample.case.get("dtypes")
        # Inputs without a named dtype get theirs when the case is built.
        if dtypes and isinstance(named, Mapping) and named.keys() >= sample.case.get("shapes", {}).keys():
            return not {*dtypes}.isdisjoint(named.values()) and (by_id is None or by_id(head, False))
        return by_id is None or by_id(head, False)

    return may_be_selected


def selection(driver: BackendDriver) -> Callable[[Sample], bool]:
    """Return a stateful predicate: whether ``check --group`` runs a sample of an operator, called in their order.

    It accepts samples that expect an error, graphs, and, if the driver infers shapes, the first of equal signatures.
    """
    seen: set[str] = set()

    def is_selected(sample: Sample) -> bool:
        if "expects_error" in sample.case or sample.case_set == GRAPH:
            return True
        shapes = {name: _broadcast_sizes(shape) for name, shape in sample.case.get("shapes", {}).items()}
        call = [shapes, sample.case.get("dtypes"), sample.case.get("attributes")]
        signature = json.dumps(call, sort_keys=True, default=str)
        is_new = signature not in seen
        seen.add(signature)
        return is_new and isinstance(driver, InfersShapes)

    return is_selected


def graph_samples(driver: BackendDriver, samples: Iterable[Sample]) -> list[Sample]:
    """Return up to six samples of distinct attributes and six of distinct dtypes as graph samples.

    Return [] if the driver does not capture programs.
    """
    right = [x for x in samples if "expects_error" not in x.case and isinstance(driver, CapturesPrograms)]
    chosen: dict[int, Sample] = {}
    for key in ("attributes", "dtypes"):
        calls: dict[str, Sample] = {}
        for sample in right:
            calls.setdefault(repr(sample.case.get(key)), sample)
        chosen |= {id(x): x for x in islice(calls.values(), _GRAPHS)}
    return [Sample(case_set=GRAPH, case=x.case, tier=x.tier) for x in chosen.values()]


def smoke_samples(samples: Sequence[Sample], dtypes: Iterable[str]) -> list[Sample]:
    """Return a sample for each of ``dtypes`` that has samples, but none of the smoke tier.

    Prefer the shapes and attributes of a smoke sample, then few dtypes, then an early tier.
    """
    smoke = [(x.case.get("shapes"), x.case.get("attributes")) for x in samples if x.tier is Tier.SMOKE]

    def rank(sample: Sample) -> tuple[bool, int, int]:
        is_other = (sample.case.get("shapes"), sample.case.get("attributes")) not in smoke
        return is_other, len(_dtype_names(sample)), TIERS.index(sample.tier)

    added = []
    for name in dtypes:
        in_dtype = [sample for sample in samples if name in _dtype_names(sample) and "expects_error" not in sample.case]
        if in_dtype and Tier.SMOKE not in (x.tier for x in in_dtype):
            added.append(min(in_dtype, key=rank))
    return added


def _dtype_names(sample: Sample) -> set[str]:
    dtypes = sample.case.get("dtypes") or ()
    return {dtypes} if isinstance(dtypes, str) else set(dtypes.values() if isinstance(dtypes, Mapping) else dtypes)


def _broadcast_sizes(shape: Any) -> Any:
    """Return the sizes with every size above 1 replaced by 2, as broadcasting distinguishes them; drop the layout."""
    sizes = shape.get("shape") if isinstance(shape, Mapping) else shape
    return [min(size, 2) if isinstance(size, int) else size for size in sizes] if isinstance(sizes, list) else sizes


def by_signature(descriptor: OperatorDescriptor, sizes: Mapping[str, int] | None = None) -> SignatureSamples:
    """Return samples derived from the signature of an operator; none if it declares samples.

    Try ``sizes`` of its dimensions first.
    """
    if descriptor.samples is not None:
        return SignatureSamples(how="")

    tried: list[Trial] = []
    refusals: Counter[str] = Counter()

    def attempt(*call: Any) -> Trial | str:
        if refusals.total() >= _MOST_REFUSED:
            return f"{_MOST_REFUSED:,} calls were refused"
        try:
            with Border("the operator", Reason.BAD_CASE, let_through=lambda: True):
                tried.append(_attempt(descriptor, *call, is_traced=bool(tried)))
                return tried[-1]
        except Fault as fault:
            text = fault.message.partition("\n")[0]
            refusals[text] += 1
            return text

    derived = signature_samples(descriptor, attempt, sizes)
    if not derived.samples and (idle := next((text for text in refusals if CHANGES_NOTHING in text), "")):
        return replace(derived, how=idle)
    return derived


def _attempt(
    descriptor: OperatorDescriptor,
    specs: Sequence[TensorSpec | None],
    attributes: Mapping[str, Any],
    values: Mapping[str, Sequence[int]],
    is_probe: bool = False,
    *,
    is_traced: bool,
) -> Trial:
    """Call the shape inference of an operator and its reference; return outputs, memory and executed lines.

    Inputs are ``values``, else ones for floats and zeros for integers; a probe of a user's function has random numbers
    and keeps its results. Exceptions of the reference are not caught.
    """
    inferred = load_object(descriptor.infer)(specs, attributes) if descriptor.infer is not None else None
    if descriptor.reference is None:
        return Trial(inferred or (), 8 * sum(x.elements for x in inferred or ()))
    names = [x.name for x in descriptor.tensors.inputs]

    def filled(name: str, spec: TensorSpec) -> Array:
        numbers: Any = values.get(name, np.full(spec.elements, spec.dtype.is_inexact))
        if is_probe and name not in values:
            numbers = 4 * np.random.default_rng(names.index(name)).standard_normal(spec.elements)
            numbers = numbers[np.abs(numbers).argsort()]  # the maximum and the minimum are last
        return np.asarray(numbers).astype(numpy_dtype(spec.dtype)).reshape(spec.shape)

    inputs = [None if spec is None else filled(name, spec) for name, spec in zip(names, specs, strict=True)]
    reference = load_object(descriptor.reference)
    reference = replace(reference, is_traced=False) if is_probe else reference
    if is_traced:  # not the first call, which may import a framework, ten times as slowly if traced
        tracemalloc.start()
    lines = 0

    def count(frame: Any, *_: Any) -> Any:
        nonlocal lines
        if re.search(_LIBRARY_FOLDERS, frame.f_code.co_filename):
            return None
        lines += 1
        return count

    tracing = sys.gettrace()
    if max((size for spec in specs if spec is not None for size in spec.shape), default=0) > _LONG:
        sys.settrace(count)
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            returned = reference(inputs, attributes)
        memory: float = tracemalloc.get_traced_memory()[1]  # 0 if nothing is traced
    finally:
        sys.settrace(tracing)
        tracemalloc.stop()
    results = returned if isinstance(returned, (tuple, list)) and not hasattr(returned, "_fields") else (returned,)
    arrays = [np.asarray(result.values if isinstance(result, Unrounded) else result) for result in results]
    dtypes = [spec.dtype for spec in specs if spec is not None]
    outputs = [TensorSpec(dtype=undeclared_output_dtype(dtype_of(x.dtype), dtypes), shape=x.shape) for x in arrays]
    if inferred is not None and [x.shape for x in inferred] != [x.shape for x in outputs]:
        shapes = " and ".join(format_shape(x.shape) for x in outputs)
        raise UnfitArguments(f"the reference returns {shapes}, but its signature or `infer` specifies another shape")
    owners = [_owner(x) for x in arrays]
    least = sum(new.nbytes for new, owner in zip(arrays, owners, strict=True) if all(owner is not x for x in inputs))
    # Memory that a framework allocates is not traced.
    is_known = memory >= least and all(isinstance(x, np.ndarray) for x in owners)
    return Trial(inferred or outputs, memory if is_known else math.inf, lines, arrays if is_probe else ())


def _owner(array: Any) -> Any:
    """Return the object that owns the memory of an array."""
    while isinstance(array, np.ndarray) and array.base is not None:
        array = array.base
    return array
