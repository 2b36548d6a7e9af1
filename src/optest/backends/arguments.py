"""Assignment of a case's inputs to its operator's signature, and to the parameters of a function."""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeVar

from optest.registry import load_object
from optest.spec import Attribute, TestCase, UnfitArguments

Tensor = TypeVar("Tensor")

_SAME = (
    "input x self inp a; x input; other y b; query q query_states; key k key_states; value v value_states; "
    "weight w gamma table; bias b beta; index indices ids; indices index idx ids; attn_mask mask attention_mask; "
    "target labels label; grad_output dy dout; is_causal causal; dim axis axes; axis dim; dims axes axis perm; "
    "keepdim keepdims; eps epsilon variance_epsilon; num_groups groups; normalized_shape shape norm_shape; "
    "kernel_size kernel ksize; stride strides; padding pad pads; dilation dilations; k topk top_k; negative_slope slope"
)
# Names that functions use for tensors and attributes of operators, in addition to a descriptor's aliases.
OTHER_NAMES = {first: tuple(rest) for first, *rest in (names.split() for names in _SAME.split(";"))}


def in_signature_order(case: TestCase, inputs: Sequence[Tensor]) -> list[Tensor | None]:
    """Return ``inputs`` in the order of the signature, with None for an optional input that the case leaves out.

    Variadic inputs, and those that share a name, keep their order.
    """
    signature = case.descriptor.tensors
    by_name = {argument.name: tensor for argument, tensor in zip(case.inputs, inputs, strict=True)}
    if signature.is_variadic or len(by_name) != len(inputs):
        return list(inputs)
    return [by_name.get(parameter.name) for parameter in signature.inputs]


class Schema(str):
    """Type of a parameter in a framework's schema, as text."""

    def accepts(self, value: Any, default: Any, *, is_dtype: bool) -> bool:
        """Return whether the value of an attribute has this type; a tuple also needs the length of a non-empty default
        or one element."""
        if value is None or is_dtype:
            return ("int" if is_dtype else "Optional") in self or (value is None and default is not EMPTY)
        words = {bool: ("bool",), int: ("int", "number", "float"), float: ("number", "float"), str: ("str",)}
        lengths = (1, len(default)) if isinstance(default, list) and default and isinstance(value, tuple) else None
        is_long = lengths is not None and len(value) not in lengths
        return not is_long and self.removeprefix("Optional[").startswith(words.get(type(value), ("List[int]",)))


# The number of spatial dimensions in the name of an operator, as in `conv2d`.
_SPATIAL = re.compile(r"(\d)d(?:_|$)")


def convert_value(case: TestCase, attribute: Attribute, parameter: inspect.Parameter) -> tuple[Any, bool]:
    """Return an attribute's value in the form of a function's parameter, and whether it fits.

    By the parameter's default or annotation, a list of equal numbers becomes an int, a single number one for each
    spatial dimension. Values that are no lists of ints are returned as they are.
    """
    value, default = case.attributes[attribute.name], parameter.default
    if "ints" not in attribute.type or isinstance(parameter.annotation, Schema) or value is None or value == ():
        return value, True
    is_one = type(default) is int or parameter.annotation in (int, "int")
    spatial = None if attribute.names_dimensions else _SPATIAL.search(case.descriptor.name)
    count = len(default) if isinstance(default, (tuple, list)) else int(spatial[1]) if spatial else 0
    if spatial and (isinstance(value, str) or len(value) not in (1, count) or (is_one and len({*value}) > 1)):
        return value, default in (EMPTY, None) and not is_one
    if is_one and (len(value) == 1 or spatial):
        return value[0], True
    return value * count if spatial and len(value) == 1 else value, True


