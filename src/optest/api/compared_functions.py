"""``optest check --function m:fast --reference m:slow``: the cases of two functions without a descriptor.

The reference defines an operator (:mod:`optest.core.reference_functions`); its cases follow from running it.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from optest.api.case_sets import by_signature
from optest.backends import backend_manager
from optest.backends.capabilities import layout_of
from optest.core.reference_functions import CHANGES_NOTHING, PREFIX, ReferenceFunction
from optest.errors import UsageError
from optest.operators.calls import EVERY_FLOAT, MAIN_FLOATS, TILES
from optest.operators.signature_samples import SignatureSamples
from optest.plan import CaseRequest
from optest.registry import load_extension
from optest.settings import resolve
from optest.spec import OperatorDescriptor, Sample, TensorSpec, dtype

_FLOATS = {"numpy": ("float32", "float16", "float64")}  # NumPy itself has no bfloat16


def as_compared_functions(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the options; a ``--reference`` that takes tensors, not the arguments of a hook, becomes the operator.

    Raises:
        UsageError, Unavailable: if there is no such reference.
    """
    settings = resolve(given)
    functions: Sequence[str] = settings["function"] or ()
    path = settings["reference"] or ""
    if len(functions) != 1 or ":" not in path or "=" in functions[0] or settings["op"]:
        return given
    if settings["backend"] == "triton":
        backend_manager.get("triton")  # which decides whether kernels are interpreted before their module is imported
    try:
        second = [*inspect.signature(load_extension("reference", path)).parameters][1:2]
    except (TypeError, ValueError):
        second = []
    if second and second[0].startswith("attr"):  # a hook of the operator of the function's name
        return given
    operator = f"{PREFIX}{path}"
    return {**given, "op": (operator,), "function": (f"{operator}={functions[0]}",), "reference": None}


def with_case_sets(
    chosen: Sequence[OperatorDescriptor], request: CaseRequest, functions: Sequence[str] = ()
) -> tuple[list[OperatorDescriptor], dict[str, SignatureSamples]]:
    """Return the operators, with samples for those that a reference function defines, and these samples by operator.

    Raises:
        UsageError: if the function takes none of the shapes, a value is missing, or shapes are for no such operator.
    """
    compared = {
        each.name: _samples(each, each.reference, request, [text.rpartition("=")[2] for text in functions])
        for each in chosen
        if isinstance(each.reference, ReferenceFunction)
    }
    if not compared and (request.shapes or request.attributes):
        flag = "--shape" if request.shapes else "--attr"
        raise UsageError(f"{flag} is for a function and the --reference that it is compared with; drop it, or use run")

    def with_samples(descriptor: OperatorDescriptor) -> OperatorDescriptor:
        def samples() -> Sequence[Sample]:
            return compared[descriptor.name].samples

        samples.__module__, _, samples.__qualname__ = descriptor.name.removeprefix(PREFIX).rpartition(":")
        return replace(descriptor, samples=samples)

    return [with_samples(each) if each.name in compared else each for each in chosen], compared


