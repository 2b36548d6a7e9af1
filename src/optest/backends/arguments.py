"""A case's inputs at the places of its operator's signature, and at the parameters of a function."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from optest.registry import load_object
from optest.spec import TestCase, UnfitArguments

__all__ = ["OTHER_NAMES", "Binding", "at_their_places", "bound_arguments", "names_of", "refuse_unfit"]

Tensor = TypeVar("Tensor")
Parameters = Mapping[str, inspect.Parameter]

OTHER_NAMES: Mapping[str, tuple[str, ...]] = {
    "input": ("x", "self", "inp", "a"),
    "x": ("input", "self"),
    "other": ("y", "b"),
    "query": ("q",),
    "key": ("k",),
    "value": ("v",),
    "weight": ("w", "gamma"),
    "bias": ("b", "beta"),
    "attn_mask": ("mask", "attention_mask"),
    "index": ("indices", "idx"),
    "indices": ("index", "idx"),
    "target": ("labels", "label"),
    "grad_output": ("grad", "dy", "dout"),
    "is_causal": ("causal",),
    "scale": ("softmax_scale", "sm_scale"),
    "dim": ("axis", "axes"),
    "axis": ("dim",),
    "dims": ("axes", "axis", "perm"),
    "keepdim": ("keepdims",),
    "eps": ("epsilon",),
}
"""Names that functions have for tensors and attributes of operators, in addition to the aliases of a descriptor."""


def at_their_places(case: TestCase, inputs: Sequence[Tensor]) -> list[Tensor | None]:
    """Return ``inputs`` in the order of the signature, with None for an optional input that the case leaves out."""
    signature = case.descriptor.tensors
    by_name = {argument.name: tensor for argument, tensor in zip(case.inputs, inputs, strict=True)}
    if signature.is_variadic or len(by_name) != len(inputs):
        return list(inputs)
    return [by_name.get(parameter.name) for parameter in signature.inputs]


class Binding(NamedTuple):
    """What each parameter of a function gets in a call.

    Attributes:
        tensors: index into the case's inputs by parameter, None for an optional one that the case leaves out.
        listed: the parameter that gets the tensors of a variadic signature as a list, "" if there is none.
        spread: indices of the tensors for ``*args``.
        attributes: the attribute by parameter.
    """

    tensors: Mapping[str, int | None]
    listed: str
    spread: Sequence[int | None]
    attributes: Mapping[str, str]


def names_of(name: str, aliases: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the names under which a function may take a tensor or an attribute, the operator's own first."""
    return (name, *aliases, *OTHER_NAMES.get(name, ()))


