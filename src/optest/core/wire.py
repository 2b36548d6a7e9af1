"""A case as plain data and back: what crosses into a worker and what a journal keeps so that a case can run again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import compress
from operator import attrgetter
from typing import Any

from optest.spec import (
    DEFAULT_PRIORITY,
    FORWARD,
    Argument,
    BackendTarget,
    ExpectedError,
    Fill,
    Layer,
    OperatorDescriptor,
    Skip,
    Status,
    TensorSpec,
    TestCase,
    Tolerance,
    ToleranceLayer,
    Xfail,
    dtype,
)
from optest.spec.construct import constructor

new_case, new_argument, new_fill = constructor(TestCase), constructor(Argument), constructor(Fill)


def case_to_wire(case: TestCase) -> dict[str, Any]:
    """Plain data only: dicts, tuples, strings, numbers, None. The operator goes by name.

    Tuples, since the garbage collector soon stops looking at them, and a run keeps one wire form for each case.
    """
    target = case.backend
    wire: dict[str, Any] = {
        "op": case.descriptor.name,
        "inputs": tuple([_argument_to_wire(argument) for argument in case.inputs]),
        "attributes": dict(case.attributes),
        "backend": (target.name, target.kind, target.chip, target.device, target.variant),
        "seed": case.seed,
    }
    if case.outputs:
        wire["outputs"] = tuple([_spec_to_wire(spec) for spec in case.outputs])
    if case.tolerances:
        wire["tolerances"] = tuple(
            [(each.layer.name, each.output, each.where, *_TOLERANCE_OF(each.tolerance)) for each in case.tolerances]
        )
    if case.skip:
        wire["skip"] = case.skip.reason
    if case.xfail:
        wire["xfail"] = [case.xfail.reason, case.xfail.status and case.xfail.status.value, case.xfail.strict]
    if case.expects_error:
        wire["expects_error"] = [getattr(case.expects_error, name) for name in _OF_REFUSALS]
    if case.invariants is not None:
        wire["invariants"] = case.invariants
    if case.priority != DEFAULT_PRIORITY:
        wire["priority"] = case.priority
    if case.mode != FORWARD:
        wire["mode"] = case.mode
    values = _plain_fields(case)
    wire.update(compress(zip(_PLAIN, values, strict=True), values))
    return wire


_PLAIN = (
    "name",
    "generator",
    "reference",
    "timeout_s",
    "retries",
    "tags",
    "description",
    "where",
    "base_dir",
    "allowed_folders",
    "backend_config",
    "origins",
)
_TUPLES = {"tags", "allowed_folders"}
_plain_fields = attrgetter(*_PLAIN)
_OF_REFUSALS = ("type", "match", "pattern")


def case_from_wire(wire: Mapping[str, Any], operator: Callable[[str], OperatorDescriptor], key: str = "") -> TestCase:
    """Build the case again; ``operator`` finds a descriptor by name and raises ``UnknownName``.

    ``key``, where it is known, is believed: a worker draws the tensors of the case that its parent journals.
    """
    skip, xfail, refusal = wire.get("skip"), wire.get("xfail"), wire.get("expects_error")
    plain = {name: wire[name] for name in _PLAIN if name in wire}
    for name in _TUPLES & plain.keys():
        plain[name] = tuple(plain[name])
    descriptor = operator(wire["op"])
    case = new_case(
        descriptor=descriptor,
        inputs=tuple([_argument_from_wire(each) for each in wire["inputs"]]),
        outputs=tuple([_spec_from_wire(each) for each in wire.get("outputs", ())]),
        attributes={name: _tuples(value) for name, value in wire["attributes"].items()},
        backend=_target(*wire["backend"]),
        seed=wire["seed"],
        priority=wire.get("priority", DEFAULT_PRIORITY),
        mode=wire.get("mode", FORWARD),
        tolerances=tuple(_layer(*each) for each in wire.get("tolerances", ())),
        skip=Skip(reason=skip) if skip else None,
        xfail=Xfail(reason=xfail[0], status=Status(xfail[1]) if xfail[1] else None, strict=xfail[2]) if xfail else None,
        invariants=tuple(wire["invariants"]) if "invariants" in wire else None,
        expects_error=ExpectedError(**dict(zip(_OF_REFUSALS, refusal, strict=False))) if refusal else None,
        **plain,
    )
    if key:
        object.__setattr__(case, "_key", key)
    return case


@lru_cache(maxsize=64)
def _target(name: str, kind: str, chip: str | None, device: str | None, variant: str | None) -> BackendTarget:
    return BackendTarget(name=name, kind=kind, chip=chip, device=device, variant=variant)


def _tuples(value: Any) -> Any:
    """Lists of attributes are tuples in a case; JSON and MessagePack only know lists."""
    return tuple(map(_tuples, value)) if isinstance(value, (list, tuple)) else value


def _spec_to_wire(spec: TensorSpec) -> tuple[Any, ...]:
    if spec.strides is None and not spec.offset:
        return (spec.dtype.name, spec.shape)
    return (spec.dtype.name, spec.shape, spec.strides, spec.offset)


def _spec_from_wire(wire: Sequence[Any]) -> TensorSpec:
    if len(wire) == 2:
        return _dense(wire[0], tuple(wire[1]))
    strides, offset = wire[2:]
    return TensorSpec(
        dtype=dtype(wire[0]),
        shape=tuple(wire[1]),
        strides=None if strides is None else tuple(strides),
        offset=offset,
    )


@lru_cache(maxsize=4096)
def _dense(name: str, shape: tuple[int, ...]) -> TensorSpec:
    return TensorSpec(dtype=dtype(name), shape=shape)


def _argument_to_wire(argument: Argument) -> tuple[Any, ...]:
    fill = argument.fill
    return (argument.name, argument.path, _spec_to_wire(argument.spec), fill.kind, dict(fill.parameters))


def _argument_from_wire(wire: Sequence[Any]) -> Argument:
    name, path, spec, kind, parameters = wire
    fill = new_fill(kind=kind, parameters=parameters)
    return new_argument(name=name, path=path, spec=_spec_from_wire(spec), fill=fill)


_TOLERANCE_OF = attrgetter("rtol", "atol", "mismatch_ratio", "signed_zeros")


@lru_cache(maxsize=64, typed=True)
def _layer(layer: str, output: str | None, where: str, *stated: Any) -> ToleranceLayer:
    """One object for all cases that share it, by which the comparison remembers what it makes of it."""
    rtol, atol, ratio, signed_zeros = stated
    tolerance = Tolerance(rtol=rtol, atol=atol, mismatch_ratio=ratio, signed_zeros=signed_zeros)
    return ToleranceLayer(layer=Layer[layer], tolerance=tolerance, output=output, where=where)
