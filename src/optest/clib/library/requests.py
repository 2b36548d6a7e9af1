"""What a case asks to be done otherwise in a call: nothing where there is something, too little, one thing twice."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from optest.errors import UnknownName, nearest
from optest.spec import DType, TestCase, dtype

__all__ = ["NO_REQUEST", "CallRequest", "read_call"]

Say = Callable[[str, str], None]
"""Notes what is wrong with a key: the key, and what is said of it."""

_KEYS = ("null", "null_descriptor", "workspace", "alias", "behind", "in_place", "dtypes", "shapes")
_NOT_TENSORS = ("workspace", "descriptor", "handle")


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRequest:
    """``backend_config.ffi.call``; a tensor is ``input:a`` or ``output:out``, as in a mapping.

    ``null`` are the pointers that are NULL when the operator runs (tensors, ``workspace``, ``descriptor``), or, for
    ``handle``, when its descriptor is made; ``null_descriptor`` the tensors whose descriptor is. ``short_workspace``
    hands over one byte less than the library asked for. ``alias`` lets an output begin ``behind`` elements behind the
    first element of an input, in the input's memory; ``in_place`` lets it be the input. ``dtypes`` and ``shapes``
    describe an output as another one than follows from the inputs. All but ``in_place`` ask for a refusal.
    """

    null: tuple[str, ...] = ()
    null_descriptor: tuple[str, ...] = ()
    short_workspace: bool = False
    alias: Mapping[str, str] = field(default_factory=dict)
    behind: int = 1
    in_place: Mapping[str, str] = field(default_factory=dict)
    dtypes: Mapping[str, DType] = field(default_factory=dict)
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return self != NO_REQUEST

    @property
    def is_wrong(self) -> bool:
        """Whether the call has to be refused."""
        return bool(
            self.null or self.null_descriptor or self.short_workspace or self.alias or self.dtypes or self.shapes
        )


NO_REQUEST = CallRequest()


def read_call(case: TestCase, stated: Any, say: Say) -> CallRequest:
    """Read the section; what is wrong with it is said, and left out."""
    if not isinstance(stated, Mapping):
        say("call", f"is {stated!r}, but should be a map such as {{null: [input:{_first(case)}]}}")
        return NO_REQUEST
    for key in stated:
        if key not in _KEYS:
            near = nearest(str(key), _KEYS)
            hint = f"did you mean {near!r}?" if near else f"known: {', '.join(_KEYS)}"
            say("call", f"has the unknown key {key!r}; {hint}")
    tensors = _tensors(case)
    request = CallRequest(
        null=_listed("null", stated, (*tensors, *_NOT_TENSORS), say),
        null_descriptor=_listed("null_descriptor", stated, tensors, say),
        short_workspace=_short(stated, say),
        alias=_pairs("alias", stated, tensors, say),
        behind=_whole("behind", stated, say),
        in_place=_pairs("in_place", stated, tensors, say),
        dtypes=_by_output("dtypes", stated, tensors, _dtype, "a dtype", say),
        shapes=_by_output("shapes", stated, tensors, _shape, "a list of sizes", say),
    )
    if request.is_wrong and case.expects_error is None:
        say("call", "asks for what has to be refused, so the case should state expects_error: {type: StatusError}")
    return request


def _first(case: TestCase) -> str:
    return case.inputs[0].name if case.inputs else "input"


def _tensors(case: TestCase) -> tuple[str, ...]:
    inputs = tuple(f"input:{each.name}" for each in case.descriptor.tensors.inputs)
    return (*inputs, *(f"output:{name}" for name in case.descriptor.tensors.outputs))


def _listed(key: str, stated: Mapping[str, Any], known: Sequence[str], say: Say) -> tuple[str, ...]:
    value = stated.get(key, ())
    named = [value] if isinstance(value, str) else value
    if not isinstance(named, (list, tuple)) or any(each not in known for each in named):
        say(f"call.{key}", f"is {value!r}, but should be a list of some of {', '.join(known)}")
        return ()
    return tuple(named)


def _short(stated: Mapping[str, Any], say: Say) -> bool:
    value = stated.get("workspace")
    if value not in (None, "short"):
        say("call.workspace", f"is {value!r}, but should be short")
    return bool(value == "short")


def _whole(key: str, stated: Mapping[str, Any], say: Say) -> int:
    value = stated.get(key, 1)
    if type(value) is int:
        return value
    say(f"call.{key}", f"is {value!r}, but should be a number of elements, such as 1, 0 or -1")
    return 1


def _pairs(key: str, stated: Mapping[str, Any], tensors: Sequence[str], say: Say) -> Mapping[str, str]:
    value = stated.get(key, {})
    outputs = [each for each in tensors if each.startswith("output:")]
    inputs = [each for each in tensors if each.startswith("input:")]
    if not isinstance(value, Mapping) or any(out not in outputs or of not in tensors for out, of in value.items()):
        example = f"{{{outputs[0]}: {(inputs or outputs)[0]}}}"
        say(f"call.{key}", f"is {value!r}, but should be a map of an output to an input, such as {example}")
        return {}
    return dict(value)


def _by_output(
    key: str, stated: Mapping[str, Any], tensors: Sequence[str], read: Callable[[Any], Any], what: str, say: Say
) -> Mapping[str, Any]:
    value = stated.get(key, {})
    outputs = [each for each in tensors if each.startswith("output:")]
    if not isinstance(value, Mapping) or any(name not in outputs for name in value):
        say(f"call.{key}", f"is {value!r}, but should be a map of outputs ({', '.join(outputs)}), each to {what}")
        return {}
    found = {name: read(each) for name, each in value.items()}
    for name, each in found.items():
        if each is None:
            say(f"call.{key}.{name}", f"is {value[name]!r}, but should be {what}")
    return {name: each for name, each in found.items() if each is not None}


def _dtype(value: Any) -> DType | None:
    try:
        return dtype(value) if isinstance(value, str) else None
    except UnknownName:
        return None


def _shape(value: Any) -> tuple[int, ...] | None:
    if not isinstance(value, (list, tuple)) or any(type(each) is not int or each < 0 for each in value):
        return None
    return tuple(value)
