"""Operators that a user's function defines, ``function.MODULE:NAME``, for ``check --reference``.

The function runs in float64 on copies of the inputs; the bound of a result follows from its change by one rounding of
every input and step (:mod:`optest.core.closeness`), as for a call of torch without a rule.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from math import sqrt
from typing import Any

import numpy as np

from optest.backends.arguments import names_of
from optest.backends.arrays import to_array
from optest.backends.function import kernel_of, outputs_of
from optest.core.border import Border
from optest.core.closeness import as_close_as_roundings_allow
from optest.core.rounded_calls import RoundedCall, Rounding, roundings
from optest.errors import UsageError
from optest.numerics import Array, dtype_of, numpy_dtype, widen
from optest.registry import load_extension, load_object
from optest.spec import Attribute, Fault, OperatorDescriptor, Reason, Rule, RuleClass, Unrounded, dtype

PREFIX = "function."
CHANGES_NOTHING = "returns nothing and changes none of its arguments"
_RULE = Rule(kind=RuleClass.CLOSE, formula="or 8 times what one rounding of every input and step changes")
_SINGLE = 2.0**-24
_SUM_OF_TERMS = 0.25
"""Factor of √n·u for sums. Partial sums of n terms in a row are off by 0.2·√n·u of max(|Σt|, √Σt²): 0.17 if all have
one sign, 0.2 if they cancel. Eight times a quarter has room for the largest of many."""
_NARROWER = {np.dtype(np.float64): np.float32, np.dtype(np.complex128): np.complex64}
_NARROW = {numpy_dtype(dtype(name)) for name in ("float32", "float16", "bfloat16")}
_WIDE = (np.dtype(np.float64), np.dtype(np.float32))
_WHOLE = re.compile(
    r"(^|_)(idxs?|ind(ex|exes|ices|ptr)|ids?|tokens?|targets?|labels?|pos|positions?|([a-z]*seq|kv)?len(s|gths?)?|"
    r"(group|expert|batch|segment)_(sizes|counts)|offs(ets?)?|ptr|slots?|perm|permutation|(block|page)_tables?)\d*(_|$)"
    r"(?!(.*_)?(emb\w*|weights?|bias|scales?|probs?|logits|scores?|values?|states?|enc\w*|features?|grad)$)"
)
"""Words in the names of parameters for whole numbers below a size; not if the last word is one of floats."""
_ANNOTATED = (
    ("Long|[iI]nt64|\\bInt(eger)?\\b", "int64"),
    ("IntTensor|[iI]nt32", "int32"),
    ("Byte|[uU][iI]nt8", "uint8"),
    ("Char|[iI]nt8", "int8"),
    ("Bool|bool_", "bool"),
)
"""Words in annotations of tensors, and their dtypes."""
_SCALARS = ("int", "float", "bool", "str")


@lru_cache(maxsize=64)
def descriptor_of(name: str, catalogue: Iterable[OperatorDescriptor]) -> OperatorDescriptor:
    """Return the operator that the function at the import path behind ``function.`` defines.

    Its parameters are tensors, unless they have a default other than None, an annotation of a scalar, or a name that
    only attributes have in the catalogue.

    Raises:
        UsageError, Unavailable: if there is no such function, or its signature cannot be read.
    """
    path = name.removeprefix(PREFIX)
    kernel = kernel_of(load_extension("reference", path))
    function = kernel.function
    try:
        signature = inspect.signature(getattr(function, "forward", function))
    except (TypeError, ValueError):
        raise UsageError(
            f"--reference {path} has no readable signature, expected a function of Python\n"
            f"  write one that calls it: def slow(x): return {path.rpartition(':')[2]}(x)"
        ) from None
    tensors = {text for operator in catalogue for each in operator.tensors.inputs for text in names_of(each.name)}
    known = {
        name: each.type
        for operator in catalogue
        for each in operator.attributes
        for name in (each.name, *each.aliases)
        if name not in tensors and len(name) > 1
    }
    inputs, attributes, optional, kinds = [], [], [], dict[str, str]()
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            continue
        if parameter.kind is parameter.VAR_POSITIONAL:
            raise UsageError(f"--reference {path} takes *{parameter.name}, expected a parameter for each tensor")
        is_required, words = parameter.default is parameter.empty, str(parameter.annotation).replace("<class '", "")
        annotated = next((kind for kind in _SCALARS if words.startswith(kind) or f"[{kind}" in words), "")
        is_array = "Tensor" in words or "array" in words.lower()
        kind = annotated or ("" if is_array else known.get(parameter.name, ""))
        if not is_required and parameter.default is not None:
            kind = _kind_of(parameter.default)
            if not kind:
                continue
        if kind:
            default = {} if is_required else {"default": parameter.default}
            attributes.append(Attribute(name=parameter.name, type=kind, **default))
        else:
            inputs.append(f"{parameter.name}{'' if is_required else '?'}")
            kinds[parameter.name] = _dtype_of(parameter.name, words)
            if not is_required and (is_array or parameter.name in tensors or kinds[parameter.name]):
                optional.append(parameter.name)
    if not inputs:
        raise UsageError(f"--reference {path} takes no tensors, expected a parameter without a default")
    reference = ReferenceFunction(path, function, kernel.takes, signature, tuple(kinds), kinds, tuple(optional))
    return OperatorDescriptor(
        name=name,
        category="function",
        signature=f"{', '.join(inputs)} -> *out",
        attributes=tuple(attributes),
        reference=reference,
        rule=_RULE,
        alternatives=reference.as_close_as_roundings_allow,
    )


def _dtype_of(name: str, annotation: str) -> str:
    """Return the dtype that the annotation of a parameter, or else its name, implies for its tensor, "" for floats."""
    if found := next((kind for words, kind in _ANNOTATED if re.search(words, annotation)), ""):
        return found
    if re.search("Float|Half|Double|float", annotation):
        return ""
    name = name.lower()
    return "bool" if "mask" in name or name.endswith("valid") else "int64" if _WHOLE.search(name) else ""


def _kind_of(default: Any) -> str:
    """Return the type of an attribute with this default, "" for a value that no case can have."""
    if isinstance(default, (tuple, list)) and all(isinstance(each, int) for each in default):
        return "ints"
    name = type(default).__name__
    return "int|float" if name == "int" else name if name in _SCALARS else ""


@dataclass(frozen=True, slots=True)
class ReferenceFunction:
    """A function as a reference hook; ``arrays`` is the library of its tensors, ``names`` their parameters."""

    path: str
    function: Callable[..., Any]
    arrays: str
    signature: inspect.Signature
    names: tuple[str, ...]
    kinds: Mapping[str, str]
    """Dtypes of the parameters: those of whole numbers and masks by name or annotation, "" for floats."""
    optional: tuple[str, ...] = ()
    """Parameters with the default None that are tensors by their name or annotation."""
    is_traced: bool = False
    """Flag for outputs of JAX that are zeros of the right shapes and dtypes, which needs no compiler."""
    keys: list[str] = field(default_factory=list, compare=False)
    """Keys or places of the outputs that the last call returned."""
    changed: list[str] = field(default_factory=list, compare=False)
    """Parameters that the function left the outputs of its last call in, "" for one that is only returned. Those that
    it changed and did not return come last."""

    def __call__(self, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> list[Any]:
        """Return the outputs in float64, each with the dtype that it has for inputs in the dtypes of the case."""
        exact = self._outputs(
            [None if each is None else widen(each) for each in inputs], attributes, seeks_changes=True
        )
        entry = next((kind for each in inputs if each is not None and (kind := dtype_of(each.dtype)).is_inexact), None)
        kinds = [dtype_of(each.dtype) if entry is None or each.dtype.kind not in "fc" else entry for each in exact]
        with suppress(Fault):  # without a kernel for this dtype: the dtype of the inputs
            narrow = self._outputs(inputs, attributes, without_casts=False)
            kinds = [dtype_of(each.dtype) for each in narrow] if len(narrow) == len(exact) else kinds
        return [
            Unrounded(widen(value), kind) if kind.is_inexact else value.astype(numpy_dtype(kind))
            for value, kind in zip(exact, kinds, strict=True)
        ]

    def as_close_as_roundings_allow(
        self, inputs: Sequence[Any], attributes: Mapping[str, Any], actual: Sequence[Any]
    ) -> list[Any]:
        """Return a mask for each output: True for elements within the error of roundings of inputs and steps.

        The steps may lose as much as they do in float32, in proportion to the precision of the case.
        """
        exact = self._outputs(
            [None if each is None else widen(each) for each in inputs], attributes, seeks_changes=True
        )

        def outputs(arrays: Sequence[Array]) -> list[Array]:
            rest = iter(arrays)
            return self._outputs([None if each is None else next(rest) for each in inputs], attributes)

        def evaluate(moved: Sequence[Array], rounding: Rounding | None) -> list[Array]:
            wide_outputs = outputs(list(map(widen, moved)))
            if rounding is None or not rounding.unit:
                return wide_outputs
            narrow = [each.astype(_NARROWER.get(each.dtype, each.dtype)) for each in moved]
            steps = zip(outputs(narrow), outputs(list(map(widen, narrow))), strict=True)
            growth = _SUM_OF_TERMS * sqrt(length) * min(rounding.unit, _SINGLE)
            with np.errstate(all="ignore"):
                return [
                    value
                    + (value - true) * growth / rounding.unit
                    + np.maximum(np.abs(value) * growth, rounding.least)
                    * (rounding.share * roundings(f"{rounding.name}/{index}", value.shape))
                    + np.nan_to_num((one - other) * (rounding.share * rounding.unit / _SINGLE), posinf=0.0, neginf=0.0)
                    if value.dtype.kind in "fc"
                    else value
                    for index, (value, true, (one, other)) in enumerate(zip(wide_outputs, exact, steps, strict=True))
                ]

        given = [each for each in inputs if each is not None]
        length = self._longest_sum(given, outputs, exact)
        rounded = RoundedCall.of(evaluate, given, actual)
        halves = [each is not None and each.dtype.itemsize == 2 and each.dtype.kind not in "iub" for each in inputs]
        single = [each.astype(np.float32) if half else each for each, half in zip(inputs, halves, strict=True)]
        own = []
        for arrays in (inputs, single) if any(halves) else (inputs,):
            own.append(exact)
            with suppress(Fault):  # without a kernel for this dtype
                narrow = self._outputs(arrays, attributes, without_casts=False)
                own[-1] = narrow if len(narrow) == len(exact) else exact
        return as_close_as_roundings_allow(rounded, actual, (Fault,), own_results=own)

    def placed(
        self, returned: Any, inputs: Sequence[np.dtype[Any]], left: Mapping[str, Array] | None = None
    ) -> list[Any]:
        """Return the outputs of this function, or of one that is compared with it, in order: those of a dict by its
        keys, no None, and Python's numbers as arrays, floats in the first floating dtype of the inputs; raise ``Fault``
        MISSING_OUTPUT if the other's outputs have other keys or places.

        ``left`` are the inputs as the other left them: outputs are taken from those that this function changes, unless
        the other returns all.
        """
        named = {str(name): each for name, each in outputs_of(returned) if each is not None}
        named = dict(sorted(named.items())) if isinstance(returned, Mapping) else named
        if left is None:
            self.keys[:] = named
        elif len(named) == len(self.keys) and [*named] != self.keys:
            raise Fault(Reason.MISSING_OUTPUT, f"the outputs are {[*named]}, but should be {self.keys}")
        kind = next((each for each in inputs if dtype_of(each).is_inexact), None)
        values = [
            np.asarray(each, kind if type(each) is float else None) if type(each) in (bool, int, float) else each
            for each in named.values()
        ]
        count = len(self.keys)
        if left and (not count or (not values and "" not in self.changed)):
            return [left[name] for name in self.changed]
        return values + [left[name] for name in self.changed[count:] if left and len(values) == count]

    def _longest_sum(
        self, given: Sequence[Array], outputs: Callable[[Sequence[Array]], list[Array]], exact: Sequence[Array]
    ) -> float:
        """Return how many terms an element may add up: 1 if the first and last elements of the outputs depend on the
        first and last elements of the inputs only."""
        moved = [widen(each) * 1.25 if each.dtype.kind not in "iub" else each for each in given]
        for one, unmoved in zip(moved, given, strict=True):
            if one is not unmoved and one.size:
                one.flat[0], one.flat[-1] = unmoved.flat[0], unmoved.flat[-1]
        pairs = zip(outputs(moved), exact, strict=True)
        ends = [(one.ravel()[[0, -1]], other.ravel()[[0, -1]]) for one, other in pairs if one.size]
        if all(np.array_equal(one, other, equal_nan=one.dtype.kind in "fc") for one, other in ends):
            return 1.0
        ratio = max(each.size for each in given) / max(1, min(each.size for each in exact))
        return float(max(1.0, ratio, *(size for each in given for size in each.shape)))

    def _outputs(
        self,
        inputs: Sequence[Any],
        attributes: Mapping[str, Any],
        *,
        without_casts: bool = True,
        seeks_changes: bool = False,
    ) -> list[Array]:
        """Return the function's outputs as arrays, with the inputs that are :attr:`changed`, which it finds out first
        if it ``seeks_changes``.

        Raises:
            Fault: REFERENCE_FAILED for any of its exceptions, or if it neither returns nor changes anything.
        """
        named = {name: each for name, each in zip(self.names, inputs, strict=False) if each is not None}

        def invoke(tensors: Sequence[Any]) -> Any:
            bound = self.signature.bind_partial()
            bound.arguments = {**dict(zip(named, tensors, strict=True)), **attributes}
            return self.function(*bound.args, **bound.kwargs)

        def writes(place: int) -> bool:
            """Return whether the function writes to an array, maybe what was there before."""
            arrays = [np.array(each) for each in named.values()]
            arrays[place].flags.writeable = False
            try:
                invoke(arrays)
            except ValueError as error:
                return "read-only" in str(error)
            return False

        def call(tensors: Sequence[Any]) -> list[Any]:
            versions = [getattr(each, "_version", 0) for each in tensors]  # of torch, which counts writes
            outputs = self.placed(invoke(tensors), [each.dtype for each in named.values()])
            if seeks_changes:
                found = {
                    name: each
                    for place, (name, each) in enumerate(
                        zip(named, tensors, strict=True) if self.arrays != "jax" else ()
                    )
                    if getattr(each, "_version", 0) != versions[place]
                    or to_array(each).tobytes() != named[name].tobytes()
                    or (self.arrays == "numpy" and not outputs and writes(place))
                }
                own = [next((name for name, each in found.items() if each is output), "") for output in outputs]
                self.changed[:] = [*own, *(name for name in found if name not in own)]
                if not self.changed:
                    raise Fault(Reason.REFERENCE_FAILED, f"{self.path} {CHANGES_NOTHING}")
            by_name = dict(zip(named, tensors, strict=True))
            return outputs + [by_name[name] for name in self.changed[len(outputs) :]]

        with Border(self.path, Reason.REFERENCE_FAILED), np.errstate(all="ignore"):
            if self.arrays == "torch":
                run = load_object("optest.torch.reference_functions:evaluated")
                outputs = run(call, list(named.values()), without_casts=without_casts)
            elif self.arrays == "jax":
                run = load_object("optest.jax.backend:called_with_arrays")
                outputs = run(call, list(named.values()), is_traced=self.is_traced)
            else:
                outputs = call([np.array(each).view(_Wide if without_casts else np.ndarray) for each in named.values()])
            return [np.asarray(to_array(each)).view(np.ndarray) for each in outputs]


class _Wide(np.ndarray[Any, Any]):
    """An array in float64 or float32 that ignores casts to narrower floats."""

    def astype(self, dtype: Any, *args: Any, **options: Any) -> Any:
        kind = np.dtype(dtype)
        is_narrower = kind in _NARROW and self.dtype in _WIDE and kind.itemsize < self.itemsize
        return super().astype(self.dtype if is_narrower else dtype, *args, **options)