def names_of(name: str, aliases: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the names under which a function may take a tensor or an attribute, the operator's name first."""
    return (name, *aliases, *OTHER_NAMES.get(name, ()))


def bind_arguments(
    case: TestCase, parameters: Mapping[str, inspect.Parameter], outputs: Collection[str], ignored: Collection[str]
) -> dict[str, Any] | str:
    """Assign the tensors and attributes of a case to the parameters of a function.

    Tensors match by the operator's names; by other names, such as ``w`` or ``gamma`` for ``weight``, only if that
    matches every parameter without a default; the rest in order. ``outputs`` are parameters for outputs, ``ignored``
    attributes that the function does not take.

    Returns:
        By parameter the index of an input, a list of indices, the name of an attribute or, for ``**keywords``, a
        tuple of names; or the reason why the function cannot take the case, as text.
    """
    kinds = {parameter.kind: name for name, parameter in parameters.items()}
    needed = {name for name, parameter in parameters.items() if parameter.default is None or parameter.default is EMPTY}
    args, keywords = kinds.get(inspect.Parameter.VAR_POSITIONAL, ""), kinds.get(inspect.Parameter.VAR_KEYWORD, "")
    free = [name for name in parameters if name not in (args, keywords, *outputs)]
    fixed = [item for item in case.descriptor.tensors.inputs if not item.variadic]
    names = [item.name for item in fixed]
    bound: dict[str, Any] = {}
    rank = case.inputs[0].spec.rank if case.inputs else 0
    for attribute in case.descriptor.attributes:
        known = names_of(attribute.name, attribute.aliases)
        if attribute.name not in case.attributes or any(name in ignored for name in known):
            continue
        parameter = next((name for name in known if name in free and (name == attribute.name or name not in names)), "")
        value = case.attributes[attribute.name]
        implied = attribute.implied(case.inputs[0].spec) if attribute.implied and case.inputs else None
        if parameter:
            kind, default = parameters[parameter].annotation, parameters[parameter].default
            if isinstance(kind, Schema) and not kind.accepts(value, default, is_dtype="dtype" in attribute.type):
                return f"takes no {parameter} of {value!r}"
            taken, has_form = convert_value(case, attribute, parameters[parameter])
            if not has_form and kind in (int, "int"):
                return f"takes no {parameter} of {value!r}"
            free.remove(parameter)
            passed = implied if value is None else taken
            is_usual = passed is None or value is default or (type(default) is type(passed) and default == passed)
            # The default of a function under comparison is part of its result.
            is_usual |= (
                case.descriptor.category == "function" and value == attribute.default and not attribute.is_required
            )
            if default is EMPTY or not is_usual:
                bound[parameter] = attribute.name
        elif keywords:
            bound[keywords] = (*bound.get(keywords, ()), attribute.name)
        elif not attribute.is_default(value, rank) and (implied is None or value != implied):
            is_derivable = re.match("bool|int", attribute.type) and not attribute.names_dimensions
            remedy = f": add it, or ignores=({attribute.name!r},) if it follows from the shapes" if is_derivable else ""
            return f"takes no {attribute.name}, which is {value!r} here{remedy}"

    indices = {name: names.index(name) for name in free if name in names}
    aliased = dict(indices)
    for name in [name for name in names if name not in free]:
        parameter = next((alias for alias in names_of(name) if alias in free and alias not in aliased), "")
        aliased |= {parameter: names.index(name)} if parameter else {}
    indices = aliased if needed.intersection(free) <= aliased.keys() else indices
    in_order = [name for name in free if name not in indices and parameters[name].kind is not KEYWORD_ONLY]
    left = [index for index in range(len(names)) if index not in indices.values()]
    for index in left[:]:
        for name in in_order:
            is_tensor = "Tensor" in kind if isinstance(kind := parameters[name].annotation, Schema) else True
            if is_tensor and (name in needed or not fixed[index].optional):
                indices[name] = index
                left.remove(index)
                del in_order[: in_order.index(name) + 1]
                break

    input_indices = in_signature_order(case, range(len(case.inputs)))
    variadic = [index for index in input_indices[len(fixed) :] if index is not None]
    required = [name for name in in_order if parameters[name].default is EMPTY]
    if args:
        first = [input_indices[index] for index in left]
        bound[args] = first[: max((n for n, index in enumerate(first, 1) if index is not None), default=0)] + variadic
    elif len(required) > 1 and len(required) == len(variadic):
        bound |= dict(zip(required, variadic, strict=True))
    elif case.descriptor.tensors.is_variadic and in_order:
        bound[in_order[0]] = variadic
    elif variadic or any(input_indices[index] is not None for index in left):
        return f"takes fewer tensors than the {len(case.inputs)} of the case"
    for name, index in indices.items():
        may_be_none = re.search("None|Optional", str(parameters[name].annotation))
        if input_indices[index] is not None or (parameters[name].default is EMPTY and may_be_none):
            bound[name] = input_indices[index]
    missing = [name for name in free if parameters[name].default is EMPTY and name not in bound]
    declared = f"@optest.kernel({case.descriptor.name!r}, out={tuple(missing)})".replace("'", '"')
    remedy = f"; if it writes its result into {', '.join(missing)}: {declared}"
    is_for_outputs = not outputs and len(missing) == len(case.descriptor.tensors.outputs)
    is_for_outputs &= not any(parameter in names_of(name) for name in names for parameter in missing)
    remedy = remedy if is_for_outputs else ": give it a default, or wrap the function"
    return f"needs {missing[0]}, which is left out here{remedy}" if missing else bound


EMPTY, KEYWORD_ONLY = inspect.Parameter.empty, inspect.Parameter.KEYWORD_ONLY


def require_defined(case: TestCase) -> None:
    """Raise UnfitArguments if the operator is not defined for the case's dtypes or its inference rejects the shapes."""
    descriptor = case.descriptor
    if not descriptor.supports([entry.name for entry in case.dtypes]):
        raise UnfitArguments(f"{descriptor.name} is not defined for {', '.join(entry.name for entry in case.dtypes)}")
    if case.outputs or descriptor.infer is None:
        return
    infer = load_object(descriptor.infer)
    infer(in_signature_order(case, [argument.spec for argument in case.inputs]), case.attributes)