def _samples(
    descriptor: OperatorDescriptor, reference: ReferenceFunction, request: CaseRequest, functions: Sequence[str]
) -> SignatureSamples:
    """Return case sets around the requested shapes, or around simple ones that the function takes.

    Equal sizes in several of the requested shapes are one dimension, and vary together, but for sizes of the weights
    that the functions have as modules of torch. Optional inputs without a requested shape are left out, and given too
    if the function takes them.
    """
    for each in descriptor.attributes:
        if each.is_required and each.name not in request.attributes:
            raise UsageError(
                f"{reference.path} has no default for {each.name}, expected a value\n"
                f"  give one: --attr {each.name}=…, or annotate it if it is a tensor: {each.name}: torch.Tensor\n"
                f"  taken for tensors: {', '.join(x.name for x in descriptor.tensors.inputs)}; annotate numbers: float"
            )
    inputs, given = [each.name for each in descriptor.tensors.inputs], request.shapes
    if mistaken := [name for name in inputs if name in request.attributes]:
        raise UsageError(
            f"--attr {mistaken[0]} is for a tensor, expected a number\n  annotate it: {mistaken[0]}: float"
        )
    names = [each.name for each in descriptor.tensors.inputs if not each.optional or each.name in given]
    if unknown := [name for name in given if name not in inputs]:
        raise UsageError(f"--shape is given for {unknown[0]}, expected one of {', '.join(inputs)} of {reference.path}")
    if given and (lacking := [name for name in names if name not in given]):
        raise UsageError(f"--shape is not given for {', '.join(lacking)}, expected one for each tensor or none at all")
    paired = [load_extension("function", path) for path in (reference.path, *functions)]
    modules = [getattr(each, "__self__", each) for each in paired]
    weights = [w for each in modules for w in getattr(each, "state_dict", dict)().values() if hasattr(w, "dtype")]
    own = {size for weight in weights for size in weight.shape if size != 1}
    if own and not given:
        first = next(list(weight.shape) for weight in weights if weight.ndim)
        example = "x".join(map(str, [8, first[1 % len(first)], *(16 for _ in first[2:])]))
        raise UsageError(f"a function has weights of its own\n  specify an input: --shape {names[0]}={example}")

    def derived_with(names: Sequence[str]) -> SignatureSamples:
        """Return case sets with the inputs of these names, all of them required."""
        # A target as large as the first input holds numbers like it: labels of its elements have a dimension less.
        alike = [name for name in names if name.startswith("target") and given and given[name] == given[names[0]]]
        kinds = ["" if name in alike else reference.kinds.get(name, "") for name in names]
        of_weights = [name for name in EVERY_FLOAT if name in (str(each.dtype).partition(".")[2] for each in weights)]
        usual = of_weights or _FLOATS.get(reference.arrays, MAIN_FLOATS)
        signature = f"{', '.join(names)} -> *out"
        if given:
            shapes = (", ".join(f"{'n' * (size not in {1, *own})}{size}" for size in given[name]) for name in names)
            tensors = (f"{name}: {kind or 'T'}[{each}]" for name, kind, each in zip(names, kinds, shapes, strict=True))
            signature = f"{', '.join(tensors)} -> *out"
        declared = replace(
            descriptor,
            signature=signature,
            reference=replace(reference, names=tuple(names), is_traced=True),
            attributes=tuple(
                replace(each, choices=(request.attributes[each.name],)) if each.name in request.attributes else each
                for each in descriptor.attributes
            ),
            dtype_variants=tuple(
                (name,) if given or not any(kinds) else tuple(each or name for each in kinds)
                for name in [each.name for each in request.dtypes if each.is_inexact] or usual
            ),
        )
        return by_signature(declared, {f"n{n}": n for shape in given.values() for n in shape if n not in {1, *own}})

    derived = derived_with(names)
    if not derived.samples:
        hint = f"specify all shapes: {shape_options(names or inputs)}"
        if given:
            hint = "change the shapes, or annotate integers and floats: index: torch.LongTensor, w: torch.FloatTensor"
        if CHANGES_NOTHING in derived.how:
            raise UsageError(f"{derived.how}\n  return the result, or write it into an argument")
        if re.search("double|float64|dtype", derived.how):
            hint = f"it is called in float64: cast what is no parameter, as weight.to({names[0]}.dtype)"
        what = "does not take what --shape specifies" if given else "takes none of the inputs tried"
        raise UsageError(f"{reference.path} {what}: {derived.how}\n  {hint}")
    samples, notes, never = [*derived.samples], [derived.how], [name for name in inputs if name not in names]
    known = [name for name in reference.optional if name in never and not given]
    for added in dict.fromkeys([tuple(known), *((name,) for name in known)]):
        if set(added) & set(never):
            other = derived_with([each for each in inputs if each in (*names, *added)])
            samples += other.samples
            if other.samples:
                never = [name for name in never if name not in added]
                new = [each for each in other.how.split("; ") if each not in derived.how]
                notes.append(f"and with {', '.join(added)}: {'; '.join(new)}")
    kept = [each for each in samples if _is_kept(each.case, reference)]
    if never:
        notes.append(f"never with {', '.join(never)}; specify every shape: --shape {never[0]}=…")
    if count := len(samples) - len(kept):
        others = "" if reference.arrays == "numpy" else f", with negative strides or dimensions above {TILES:,}"
        changed = " or ".join(filter(None, reference.changed))
        others += f", or with elements of {changed} in one place" if changed else ""
        notes.append(f"without {count} calls of no elements{others}")
    ranks: dict[str, set[int]] = {}
    for name, shape in ((name, shape) for each in kept for name, shape in each.case["shapes"].items()):
        ranks.setdefault(name, set()).add(len(shape["shape"] if isinstance(shape, Mapping) else shape))
    if fixed := [f"{name} of rank {min(found)}" for name, found in ranks.items() if len(found) == 1]:
        notes.append(f"only {', '.join(fixed)}; for others: --shape")
    if sizes := sorted(own.intersection(chain(*given.values()))):
        notes.append(f"{', '.join(map(str, sizes))} kept: a size of the weights")
    drawn = []
    for name, case in {name: each.case for each in reversed(kept) for name in each.case["shapes"]}.items():
        fill, kind = case.get("generator", {}).get(name, {}), reference.kinds.get(name, "")
        ends = fill.get("values") or [fill.get("low", 0), fill.get("high", 0) - 1]
        if kind and kind == case["dtypes"][name]:
            drawn.append(f"{name} {kind}" if kind == "bool" or not fill else f"{name} {kind} {min(ends)}..{max(ends)}")
    if drawn:
        notes.append(f"{', '.join(drawn)} by name or annotation; for floats: {drawn[0].partition(' ')[0]}: FloatTensor")
    return SignatureSamples(samples=kept, how="; ".join(notes))


def shape_options(names: Iterable[str]) -> str:
    """Return the options with which a user specifies the shape of each of these tensors."""
    return " ".join(f"--shape {name}={'…' if place else '8x16'}" for place, name in enumerate(names))


def _is_kept(case: Mapping[str, Any], reference: ReferenceFunction) -> bool:
    """Return whether a call suits a function: it has elements, since few functions define a result without any, and no
    elements that share memory in tensors that it changes. For
    torch and JAX it also has no negative strides and no dimension longer than TILES, as the
    memory of these libraries is not measured."""
    shapes = [each["shape"] if isinstance(each, Mapping) else each for each in case["shapes"].values()]
    is_small = max((size for shape in shapes for size in shape), default=0) <= TILES and "-" not in str(case["shapes"])
    for name in {*reference.changed} & case["shapes"].keys():  # a write to one element must change no other
        laid = case["shapes"][name]
        if isinstance(laid, Mapping) and layout_of(TensorSpec(dtype=dtype("float32"), **laid)) == "overlapping":
            return False
    return all(0 not in shape for shape in shapes) and (reference.arrays == "numpy" or is_small)
