"""Operators that a user's function defines, ``function.MODULE:NAME``, for ``check --reference``.

The function runs in float64 on copies of the inputs. The bound of a result follows from its change by one rounding of
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
# Factor of √n·u for sums. Partial sums of n terms in a row are off by 0.2·√n·u of max(|Σt|, √Σt²): 0.17 if all have
# one sign, 0.2 if they cancel. Eight times a quarter has room for the largest of many.
_SUM_OF_TERMS = 0.25
_NARROWER = {np.dtype(np.float64): np.float32, np.dtype(np.complex128): np.complex64}
_NARROW = {numpy_dtype(dtype(name)) for name in ("float32", "float16", "bfloat16")}
_WIDE = (np.dtype(np.float64), np.dtype(np.float32))
# Words in names of parameters for whole numbers below a size; not if the last word is one of floats.
_INDEX_NAMES = re.compile(
    r"(^|_)(idxs?|ind(ex|exes|ices|ptr)|ids?|tokens?|targets?|labels?|pos|positions?|([a-z]*seq|kv)?len(s|gths?)?|"
    r"(group|expert|batch|segment)_(sizes|counts)|offs(ets?)?|ptr|slots?|perm|permutation|(block|page)_tables?)\d*(_|$)"
    r"(?!(.*_)?(emb\w*|weights?|bias|scales?|probs?|logits|scores?|values?|states?|enc\w*|features?|grad)$)"
)
# Words in annotations of tensors, and their dtypes.
_ANNOTATED = (
    ("Long|[iI]nt64|\\bInt(eger)?\\b", "int64"),
    ("IntTensor|[iI]nt32", "int32"),
    ("Byte|[uU][iI]nt8", "uint8"),
    ("Char|[iI]nt8", "int8"),
    ("Bool|bool_", "bool"),
)
_SCALARS = ("int", "float", "bool", "str")


@lru_cache(maxsize=64)
def descriptor_of(name: str, catalogue: Iterable[OperatorDescriptor]) -> OperatorDescriptor:
    """Return the operator that the function at the import path after ``function.`` defines.

    Its parameters are tensors, unless they have a default other than None, an annotation of a scalar, or a name that
    only attributes have in the catalogue.

    Raises:
        UsageError, Unavailable: if there is no such function, or its signature cannot be read.
    """
    path = name.removeprefix(PREFIX)
    kernel = kernel_of(load_extension("reference", path))
    signature = _signature_of(path, kernel.function)
    tensors = {text for operator in catalogue for each in operator.tensors.inputs for text in names_of(each.name)}
    attribute_types = {
        name: each.type
        for operator in catalogue
        for each in operator.attributes
        for name in (each.name, *each.aliases)
        if name not in tensors and len(name) > 1
    }
    inputs, attributes, optional, dtypes = [], [], [], dict[str, str]()
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            continue
        if parameter.kind is parameter.VAR_POSITIONAL:
            raise UsageError(f"--reference {path} takes *{parameter.name}, expected a parameter for each tensor")
        is_required, words = parameter.default is parameter.empty, str(parameter.annotation).replace("<class '", "")
        annotated = next((kind for kind in _SCALARS if words.startswith(kind) or f"[{kind}" in words), "")
        is_array = "Tensor" in words or "array" in words.lower()
        kind = annotated or ("" if is_array else attribute_types.get(parameter.name, ""))
        if not is_required and parameter.default is not None:
            kind = _kind_of(parameter.default)
            if not kind:
                continue
        if kind:
            default = {} if is_required else {"default": parameter.default}
            attributes.append(Attribute(name=parameter.name, type=kind, **default))
        else:
            inputs.append(f"{parameter.name}{'' if is_required else '?'}")
            dtypes[parameter.name] = _dtype_of(parameter.name, words)
            if not is_required and (is_array or parameter.name in tensors or dtypes[parameter.name]):
                optional.append(parameter.name)
    if not inputs:
        raise UsageError(f"--reference {path} takes no tensors, expected a parameter without a default")
    reference = ReferenceFunction(
        path, kernel.function, kernel.takes, signature, tuple(dtypes), dtypes, tuple(optional)
    )
    return OperatorDescriptor(
        name=name,
        category="function",
        signature=f"{', '.join(inputs)} -> *out",
        attributes=tuple(attributes),
        reference=reference,
        rule=_RULE,
        alternatives=reference.as_close_as_roundings_allow,
    )


def _signature_of(path: str, function: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of a function, of ``forward`` for a module; raise UsageError if it cannot be read."""
    try:
        return inspect.signature(getattr(function, "forward", function))
    except (TypeError, ValueError):
        raise UsageError(
            f"--reference {path} has no readable signature, expected a function of Python\n"
            f"  wrap it in a Python function: def slow(x): return {path.rpartition(':')[2]}(x)"
        ) from None


