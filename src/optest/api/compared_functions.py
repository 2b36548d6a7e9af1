"""``optest check --function m:fast --reference m:slow``: the comparison of two functions without a descriptor.

The reference defines an operator (:mod:`optest.core.reference_functions`); its cases are derived by running it.
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


def as_compared_functions(options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the options; a ``--reference`` that takes tensors, not the arguments of a hook, becomes the operator.

    Raise ``UsageError`` or ``Unavailable`` if there is no such reference.
    """
    settings = resolve(options)
    functions: Sequence[str] = settings["function"] or ()
    path = settings["reference"] or ""
    if len(functions) != 1 or ":" not in path or "=" in functions[0] or settings["op"]:
        return options
    if settings["backend"] == "triton":
        backend_manager.get("triton")  # decides whether kernels are interpreted, which it must before their import
    try:
        second = [*inspect.signature(load_extension("reference", path)).parameters][1:2]
    except (TypeError, ValueError):
        second = []
    if second and second[0].startswith("attr"):  # a hook of the operator of the function's name
        return options
    operator = f"{PREFIX}{path}"
    return {**options, "op": (operator,), "function": (f"{operator}={functions[0]}",), "reference": None}


def with_case_sets(
    chosen: Sequence[OperatorDescriptor], request: CaseRequest, functions: Sequence[str] = ()
) -> tuple[list[OperatorDescriptor], dict[str, SignatureSamples]]:
    """Return the operators, with samples added to those that a reference function defines, and these samples by name.

    Raise ``UsageError`` if the function takes none of the shapes, a value is missing, or no reference takes shapes.
    """
    compared = {
        op.name: _reference_samples(op, op.reference, request, [text.rpartition("=")[2] for text in functions])
        for op in chosen
        if isinstance(op.reference, ReferenceFunction)
    }
    if not compared and (request.shapes or request.attributes):
        flag = "--shape" if request.shapes else "--attr"
        raise UsageError(f"{flag} needs a --function that is compared with a --reference; drop it, or use optest run")

    def with_samples(descriptor: OperatorDescriptor) -> OperatorDescriptor:
        def samples() -> Sequence[Sample]:
            return compared[descriptor.name].samples

        samples.__module__, _, samples.__qualname__ = descriptor.name.removeprefix(PREFIX).rpartition(":")
        return replace(descriptor, samples=samples)

    return [with_samples(op) if op.name in compared else op for op in chosen], compared


