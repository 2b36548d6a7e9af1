"""Conversion of a case to plain data and back, for requests to workers and for journals."""

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
    """Convert a case to plain data: dicts, lists, tuples, strings, numbers, None; the operator by name.

    Fields with their default value are left out.
    """
    # Mostly tuples: a run keeps one wire form for each case, and the garbage collector soon untracks tuples.
    target = case.backend
    wire: dict[str, Any] = {
        "op": case.descriptor.name,
        "inputs": tuple(
            [(x.name, x.path, _spec_to_wire(x.spec), x.fill.kind, dict(x.fill.parameters)) for x in case.inputs]
        ),
        "attributes": dict(case.attributes),
        "backend": (target.name, target.kind, target.chip, target.device, target.variant),
        "seed": case.seed,
    }
    if case.outputs:
        wire["outputs"] = tuple([_spec_to_wire(spec) for spec in case.outputs])
    if case.tolerances:
        wire["tolerances"] = tuple(
            [(layer.layer.name, layer.output, layer.where, *_values_of(layer.tolerance)) for layer in case.tolerances]
        )
    if case.skip:
        wire["skip"] = case.skip.reason
    if case.xfail:
        wire["xfail"] = [case.xfail.reason, case.xfail.status and case.xfail.status.value, case.xfail.strict]
    if case.expects_error:
        wire["expects_error"] = [getattr(case.expects_error, name) for name in _ERROR_FIELDS]
    if case.invariants is not None:
        wire["invariants"] = case.invariants
    if case.priority != DEFAULT_PRIORITY:
        wire["priority"] = case.priority
    if case.mode != FORWARD:
        wire["mode"] = case.mode
    values = _plain_fields(case)
    wire.update(compress(zip(_PLAIN_FIELDS, values, strict=True), values))
    return wire


# Fields that are in the wire form as they are, unless empty.
_PLAIN_FIELDS = (
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
_TUPLE_FIELDS = {"tags", "allowed_folders"}
_plain_fields = attrgetter(*_PLAIN_FIELDS)
_ERROR_FIELDS = ("type", "match", "pattern")


def case_from_wire(wire: Mapping[str, Any], operator: Callable[[str], OperatorDescriptor], key: str = "") -> TestCase:
    """Build the case from its wire form; ``operator`` returns a descriptor by name or raises ``UnknownName``.

    ``key`` is set as the key of the case without a check; "" has it computed.
    """
    skip, xfail, refusal = wire.get("skip"), wire.get("xfail"), wire.get("expects_error")
    plain = {name: wire[name] for name in _PLAIN_FIELDS if name in wire}
    for name in _TUPLE_FIELDS & plain.keys():
        plain[name] = tuple(plain[name])
    descriptor = operator(wire["op"])
    case = new_case(
        descriptor=descriptor,
        inputs=tuple(
            [
                new_argument(
                    name=name, path=path, spec=_spec_from_wire(spec), fill=new_fill(kind=kind, parameters=parameters)
                )
                for name, path, spec, kind, parameters in wire["inputs"]
            ]
        ),
        outputs=tuple([_spec_from_wire(spec) for spec in wire.get("outputs", ())]),
        attributes={name: _with_tuples(value) for name, value in wire["attributes"].items()},
        backend=_target(*wire["backend"]),
        seed=wire["seed"],
        priority=wire.get("priority", DEFAULT_PRIORITY),
        mode=wire.get("mode", FORWARD),
        tolerances=tuple(_tolerance_layer(*layer) for layer in wire.get("tolerances", ())),
        skip=Skip(reason=skip) if skip else None,
        xfail=Xfail(reason=xfail[0], status=Status(xfail[1]) if xfail[1] else None, strict=xfail[2]) if xfail else None,
        invariants=tuple(wire["invariants"]) if "invariants" in wire else None,
        # journals of earlier versions lack the last fields
        expects_error=ExpectedError(**dict(zip(_ERROR_FIELDS, refusal, strict=False))) if refusal else None,
        **plain,
    )
    if key:  # the inputs are drawn by the key: a worker draws those of the case that its parent journals
        object.__setattr__(case, "_key", key)
    return case


@lru_cache(maxsize=64)
def _target(name: str, kind: str, chip: str | None, device: str | None, variant: str | None) -> BackendTarget:
    return BackendTarget(name=name, kind=kind, chip=chip, device=device, variant=variant)


def _with_tuples(value: Any) -> Any:
    """Convert nested lists to tuples, as a case has them; JSON and MessagePack only have lists."""
    return tuple(map(_with_tuples, value)) if isinstance(value, (list, tuple)) else value


def _spec_to_wire(spec: TensorSpec) -> tuple[Any, ...]:
    if spec.strides is None and not spec.offset:
        return (spec.dtype.name, spec.shape)
    return (spec.dtype.name, spec.shape, spec.strides, spec.offset)


def _spec_from_wire(wire: Sequence[Any]) -> TensorSpec:
    if len(wire) == 2:
        return _dense_spec(wire[0], tuple(wire[1]))
    strides, offset = wire[2:]
    return TensorSpec(
        dtype=dtype(wire[0]),
        shape=tuple(wire[1]),
        strides=None if strides is None else tuple(strides),
        offset=offset,
    )


@lru_cache(maxsize=4096)
def _dense_spec(name: str, shape: tuple[int, ...]) -> TensorSpec:
    return TensorSpec(dtype=dtype(name), shape=shape)


_values_of = attrgetter("rtol", "atol", "mismatch_ratio", "signed_zeros")


# Equal layers of all cases are one object, by whose identity the comparison caches what it derives from it.
@lru_cache(maxsize=64, typed=True)
def _tolerance_layer(layer: str, output: str | None, where: str, *values: Any) -> ToleranceLayer:
    rtol, atol, ratio, signed_zeros = values
    tolerance = Tolerance(rtol=rtol, atol=atol, mismatch_ratio=ratio, signed_zeros=signed_zeros)
    return ToleranceLayer(layer=Layer[layer], tolerance=tolerance, output=output, where=where)