def _dtype_of(name: str, annotation: str) -> str:
    """Return the dtype that the annotation of a parameter, or else its name, implies for its tensor, "" for floats."""
    if annotated := next((kind for words, kind in _ANNOTATED if re.search(words, annotation)), ""):
        return annotated
    if re.search("Float|Half|Double|float", annotation):
        return ""
    name = name.lower()
    return "bool" if "mask" in name or name.endswith("valid") else "int64" if _INDEX_NAMES.search(name) else ""


def _kind_of(default: Any) -> str:
    """Return the type of an attribute with this default, "" for a value that no case can have."""
    if isinstance(default, (tuple, list)) and all(isinstance(each, int) for each in default):
        return "ints"
    name = type(default).__name__
    return "int|float" if name == "int" else name if name in _SCALARS else ""


@dataclass(frozen=True, slots=True)
class ReferenceFunction:
    """Function as a reference hook; ``arrays`` is the library of its tensors, ``names`` are their parameters."""

    path: str
    function: Callable[..., Any]
    arrays: str
    signature: inspect.Signature
    names: tuple[str, ...]
    # Dtypes of the parameters: those of whole numbers and masks by name or annotation, "" for floats.
    kinds: Mapping[str, str]
    # Parameters with the default None that are tensors by their name or annotation.
    optional: tuple[str, ...] = ()
    # Outputs of JAX are zeros of the right shapes and dtypes, which needs no compiler.
    is_traced: bool = False
    # Keys or positions of the outputs that the last call returned.
    keys: list[str] = field(default_factory=list, compare=False)
    # Parameters that hold the outputs of the last call, "" for an output that is only returned; parameters that were
    # changed but not returned come last.
    changed: list[str] = field(default_factory=list, compare=False)

    def __call__(self, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> list[Any]:
        """Return the outputs in float64, each with the dtype that it has for inputs in the dtypes of the case."""
        exact = self._outputs(
            [None if each is None else widen(each) for each in inputs], attributes, seeks_changes=True
        )
        entry = next((kind for x in inputs if x is not None and (kind := dtype_of(x.dtype)).is_inexact), None)
        kinds = [dtype_of(each.dtype) if entry is None or each.dtype.kind not in "fc" else entry for each in exact]
        with suppress(Fault):  # a library without a kernel for this dtype: the dtype of the inputs remains
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
            """Return the outputs in float64 for moved inputs, with errors of the function's steps added if
            requested.
            """
            wide_outputs = outputs(list(map(widen, moved)))
            if rounding is None or not rounding.unit:
                return wide_outputs
            # The difference of a run in half the precision to one in full measures the roundings of the steps.
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

        arrays = [each for each in inputs if each is not None]
        length = self._longest_sum(arrays, outputs, exact)
        rounded = RoundedCall.of(evaluate, arrays, actual)
        # A 16-bit kernel may compute in float32 or in its own dtype: both results are right.
        halves = [x is not None and x.dtype.itemsize == 2 and x.dtype.kind not in "iub" for x in inputs]
        single = [each.astype(np.float32) if half else each for each, half in zip(inputs, halves, strict=True)]
        own_results = []
        for tensors in (inputs, single) if any(halves) else (inputs,):
            own_results.append(exact)
            with suppress(Fault):  # a library without a kernel for this dtype
                narrow = self._outputs(tensors, attributes, without_casts=False)
                own_results[-1] = narrow if len(narrow) == len(exact) else exact
        return as_close_as_roundings_allow(rounded, actual, (Fault,), own_results=own_results)

    def outputs_in_order(
        self, returned: Any, inputs: Sequence[np.dtype[Any]], left: Mapping[str, Array] | None = None
    ) -> list[Any]:
        """Return the outputs of this function, or of one that is compared with it, in order.

        Values of a dict are ordered by keys, None is left out, Python's numbers become arrays (floats in the first
        floating dtype of ``inputs``). ``left``, the inputs as the other function left them, replaces outputs that this
        function writes into its inputs, unless the other one returns all.

        Raises:
            Fault: MISSING_OUTPUT if the other function's outputs have other keys or positions.
        """
        named = {str(name): each for name, each in outputs_of(returned) if each is not None}
        named = dict(sorted(named.items())) if isinstance(returned, Mapping) else named
        if left is None:
            self.keys[:] = named
        elif len(named) == len(self.keys) and [*named] != self.keys:
            raise Fault(Reason.MISSING_OUTPUT, f"the outputs are {[*named]}, expected {self.keys}")
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
        self, inputs: Sequence[Array], outputs: Callable[[Sequence[Array]], list[Array]], exact: Sequence[Array]
    ) -> float:
        """Return how many terms an element may add up, 1 for an elementwise function.

        It is elementwise if the first and last elements of the outputs depend on the first and last ones of the inputs
        only.
        """
        # Change every element except the first and last ones.
        moved = [widen(each) * 1.25 if each.dtype.kind not in "iub" else each for each in inputs]
        for changed, unmoved in zip(moved, inputs, strict=True):
            if changed is not unmoved and changed.size:
                changed.flat[0], changed.flat[-1] = unmoved.flat[0], unmoved.flat[-1]
        pairs = zip(outputs(moved), exact, strict=True)
        ends = [(x.ravel()[[0, -1]], y.ravel()[[0, -1]]) for x, y in pairs if x.size]
        if all(np.array_equal(x, y, equal_nan=x.dtype.kind in "fc") for x, y in ends):
            return 1.0
        ratio = max(each.size for each in inputs) / max(1, min(each.size for each in exact))
        return float(max(1.0, ratio, *(size for each in inputs for size in each.shape)))

    def _outputs(
        self,
        inputs: Sequence[Any],
        attributes: Mapping[str, Any],
        *,
        without_casts: bool = True,
        seeks_changes: bool = False,
    ) -> list[Array]:
        """Return the function's outputs as arrays, including the inputs that it changes (:attr:`changed`).

        ``seeks_changes`` finds these inputs first; ``without_casts`` ignores casts to narrower floats.

        Raises:
            Fault: REFERENCE_FAILED for any of its exceptions, or if it neither returns nor changes anything.
        """
        named = {name: each for name, each in zip(self.names, inputs, strict=False) if each is not None}

        def invoke(tensors: Sequence[Any]) -> Any:
            bound = self.signature.bind_partial()
            bound.arguments = {**dict(zip(named, tensors, strict=True)), **attributes}
            return self.function(*bound.args, **bound.kwargs)

        def writes(index: int) -> bool:
            """Return whether the function writes to an input, even if only the values that it had."""
            arrays = [np.array(each) for each in named.values()]
            arrays[index].flags.writeable = False
            try:
                invoke(arrays)
            except ValueError as error:
                return "read-only" in str(error)
            return False

        def call(tensors: Sequence[Any]) -> list[Any]:
            """Call the function on tensors of its library; return its outputs and the inputs that it changed only."""
            versions = [getattr(each, "_version", 0) for each in tensors]  # of torch, which counts writes
            outputs = self.outputs_in_order(invoke(tensors), [each.dtype for each in named.values()])
            if seeks_changes:
                changed = {}
                for index, (name, tensor) in enumerate(zip(named, tensors, strict=True)):
                    if self.arrays != "jax" and (  # JAX's arrays are immutable
                        getattr(tensor, "_version", 0) != versions[index]
                        or to_array(tensor).tobytes() != named[name].tobytes()
                        or (self.arrays == "numpy" and not outputs and writes(index))
                    ):
                        changed[name] = tensor
                returned = [next((name for name, each in changed.items() if each is output), "") for output in outputs]
                self.changed[:] = [*returned, *(name for name in changed if name not in returned)]
                if not self.changed:
                    raise Fault(Reason.REFERENCE_FAILED, f"{self.path} {CHANGES_NOTHING}")
            by_name = dict(zip(named, tensors, strict=True))
            return outputs + [by_name[name] for name in self.changed[len(outputs) :]]

        with Border(self.path, Reason.REFERENCE_FAILED), np.errstate(all="ignore"):
            if self.arrays == "torch":
                run = load_object("optest.torch.reference_functions:evaluate_reference")
                outputs = run(call, list(named.values()), without_casts=without_casts)
            elif self.arrays == "jax":
                run = load_object("optest.jax.backend:call_with_arrays")
                outputs = run(call, list(named.values()), is_traced=self.is_traced)
            else:
                outputs = call([np.array(each).view(_Wide if without_casts else np.ndarray) for each in named.values()])
            return [np.asarray(to_array(each)).view(np.ndarray) for each in outputs]


class _Wide(np.ndarray[Any, Any]):
    """Array in float64 or float32 that ignores casts to narrower floats."""

    def astype(self, dtype: Any, *args: Any, **options: Any) -> Any:
        """Cast, except from float64 or float32 to a narrower float."""
        kind = np.dtype(dtype)
        is_narrower = kind in _NARROW and self.dtype in _WIDE and kind.itemsize < self.itemsize
        return super().astype(self.dtype if is_narrower else dtype, *args, **options)
