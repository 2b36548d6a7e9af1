"""One case: an operator with concrete inputs, attributes and expectations, complete in itself."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache
from hashlib import blake2b
from json.encoder import encode_basestring_ascii as _quoted
from typing import Any

from optest.errors import UnknownName, UsageError
from optest.spec.dtypes import DType
from optest.spec.operator import OperatorDescriptor
from optest.spec.outcome import Status
from optest.spec.tensors import TensorSpec, format_shape

FORWARD, VALIDATION, GRAPH = "forward", "validation", "graph"
"""Modes of a case: in the second one shapes, dtypes and refusals are asked, in the third the captured program alone."""

DEFAULT_PRIORITY = 100
"""Of a case that states none; a smaller number is more urgent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fill:
    """How one input gets its values: the name of a fill and its parameters (``uniform``, low, high)."""

    kind: str
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        if not self.parameters:
            return self.kind
        return f"{self.kind}({', '.join(f'{key}={value}' for key, value in self.parameters.items())})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """One input tensor of a case; ``path`` is its place in the call, ``input0`` and so on."""

    name: str
    path: str
    spec: TensorSpec
    fill: Fill


class Layer(IntEnum):
    """Who states a tolerance; a higher layer wins."""

    OPERATOR = 1
    PLAN = 2
    CASE = 3
    COMMAND_LINE = 4

    @property
    def phrase(self) -> str:
        return _LAYER_PHRASES[self]


_LAYER_PHRASES = {
    Layer.OPERATOR: "operator",
    Layer.PLAN: "plan default",
    Layer.CASE: "case",
    Layer.COMMAND_LINE: "command line",
}

_TOLERANCE_NAMES = {
    "rtol": "rtol",
    "rel": "rtol",
    "relative": "rtol",
    "atol": "atol",
    "abs": "atol",
    "absolute": "atol",
    "mismatch_ratio": "mismatch_ratio",
    "ratio": "mismatch_ratio",
    "signed_zeros": "signed_zeros",
}
SIGNED_ZEROS = ("strict", "note")
"""What the wrong sign of a zero is: a wrong element, or a note."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """``|actual - expected| <= atol + rtol * |expected|``, for all but a share of ``mismatch_ratio`` elements.

    A field that is None is not stated; the next lower layer that states it decides, else 0. ``signed_zeros``, one of
    ``SIGNED_ZEROS``, may be stated alone: then the rule that bounds errors stays what it is.
    """

    rtol: float | None = None
    atol: float | None = None
    mismatch_ratio: float | None = None
    signed_zeros: str | None = None

    def __post_init__(self) -> None:
        if self.signed_zeros not in (None, *SIGNED_ZEROS):
            raise UsageError(f"signed_zeros is {self.signed_zeros!r}, but should be {' or '.join(SIGNED_ZEROS)}")
        for name in ("rtol", "atol", "mismatch_ratio"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < float("inf"):
                raise UsageError(f"{name} is {value}, but should be a finite number of 0 or more")
        if self.mismatch_ratio is not None and self.mismatch_ratio >= 1:
            raise UsageError(f"mismatch_ratio is {self.mismatch_ratio}, but should be below 1")

    @classmethod
    def from_mapping(cls, stated: Mapping[str, Any]) -> Tolerance:
        """Read ``rtol``/``rel``/``relative``, ``atol``/``abs``/``absolute``, ``mismatch_ratio`` and ``signed_zeros``.

        Raises:
            UnknownName: for any other key.
        """
        fields: dict[str, Any] = {}
        for key, value in stated.items():
            name = _TOLERANCE_NAMES.get(key)
            if name is None:
                raise UnknownName("tolerance", key, _TOLERANCE_NAMES)
            if name in fields:
                raise UsageError(f"tolerance {name} is stated twice, also as {key}")
            fields[name] = value
        return cls(**fields)

    @property
    def bounds_errors(self) -> bool:
        """Whether it says how large errors may be, or how many; one that states nothing allows none."""
        return self.signed_zeros is None or self.fields().keys() != {"signed_zeros"}

    def fields(self) -> dict[str, Any]:
        """What is stated, by name."""
        stated = ((name, getattr(self, name)) for name in ("rtol", "atol", "mismatch_ratio", "signed_zeros"))
        return {name: value for name, value in stated if value is not None}

    def __str__(self) -> str:
        words = [f"{name}={value if isinstance(value, str) else f'{value:g}'}" for name, value in self.fields().items()]
        return ", ".join(words) or "exact"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToleranceLayer:
    """A tolerance and who states it; ``output`` None is every output, ``where`` is a place in a file."""

    layer: Layer
    tolerance: Tolerance
    output: str | None = None
    where: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendTarget:
    """Who is asked: driver name, chip, device and, where one driver has several, a variant of it."""

    name: str
    kind: str = "cpu"
    chip: str | None = None
    device: str | None = None
    variant: str | None = None

    def label(self) -> str:
        return ":".join([part for part in (self.name, self.device, self.chip, self.variant) if part])

    def __str__(self) -> str:
        return self.label()


@dataclass(frozen=True, slots=True, kw_only=True)
class Numerics:
    """What a backend declares of its arithmetic; the class rules are computed from it and print it.

    ``operands`` is the precision to which float32 operands of a contraction are cut (``float32``, ``tf32``,
    ``bfloat16``); ``accumulator`` the dtype of sums (None: float32, float64 for float64 inputs);
    ``accumulator_truncates`` for units that cut instead of rounding; ``direct`` is False for Winograd and FFT;
    ``denormals`` is ``preserve`` or, where results or operands are zeros instead, ``flush``; ``overflow`` is
    ``infinity`` for arithmetic as IEEE 754 has it and ``saturate`` for a backend that may stop at the largest finite
    value instead; ``invariant`` promises the same bits for every run. ``processor`` is ``cpu`` where the sharper of two
    ceilings holds, ``accelerator`` where the wider one does; None: a backend of kind ``cpu`` has the sharper one.
    """

    operands: str = "float32"
    accumulator: str | None = None
    accumulator_truncates: bool = False
    direct: bool = True
    denormals: str = "preserve"
    overflow: str = "infinity"
    invariant: bool = False
    processor: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Xfail:
    """An expected failure: excuses ``status`` alone, never another one.

    Without ``status`` it covers failures and errors, a call that the reference refuses included, as a mark of pytest
    does. ``strict`` decides whether a pass is wrong: True and None make it ``xpassed``, which True fails in pytest, and
    None if the project has ``xfail_strict``; with False it stays a pass.
    """

    reason: str
    status: Status | None = Status.FAILED
    strict: bool | None = None

    @property
    def label(self) -> str:
        """The status as plans spell it."""
        return "any" if self.status is None else self.status.value


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedError:
    """The call has to be refused with an error of this type.

    Its text contains ``match``, and something that the regular expression ``pattern`` matches.
    """

    type: str = "Exception"
    match: str = ""
    pattern: str = ""

    def matches(self, text: str) -> bool:
        """Whether the text of an error is as required, whatever its type."""
        return self.match in text and (not self.pattern or re.search(self.pattern, text) is not None)

    def required_text(self) -> str:
        """What the text should be like, in words; "" if any will do."""
        parts = [f"the text {self.match!r}"] if self.match else []
        return " and ".join([*parts, *([f"a text that matches {self.pattern!r}"] if self.pattern else [])])

    def __str__(self) -> str:
        text = self.required_text()
        return f"{self.type} with {text}" if text else self.type


@dataclass(frozen=True, slots=True, kw_only=True)
class TestCase:
    """One operator with concrete inputs, attributes and expectations.

    ``outputs`` are the output specs that the plan or the operator's inference states, () where only the
    reference knows them. ``base_dir`` is the folder that relative paths in the case start from; it is not part of the
    signature. ``allowed_folders`` are those that its paths may lead to, () for all; ``store.path_of`` holds them there.
    ``mode`` is :data:`FORWARD`, :data:`VALIDATION` or :data:`GRAPH`. ``origins`` says where each value came from.
    ``invariants`` replace the operator's. Tensors depend on ``key`` alone.
    """

    __test__ = False  # pytest would take the name for a test class

    descriptor: OperatorDescriptor
    inputs: tuple[Argument, ...]
    outputs: tuple[TensorSpec, ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)
    backend: BackendTarget = field(default_factory=lambda: BackendTarget(name="numpy"))
    backend_config: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    name: str = ""
    seed: int = 0
    generator: str | None = None
    reference: str | None = None
    tolerances: tuple[ToleranceLayer, ...] = ()
    timeout_s: float | None = None
    retries: int = 0
    priority: int = DEFAULT_PRIORITY
    skip: Skip | None = None
    xfail: Xfail | None = None
    expects_error: ExpectedError | None = None
    mode: str = FORWARD
    tags: tuple[str, ...] = ()
    description: str = ""
    where: str = ""
    base_dir: str = field(default="", compare=False)
    allowed_folders: tuple[str, ...] = field(default=(), compare=False)
    origins: Mapping[str, str] = field(default_factory=dict)
    invariants: tuple[str, ...] | None = None
    _key: str = field(default="", init=False, repr=False, compare=False)
    _identifier: str = field(default="", init=False, repr=False, compare=False)

    @property
    def id(self) -> str:
        """The plan's name for the case, else its identifier."""
        return self.name or self.identifier()

    @property
    def dtypes(self) -> tuple[DType, ...]:
        return tuple(argument.spec.dtype for argument in self.inputs)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {argument.path: argument.spec.shape for argument in self.inputs}

    def identifier(self) -> str:
        """``gemm[float16](64x128, 128x32, alpha=2.0)``: operator, dtypes, shapes, attributes off their default."""
        if not self._identifier:
            names = [argument.spec.dtype.name for argument in self.inputs]
            words = [format_shape(argument.spec.shape) for argument in self.inputs]
            if self.attributes:
                words += attribute_words(self.descriptor, self.attributes)
            object.__setattr__(self, "_identifier", identifier_of(self.descriptor.name, names, words))
        return self._identifier

    def signature(self) -> dict[str, Any]:
        """What is computed, as plain data: not the name, tags, tolerance or backend."""
        return {
            "op": self.descriptor.name,
            "inputs": [_argument_signature(argument) for argument in self.inputs],
            "outputs": [_spec_signature(spec) for spec in self.outputs],
            "attributes": stated_attributes(self.descriptor, self.attributes),
            "generator": self.generator,
        }

    @property
    def key(self) -> str:
        """``k1:`` and 32 hexadecimal digits of BLAKE2b over signature and seed; the same in every version."""
        if not self._key:
            object.__setattr__(self, "_key", key_of(seed_text(self.seed), signature_text(self)))
        return self._key


