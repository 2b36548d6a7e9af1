"""Which samples of an operator are cases of a check: those that its signature gives where it states none, and, where no
values are computed, every refusal and each call that makes a difference to shape inference."""

from __future__ import annotations

import json
import math
import tracemalloc
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np

from optest.backends import BackendDriver
from optest.backends.abilities import CapturesPrograms, InfersShapes
from optest.core.border import Border
from optest.numerics import dtype_of, numpy_dtype
from optest.operators.signature_samples import SignatureSamples, Trial, signature_samples
from optest.registry import load_object
from optest.spec import TIERS, Fault, OperatorDescriptor, Reason, Sample, TensorSpec, Tier, UnfitArguments
from optest.spec.case import GRAPH
from optest.spec.references import Unrounded, undeclared_output_dtype
from optest.spec.tensors import format_shape

_GRAPHS = 6
"""Calls that differ in attributes, and as many that differ in dtypes: graphs hang on these more than on sizes."""


def selection(driver: BackendDriver) -> Callable[[Sample], bool]:
    """Whether a sample is asked, in the order of an operator's samples; of a driver without shape inference refusals
    alone are asked."""
    seen: set[str] = set()

    def is_asked(sample: Sample) -> bool:
        if "expects_error" in sample.case or sample.case_set == GRAPH:
            return True
        signature = json.dumps(_signature(sample.case), sort_keys=True, default=str)
        is_new = signature not in seen
        seen.add(signature)
        return is_new and isinstance(driver, InfersShapes)

    return is_asked


def graph_samples(driver: BackendDriver, own: Iterable[Sample]) -> list[Sample]:
    """The first calls of an operator of other attributes, and of other dtypes, if the driver captures programs."""
    right = [each for each in own if "expects_error" not in each.case and isinstance(driver, CapturesPrograms)]
    chosen: dict[int, Sample] = {}
    for key in ("attributes", "dtypes"):
        calls: dict[str, Sample] = {}
        for each in right:
            calls.setdefault(repr(each.case.get(key)), each)
        chosen |= {id(each): each for each in islice(calls.values(), _GRAPHS)}
    return [Sample(case_set=GRAPH, case=each.case, tier=each.tier) for each in chosen.values()]


def smoke_samples(own: Sequence[Sample], dtypes: Iterable[str]) -> list[Sample]:
    """Return, for each of these dtypes that no smoke sample of an operator has, the smoke call in it.

    That is the sample with the same shapes and attributes, or else the first one in the dtype alone.
    """
    smoke = [(each.case.get("shapes"), each.case.get("attributes")) for each in own if each.tier is Tier.SMOKE]

    def rank(sample: Sample) -> tuple[bool, int, int]:
        is_other = (sample.case.get("shapes"), sample.case.get("attributes")) not in smoke
        return is_other, len(_dtypes(sample)), TIERS.index(sample.tier)

    found = []
    for name in dtypes:
        in_dtype = [each for each in own if name in _dtypes(each) and "expects_error" not in each.case]
        if in_dtype and Tier.SMOKE not in (each.tier for each in in_dtype):
            found.append(min(in_dtype, key=rank))
    return found


def _dtypes(sample: Sample) -> set[str]:
    stated = sample.case.get("dtypes") or ()
    return {stated} if isinstance(stated, str) else set(stated.values() if isinstance(stated, Mapping) else stated)


def _signature(case: Mapping[str, Any]) -> list[Any]:
    shapes = {name: _sizes(shape) for name, shape in case.get("shapes", {}).items()}
    return [shapes, case.get("dtypes"), case.get("attributes")]


def _sizes(shape: Any) -> Any:
    """Sizes as broadcasting tells them apart: 0, 1, and more; layouts make no difference."""
    stated = shape.get("shape") if isinstance(shape, Mapping) else shape
    return [min(size, 2) if isinstance(size, int) else size for size in stated] if isinstance(stated, list) else stated


def by_signature(descriptor: OperatorDescriptor, sizes: Mapping[str, int] | None = None) -> SignatureSamples:
    """The samples that follow from the signature of an operator without any; of others, none and nothing to say.

    ``sizes`` of its dimensions come before all others.
    """
    if descriptor.samples is not None:
        return SignatureSamples(how="")

    tried: list[Trial] = []

    def attempt(
        specs: Sequence[TensorSpec | None], attributes: Mapping[str, Any], values: Mapping[str, Sequence[int]]
    ) -> Trial | str:
        try:
            with Border("the operator", Reason.BAD_CASE, let_through=lambda: True):
                tried.append(_attempt(descriptor, specs, attributes, values, is_traced=bool(tried)))
                return tried[-1]
        except Fault as fault:
            return fault.message.partition("\n")[0]

    return signature_samples(descriptor, attempt, sizes)


def _attempt(
    descriptor: OperatorDescriptor,
    specs: Sequence[TensorSpec | None],
    attributes: Mapping[str, Any],
    values: Mapping[str, Sequence[int]],
    *,
    is_traced: bool,
) -> Trial:
    """Raise whatever its inference or, with ones for floats and zeros for integers, its reference raises.

    A first call is not traced: it may import a framework, which tracing makes ten times as slow.
    """
    inferred = load_object(descriptor.infer)(specs, attributes) if descriptor.infer is not None else None
    if descriptor.reference is None:
        return Trial(inferred or (), 8 * sum(each.elements for each in inferred or ()))
    names = [each.name for each in descriptor.tensors.inputs]
    inputs = [
        None
        if each is None
        else np.array(values[name], numpy_dtype(each.dtype))
        if name in values
        else np.full(each.shape, each.dtype.is_inexact, numpy_dtype(each.dtype))
        for name, each in zip(names, specs, strict=True)
    ]
    if is_traced:
        tracemalloc.start()
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            returned = load_object(descriptor.reference)(inputs, attributes)
        memory: float = tracemalloc.get_traced_memory()[1]  # 0 if nothing is traced
    finally:
        tracemalloc.stop()
    several = returned if isinstance(returned, (tuple, list)) and not hasattr(returned, "_fields") else (returned,)
    arrays = [np.asarray(each.values if isinstance(each, Unrounded) else each) for each in several]
    given = [each.dtype for each in specs if each is not None]
    outputs = [
        TensorSpec(dtype=undeclared_output_dtype(dtype_of(each.dtype), given), shape=each.shape) for each in arrays
    ]
    if inferred is not None and [each.shape for each in inferred] != [each.shape for each in outputs]:
        made = " and ".join(format_shape(each.shape) for each in outputs)
        raise UnfitArguments(f"the reference makes {made}, its signature or `infer` says otherwise")
    owners = [_owner(each) for each in arrays]
    own = sum(each.nbytes for each, owner in zip(arrays, owners, strict=True) if all(owner is not x for x in inputs))
    is_told = memory >= own and all(isinstance(each, np.ndarray) for each in owners)  # frameworks allocate elsewhere
    return Trial(inferred or outputs, memory if is_told else math.inf)


def _owner(array: Any) -> Any:
    """Return what holds the memory of a view."""
    while isinstance(array, np.ndarray) and array.base is not None:
        array = array.base
    return array