def bound_arguments(
    case: TestCase, parameters: Parameters, *, outputs: Collection[str] = (), ignored: Collection[str] = ()
) -> Binding | str:
    """Assign the tensors and attributes of a case to the parameters of a function.

    Tensors are matched by the operator's names; by other names, such as ``w`` or ``gamma`` for ``weight``, only if
    then every parameter is matched; the rest in order. ``outputs`` are parameters for outputs, ``ignored`` attributes
    that the function does not take.

    Returns:
        The binding, or why there is none.
    """
    descriptor, signature = case.descriptor, case.descriptor.tensors
    placed = at_their_places(case, range(len(case.inputs)))
    fixed = [each for each in signature.inputs if not each.variadic]
    taken = {name: place for place, name in enumerate(each.name for each in fixed)}
    kinds = {each.kind for each in parameters.values()}
    named = {name for name, each in parameters.items() if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)}

    attributes: dict[str, str] = {}
    for attribute in descriptor.attributes:
        names = (attribute.name, *attribute.aliases)
        if attribute.name not in case.attributes or any(name in ignored for name in names):
            continue
        free = named - set(outputs) - set(attributes) - (taken.keys() - {attribute.name})
        own = next((name for name in names_of(attribute.name, attribute.aliases) if name in free), "")
        value = case.attributes[attribute.name]
        if own and not _fits(value, parameters[own], is_dtype="dtype" in attribute.type):
            return f"takes {own} as {parameters[own].annotation}, which is {value!r} here"
        if not own and inspect.Parameter.VAR_KEYWORD in kinds:
            own = attribute.name
        if own and (value is not None or own not in parameters or _is_required(parameters[own])):
            attributes[own] = attribute.name
        elif own:
            attributes.setdefault(own, "")  # None where the function has a default for it: left out
        elif attribute.is_required or value != attribute.default:  # it would assume the usual one
            implied = attribute.implied(case.inputs[0].spec.shape) if attribute.implied and case.inputs else None
            if implied is None or value != implied:
                remedy = f"; give it a parameter {attribute.name}, or ignores=({attribute.name!r},)"
                return f"takes no {attribute.name}, which is {value!r} here{remedy if attribute.implied else ''}"

    free_names = [name for name in parameters if name in named and name not in attributes and name not in outputs]
    tensors: dict[str, int] = {name: taken[name] for name in free_names if name in taken}
    aliased = dict(tensors)
    for name, place in taken.items():
        if place not in aliased.values():
            alias = next((each for each in names_of(name)[1:] if each in free_names and each not in aliased), None)
            aliased.update({alias: place} if alias else {})
    if all(name in aliased for name in free_names):
        tensors = aliased
    unbound = [place for place in taken.values() if place not in tensors.values()]
    in_order = [name for name in free_names if name not in tensors and parameters[name].kind in POSITIONAL]
    for place in unbound[:]:
        fit = (
            name
            for name in in_order
            if (not fixed[place].optional or parameters[name].default in (None, inspect.Parameter.empty))
            and _takes_tensors(parameters[name])
        )
        if name := next(fit, ""):
            tensors[name] = place
            unbound.remove(place)
            del in_order[: in_order.index(name) + 1]
    spread: list[int | None] = []
    listed = ""
    if inspect.Parameter.VAR_POSITIONAL in kinds:
        spread = [placed[place] for place in unbound] + [*placed[len(fixed) :]]
        while spread and spread[-1] is None:
            spread.pop()
    elif signature.is_variadic:
        several = [name for name in in_order if _is_required(parameters[name])]
        if len(several) > 1 and len(several) == len(placed) - len(fixed):
            tensors.update({name: len(fixed) + place for place, name in enumerate(several)})
        elif in_order:
            listed = in_order[0]
    unbound = [place for place in unbound if placed[place] is not None and place not in spread]
    if (unbound and not spread) or (signature.is_variadic and not listed and not spread and not tensors):
        return f"takes fewer tensors than the {len(case.inputs)} of the case"

    places = {name: placed[place] for name, place in tensors.items()}
    latest = max((place for place, index in enumerate(placed) if index is not None), default=-1)
    for name in free_names:
        if name == listed or not _is_required(parameters[name]):
            continue
        if name not in tensors:
            return f"needs {name}, which {descriptor.name} does not have"
        may_be_none = "None" in str(parameters[name].annotation) or "Optional" in str(parameters[name].annotation)
        if places[name] is None and not may_be_none and tensors[name] > latest:
            return f"needs {name}, which the case leaves out; give it the default None"
    return Binding(places, listed, spread, {own: name for own, name in attributes.items() if name})


POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def _is_required(parameter: inspect.Parameter) -> bool:
    return parameter.default is inspect.Parameter.empty


def _takes_tensors(parameter: inspect.Parameter) -> bool:
    """Return whether a parameter may take a tensor; only the schemas of a framework say that it does not."""
    return not isinstance(parameter.annotation, Schema) or "Tensor" in parameter.annotation


class Schema(str):
    """The type of a parameter in a framework's schema, which holds, as an annotation of Python does not."""


def _fits(value: Any, parameter: inspect.Parameter, *, is_dtype: bool) -> bool:
    """Return whether a schema accepts an attribute's value; anything that is no schema does."""
    kind = parameter.annotation
    if not isinstance(kind, Schema) or value is None:
        return not isinstance(kind, Schema) or "Optional" in kind or not _is_required(parameter)
    if is_dtype or isinstance(value, bool):
        return ("int" if is_dtype else "bool") in kind
    if isinstance(value, (list, tuple)):
        return "List[int]" in kind
    words = {int: ("int", "number", "float"), float: ("number", "float"), str: ("str",)}.get(type(value), ())
    return "Tensor" not in kind and "List" not in kind and any(word in kind for word in words)


def refuse_unfit(case: TestCase) -> None:
    """Say why the operator has no outputs for the case's dtypes, shapes and attributes.

    Raises:
        UnfitArguments: for inputs that the operator is not defined for.
    """
    descriptor = case.descriptor
    if not descriptor.admits([entry.name for entry in case.dtypes]):
        raise UnfitArguments(f"{descriptor.name} is not defined for {', '.join(entry.name for entry in case.dtypes)}")
    if case.outputs or descriptor.infer is None:
        return
    infer = load_object(descriptor.infer)
    infer(at_their_places(case, [argument.spec for argument in case.inputs]), case.attributes)