def identifier_of(operator: str, dtypes: Sequence[str], words: Sequence[str]) -> str:
    """Dtypes that are all alike are written once."""
    alike = dtypes and dtypes.count(dtypes[0]) == len(dtypes)
    return f"{operator}[{dtypes[0] if alike else ','.join(dtypes)}]({', '.join(words)})"


def attribute_words(descriptor: OperatorDescriptor, attributes: Mapping[str, Any]) -> list[str]:
    """``alpha=2.0`` for each attribute off its default."""
    defaults = {attribute.name: attribute.default for attribute in descriptor.attributes}
    return [
        f"{name}={_short(value)}"
        for name, value in attributes.items()
        if name not in defaults or value != defaults[name]
    ]


def key_of(seed: str, signature: str) -> str:
    """The key of a seed, as ``seed_text`` writes it, and the canonical JSON of a signature."""
    text = f'{{"seed":{seed},"signature":{signature}}}'
    return f"k1:{blake2b(text.encode(), digest_size=16).hexdigest()}"


def seed_text(seed: int) -> str:
    """A seed in canonical JSON."""
    return str(seed) if type(seed) is int else canonical_json(seed)


def _spec_signature(spec: TensorSpec) -> list[Any]:
    if spec.is_plain:
        return [spec.dtype.name, list(spec.shape)]
    return [spec.dtype.name, list(spec.shape), list(spec.strides or ()), spec.offset]