def _reference_samples(
    descriptor: OperatorDescriptor, reference: ReferenceFunction, request: CaseRequest, functions: Sequence[str]
) -> SignatureSamples:
    """Return case sets around the requested shapes, or around simple shapes that the function takes.

    Equal sizes in the requested shapes are one dimension and vary together, except sizes of the weights of torch
    modules, which stay. Optional inputs without a requested shape are absent, and present in further calls if the
    function takes them.
    """
    for attribute in descriptor.attributes:
        name = attribute.name
        if attribute.is_required and name not in request.attributes:
            raise UsageError(
                f"{reference.path} has no default for {name}, expected a value\n"
                f"  give one: --attr {name}=…, or annotate it if it is a tensor: {name}: torch.Tensor\n"
                f"  taken as tensors: {', '.join(x.name for x in descriptor.tensors.inputs)}; annotate numbers: float"
            )
    inputs, shapes = [x.name for x in descriptor.tensors.inputs], request.shapes
    if mistaken := [name for name in inputs if name in request.attributes]:
        raise UsageError(
            f"--attr {mistaken[0]} names a tensor, expected a number\n  if it is one, annotate it: {mistaken[0]}: float"
        )
    names = [x.name for x in descriptor.tensors.inputs if not x.optional or x.name in shapes]
    if unknown := [name for name in shapes if name not in inputs]:
        raise UsageError(f"--shape names {unknown[0]}, expected one of {', '.join(inputs)} of {reference.path}")
    if shapes and (lacking := [name for name in names if name not in shapes]):
        raise UsageError(f"--shape is missing for {', '.join(lacking)}, expected one for each tensor or none at all")
    paired = [load_extension("function", path) for path in (reference.path, *functions)]
    modules = [getattr(x, "__self__", x) for x in paired]
    weights = [w for x in modules for w in getattr(x, "state_dict", dict)().values() if hasattr(w, "dtype")]
    weight_sizes = {size for weight in weights for size in weight.shape if size != 1}
    if weight_sizes and not shapes:
        first = next(list(weight.shape) for weight in weights if weight.ndim)
        example = "x".join(map(str, [8, first[1 % len(first)], *(16 for _ in first[2:])]))
        raise UsageError(
            f"a function is a module with weights, so the shape of its input must be known\n"
            f"  specify it: --shape {names[0]}={example}"
        )

    def derived_with(names: Sequence[str]) -> SignatureSamples:
        """Return case sets with the inputs of these names, all of them required."""
        # A target as large as the first input holds numbers like it: labels of its elements have a dimension less.
        alike = [name for name in names if name.startswith("target") and shapes and shapes[name] == shapes[names[0]]]
        kinds = ["" if name in alike else reference.kinds.get(name, "") for name in names]
        of_weights = [name for name in EVERY_FLOAT if name in (str(x.dtype).partition(".")[2] for x in weights)]
        usual = of_weights or _FLOATS.get(reference.arrays, MAIN_FLOATS)
        signature = f"{', '.join(names)} -> *out"
        kept_sizes = {1, *weight_sizes}
        if shapes:
            dims = (", ".join(f"{'n' * (size not in kept_sizes)}{size}" for size in shapes[name]) for name in names)
            tensors = (f"{name}: {kind or 'T'}[{sizes}]" for name, kind, sizes in zip(names, kinds, dims, strict=True))
            signature = f"{', '.join(tensors)} -> *out"
        declared = replace(
            descriptor,
            signature=signature,
            reference=replace(reference, names=tuple(names), is_traced=True),
            attributes=tuple(
                replace(x, choices=(request.attributes[x.name],)) if x.name in request.attributes else x
                for x in descriptor.attributes
            ),
            dtype_variants=tuple(
                (name,) if shapes or not any(kinds) else tuple(kind or name for kind in kinds)
                for name in [x.name for x in request.dtypes if x.is_inexact] or usual
            ),
        )
        return by_signature(declared, {f"n{n}": n for shape in shapes.values() for n in shape if n not in kept_sizes})

    derived = derived_with(names)
    if not derived.samples:
        hint = f"specify all shapes: {shape_options(names or inputs)}"
        if shapes:
            hint = "change the shapes, or annotate integers and floats: index: torch.LongTensor, w: torch.FloatTensor"
        if CHANGES_NOTHING in derived.how:
            raise UsageError(f"{derived.how}\n  return the result, or write it into an argument")
        if re.search("double|float64|dtype", derived.how):
            hint = f"it is called in float64: cast constants and weights, as weight.to({names[0]}.dtype)"
        refusal = "refuses the shapes of --shape" if shapes else "refuses all inputs that were tried"
        raise UsageError(f"{reference.path} {refusal}: {derived.how}\n  {hint}")
    samples, notes, never = [*derived.samples], [derived.how], [name for name in inputs if name not in names]
    known = [name for name in reference.optional if name in never and not shapes]
    for added in dict.fromkeys([tuple(known), *((name,) for name in known)]):
        if set(added) & set(never):
            extended = derived_with([name for name in inputs if name in (*names, *added)])
            samples += extended.samples
            if extended.samples:
                never = [name for name in never if name not in added]
                new = [text for text in extended.how.split("; ") if text not in derived.how]
                notes.append(f"and with {', '.join(added)}: {'; '.join(new)}")
    kept = [sample for sample in samples if _is_kept(sample.case, reference)]
    if never:
        notes.append(f"never with {', '.join(never)}; specify every shape: --shape {never[0]}=…")
    if count := len(samples) - len(kept):
        others = "" if reference.arrays == "numpy" else f", with negative strides or dimensions above {TILES:,}"
        changed = " or ".join(filter(None, reference.changed))
        others += f", or with overlapping elements of {changed}" if changed else ""
        notes.append(f"left out {count} calls without elements{others}")
    ranks: dict[str, set[int]] = {}
    for name, shape in ((name, shape) for x in kept for name, shape in x.case["shapes"].items()):
        ranks.setdefault(name, set()).add(len(shape["shape"] if isinstance(shape, Mapping) else shape))
    if fixed := [f"{name} of rank {min(known)}" for name, known in ranks.items() if len(known) == 1]:
        notes.append(f"only {', '.join(fixed)}; for other ranks: --shape")
    if sizes := sorted(weight_sizes.intersection(chain(*shapes.values()))):
        notes.append(f"sizes of the weights stay: {', '.join(map(str, sizes))}")
    drawn = []
    for name, case in {name: x.case for x in reversed(kept) for name in x.case["shapes"]}.items():
        fill, kind = case.get("generator", {}).get(name, {}), reference.kinds.get(name, "")
        ends = fill.get("values") or [fill.get("low", 0), fill.get("high", 0) - 1]
        if kind and kind == case["dtypes"][name]:
            drawn.append(f"{name} {kind}" if kind == "bool" or not fill else f"{name} {kind} {min(ends)}..{max(ends)}")
    if drawn:
        floats = f"{drawn[0].partition(' ')[0]}: FloatTensor"
        notes.append(f"{', '.join(drawn)} by name or annotation; for floats, annotate {floats}")
    return SignatureSamples(samples=kept, how="; ".join(notes))


def shape_options(names: Iterable[str]) -> str:
    """Return the ``--shape`` options that specify each of these tensors, with an example for the first."""
    return " ".join(f"--shape {name}={'…' if index else '8x16'}" for index, name in enumerate(names))


def _is_kept(case: Mapping[str, Any], reference: ReferenceFunction) -> bool:
    """Return whether a call has elements, no overlapping ones in changed tensors, and suits the reference's library."""
    shapes = [x["shape"] if isinstance(x, Mapping) else x for x in case["shapes"].values()]
    # torch and JAX: no negative strides; and no long dimensions, as memory of these libraries is not measured.
    is_small = max((size for shape in shapes for size in shape), default=0) <= TILES and "-" not in str(case["shapes"])
    for name in {*reference.changed} & case["shapes"].keys():  # a write to one element must change no other
        shape = case["shapes"][name]
        if isinstance(shape, Mapping) and layout_of(TensorSpec(dtype=dtype("float32"), **shape)) == "overlapping":
            return False
    # Few functions define a result without elements.
    return all(0 not in shape for shape in shapes) and (reference.arrays == "numpy" or is_small)