def _argument_signature(argument: Argument) -> list[Any]:
    fill: list[Any] = [argument.fill.kind]
    if argument.fill.parameters:
        fill.append(dict(argument.fill.parameters))
    return [argument.path, *_spec_signature(argument.spec), fill]


def signature_text(case: TestCase) -> str:
    """``canonical_json(case.signature())``, put together from its parts: every case is asked for its key."""
    attributes = attributes_text(case.descriptor, case.attributes)
    arguments = [argument_text(argument) for argument in case.inputs]
    return signature_of(case.descriptor.name, attributes, arguments, case.outputs, case.generator)


def stated_attributes(descriptor: OperatorDescriptor, attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes that count for identity: not those that are None because nobody stated them.

    So an operator may gain an attribute whose default is None, and its cases keep their keys.
    """
    if None not in attributes.values():
        return dict(attributes)
    unstated = {each.name for each in descriptor.attributes if each.default is None}
    return {name: value for name, value in attributes.items() if value is not None or name not in unstated}


def attributes_text(descriptor: OperatorDescriptor, attributes: Mapping[str, Any]) -> str:
    """The attributes as a signature has them, in canonical JSON."""
    return canonical_json(stated_attributes(descriptor, attributes)) if attributes else "{}"


def signature_of(
    operator: str, attributes: str, arguments: Sequence[str], outputs: Sequence[TensorSpec], generator: str | None
) -> str:
    """The canonical JSON of a signature from that of its attributes and arguments."""
    made = f"[{'],['.join(map(_spec_text, outputs))}]" if outputs else ""
    maker = "null" if generator is None else _quoted(generator)
    return (
        f'{{"attributes":{attributes},"generator":{maker},"inputs":[{",".join(arguments)}],'
        f'"op":{_quoted(operator)},"outputs":[{made}]}}'
    )


def argument_text(argument: Argument) -> str:
    """An argument as a signature has it, in canonical JSON."""
    fill = argument.fill
    kind = _quoted(fill.kind)
    if fill.parameters:
        kind += f",{canonical_json(dict(fill.parameters))}"
    return f"[{_quoted(argument.path)},{_spec_text(argument.spec)},[{kind}]]"


def _spec_text(spec: TensorSpec) -> str:
    if spec.strides is None and not spec.offset:
        return _dense_text(spec.dtype.name, spec.shape)
    dense = _dense_text(spec.dtype.name, spec.shape)
    return dense if spec.is_plain else f"{dense},[{','.join(map(str, spec.strides or ()))}],{spec.offset}"


@lru_cache(maxsize=4096)
def _dense_text(name: str, shape: tuple[int, ...]) -> str:
    """Sizes are written as integers, so that tuples that are equal to the cache have one text: (4,) and (4.0,)."""
    return f'"{name}",[{",".join([str(int(size)) for size in shape])}]'


def _short(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(_short, value)) + "]"
    return str(value).replace("\n", "\\n")


def canonical_json(value: Any) -> str:
    """One text for one value: sorted keys, no spaces, ``1`` and ``1.0`` and ``"1"`` apart, NaN spelled out.

    Raises:
        TypeError: for a value that is not plain data.
    """
    return _encode(value)


def _canonical_encoder() -> Callable[[Any], str]:
    """What ``json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode`` does, without its layers."""
    ours = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=True)
    in_c: Any = getattr(json.encoder, "c_make_encoder", None)
    if in_c is None:
        return ours.encode
    default = ours.default
    return lambda value: "".join(in_c({}, default, _quoted, None, ":", ",", True, False, True)(value, 0))


_encode = _canonical_encoder()
