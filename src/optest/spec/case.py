"""Test cases: an operator with concrete inputs, attributes and expectations, and its identity."""

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

# Modes of a case: VALIDATION compares only shapes, dtypes and rejected calls, GRAPH only the captured program.
FORWARD, VALIDATION, GRAPH = "forward", "validation", "graph"

# Priority of a case without one; a smaller number is more urgent.
DEFAULT_PRIORITY = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Fill:
    """Source of an input's values: the name of a fill and its parameters (``uniform``, low, high)."""

    kind: str
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        if not self.parameters:
            return self.kind
        return f"{self.kind}({', '.join(f'{key}={value}' for key, value in self.parameters.items())})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """One input tensor of a case; ``path`` is its positional name, ``input0`` and so on."""

    name: str
    path: str
    spec: TensorSpec
    fill: Fill


class Layer(IntEnum):
    """Origin of a tolerance; a higher layer overrides a lower one."""

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
# A zero of the wrong sign is a wrong element ("strict") or a note.
SIGNED_ZEROS = ("strict", "note")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """Bound ``|actual - expected| <= atol + rtol * |expected|``, for all except a share of ``mismatch_ratio`` elements.

    A field that is None is not set: the next lower layer that sets it applies, else 0. ``signed_zeros``, one of
    ``SIGNED_ZEROS``, may be the only field; then another layer or rule bounds the errors.

    Raises:
        UsageError: for a negative or infinite number, a ``mismatch_ratio`` of 1 or more, or other ``signed_zeros``.
    """

    rtol: float | None = None
    atol: float | None = None
    mismatch_ratio: float | None = None
    signed_zeros: str | None = None

    def __post_init__(self) -> None:
        if self.signed_zeros not in (None, *SIGNED_ZEROS):
            raise UsageError(f"signed_zeros is {self.signed_zeros!r}, expected {' or '.join(SIGNED_ZEROS)}")
        for name in ("rtol", "atol", "mismatch_ratio"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < float("inf"):
                raise UsageError(f"{name} is {value}, expected a finite number of 0 or more")
        if self.mismatch_ratio is not None and self.mismatch_ratio >= 1:
            raise UsageError(f"mismatch_ratio is {self.mismatch_ratio}, expected a number below 1")

    @classmethod
    def from_mapping(cls, stated: Mapping[str, Any]) -> Tolerance:
        """Build a tolerance from the fields of a plan.

        The keys are rtol (rel, relative), atol (abs, absolute), mismatch_ratio (ratio) and signed_zeros.

        Raises:
            UnknownName: for any other key.
            UsageError: for a field that is set under two keys, or a value out of range.
        """
        fields: dict[str, Any] = {}
        for key, value in stated.items():
            name = _TOLERANCE_NAMES.get(key)
            if name is None:
                raise UnknownName("tolerance", key, _TOLERANCE_NAMES)
            if name in fields:
                raise UsageError(f"tolerance {name} is set twice, also as {key}")
            fields[name] = value
        return cls(**fields)

    @property
    def bounds_errors(self) -> bool:
        """True unless ``signed_zeros`` is the only field that is set; a tolerance without fields allows no error."""
        return self.signed_zeros is None or self.fields().keys() != {"signed_zeros"}

    def fields(self) -> dict[str, Any]:
        """Return the fields that are set, by name."""
        values = ((name, getattr(self, name)) for name in ("rtol", "atol", "mismatch_ratio", "signed_zeros"))
        return {name: value for name, value in values if value is not None}

    def __str__(self) -> str:
        words = [f"{name}={value if isinstance(value, str) else f'{value:g}'}" for name, value in self.fields().items()]
        return ", ".join(words) or "exact"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToleranceLayer:
    """A tolerance with its origin; ``output`` None means every output, ``where`` is a position in a file."""

    layer: Layer
    tolerance: Tolerance
    output: str | None = None
    where: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendTarget:
    """Backend under test: name of its driver, kind (``cpu``, ``gpu``), chip, device and variant."""

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
    """Arithmetic of a backend as it declares it; bounds of the built-in rules are computed from it.

    ``operands`` is the precision to which float32 operands of a contraction are reduced (``float32``, ``tf32``,
    ``bfloat16``); ``accumulator`` is the dtype of sums (None: float32, float64 for float64 inputs);
    ``accumulator_truncates`` is True for units that truncate instead of rounding; ``direct`` is False for Winograd and
    FFT; ``denormals`` is ``preserve``, or ``flush`` if denormal results or operands become zero; ``overflow`` is
    ``infinity`` as in IEEE 754, or ``saturate`` if a result may be the largest finite value instead; ``invariant``
    promises the same bits in every run. ``processor`` selects the tighter (``cpu``) or the wider bound
    (``accelerator``) of a rule that has two; None selects by the kind of the backend.
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
    """Request to skip a case."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Xfail:
    """Expected failure with exactly the status ``status``.

    With ``status=None`` it covers all failures and errors, also a call that the reference rejects, as pytest's mark
    does. With ``strict`` True or None a pass becomes ``xpassed``, which pytest reports as a failure if ``strict`` is
    True or the project sets ``xfail_strict``; with False it remains a pass.
    """

    reason: str
    status: Status | None = Status.FAILED
    strict: bool | None = None

    @property
    def label(self) -> str:
        """Value of ``status`` in plans; ``any`` for None."""
        return "any" if self.status is None else self.status.value


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedError:
    """Required error of a call: its type, text that its message contains, and a pattern that is found in it."""

    type: str = "Exception"
    match: str = ""
    pattern: str = ""

    def matches(self, text: str) -> bool:
        """Return whether ``text`` contains ``match`` and ``pattern`` is found in it; the type is not checked."""
        return self.match in text and (not self.pattern or re.search(self.pattern, text) is not None)

    def required_text(self) -> str:
        """Describe the required message; "" if every message is accepted."""
        parts = [f"the text {self.match!r}"] if self.match else []
        return " and ".join([*parts, *([f"a text that matches {self.pattern!r}"] if self.pattern else [])])

    def __str__(self) -> str:
        text = self.required_text()
        return f"{self.type} with {text}" if text else self.type


@dataclass(frozen=True, slots=True, kw_only=True)
class TestCase:
    """One operator with concrete inputs, attributes and expectations.

    ``outputs`` are the output specs from the plan or shape inference, () if only the reference determines them.
    ``base_dir`` is the folder that relative paths of the case start from; it is not part of the signature.
    ``allowed_folders`` restrict its paths, () for no restriction; ``store.path_of`` enforces it. ``mode`` is
    :data:`FORWARD`, :data:`VALIDATION` or :data:`GRAPH`. ``origins`` maps fields to the source of their value.
    ``invariants`` replace the operator's. The values of tensors depend only on ``key``.
    """

    # pytest would take the class for a test class
    __test__ = False

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
        """Name of the case in the plan, else its identifier."""
        return self.name or self.identifier()

    @property
    def dtypes(self) -> tuple[DType, ...]:
        return tuple(argument.spec.dtype for argument in self.inputs)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {argument.path: argument.spec.shape for argument in self.inputs}

    def identifier(self) -> str:
        """Return operator, dtypes, shapes and non-default attributes: ``gemm[float16](64x128, 128x32, alpha=2.0)``."""
        if not self._identifier:
            names = [argument.spec.dtype.name for argument in self.inputs]
            words = [format_shape(argument.spec.shape) for argument in self.inputs]
            if self.attributes:
                words += attribute_words(self.descriptor, self.attributes)
            object.__setattr__(self, "_identifier", identifier_of(self.descriptor.name, names, words))
        return self._identifier

    def signature(self) -> dict[str, Any]:
        """Return everything that determines the computation as plain data, without name, tags, tolerance, backend."""
        return {
            "op": self.descriptor.name,
            "inputs": [
                [x.path, *_spec_signature(x.spec), [x.fill.kind, *filter(None, [dict(x.fill.parameters)])]]
                for x in self.inputs
            ],
            "outputs": [_spec_signature(spec) for spec in self.outputs],
            "attributes": stated_attributes(self.descriptor, self.attributes),
            "generator": self.generator,
        }

    @property
    def key(self) -> str:
        """``k1:`` and 32 hexadecimal digits of BLAKE2b over signature and seed; the same in every version of optest."""
        if not self._key:
            object.__setattr__(self, "_key", key_of(seed_text(self.seed), signature_text(self)))
        return self._key


def identifier_of(operator: str, dtypes: Sequence[str], words: Sequence[str]) -> str:
    """Return ``operator[dtypes](words)``; if all dtypes are equal, the dtype is written once."""
    alike = dtypes and dtypes.count(dtypes[0]) == len(dtypes)
    return f"{operator}[{dtypes[0] if alike else ','.join(dtypes)}]({', '.join(words)})"


def attribute_words(descriptor: OperatorDescriptor, attributes: Mapping[str, Any]) -> list[str]:
    """Return a text such as ``alpha=2.0`` for each attribute that differs from its default."""
    defaults = {attribute.name: attribute.default for attribute in descriptor.attributes}
    return [
        f"{name}={_compact_text(value)}"
        for name, value in attributes.items()
        if name not in defaults or value != defaults[name]
    ]


def key_of(seed: str, signature: str) -> str:
    """Return the key of a case from its seed (see :func:`seed_text`) and the canonical JSON of its signature."""
    text = f'{{"seed":{seed},"signature":{signature}}}'
    return f"k1:{blake2b(text.encode(), digest_size=16).hexdigest()}"


def seed_text(seed: int) -> str:
    """Return the canonical JSON of a seed."""
    return str(seed) if type(seed) is int else canonical_json(seed)


def _spec_signature(spec: TensorSpec) -> list[Any]:
    """Return dtype and shape, and strides and offset only if the spec is not plain."""
    if spec.is_plain:
        return [spec.dtype.name, list(spec.shape)]
    return [spec.dtype.name, list(spec.shape), list(spec.strides or ()), spec.offset]


def signature_text(case: TestCase) -> str:
    """Return ``canonical_json(case.signature())``, composed of cached parts."""
    # Every case needs its key, and encoding the whole signature at once is slower.
    attributes = attributes_text(case.descriptor, case.attributes)
    arguments = [argument_text(argument) for argument in case.inputs]
    return signature_of(case.descriptor.name, attributes, arguments, case.outputs, case.generator)


def stated_attributes(descriptor: OperatorDescriptor, attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes that belong to a case's identity: all except those that are None by default."""
    # So cases keep their keys if their operator gains an attribute whose default is None.
    if None not in attributes.values():
        return dict(attributes)
    optional = {attribute.name for attribute in descriptor.attributes if attribute.default is None}
    return {name: value for name, value in attributes.items() if value is not None or name not in optional}


def attributes_text(descriptor: OperatorDescriptor, attributes: Mapping[str, Any]) -> str:
    """Return the canonical JSON of the attributes in a signature."""
    return canonical_json(stated_attributes(descriptor, attributes)) if attributes else "{}"


def signature_of(
    operator: str, attributes: str, arguments: Sequence[str], outputs: Sequence[TensorSpec], generator: str | None
) -> str:
    """Return the canonical JSON of a signature from the JSON of its attributes and arguments."""
    output_text = f"[{'],['.join(map(_spec_text, outputs))}]" if outputs else ""
    generator_text = "null" if generator is None else _quoted(generator)
    return (
        f'{{"attributes":{attributes},"generator":{generator_text},"inputs":[{",".join(arguments)}],'
        f'"op":{_quoted(operator)},"outputs":[{output_text}]}}'
    )


def argument_text(argument: Argument) -> str:
    """Return the canonical JSON of an argument in a signature."""
    fill = argument.fill
    kind = _quoted(fill.kind)
    if fill.parameters:
        kind += f",{canonical_json(dict(fill.parameters))}"
    return f"[{_quoted(argument.path)},{_spec_text(argument.spec)},[{kind}]]"


def _spec_text(spec: TensorSpec) -> str:
    """Return the canonical JSON of a spec without its brackets, as :func:`_spec_signature` defines it."""
    if spec.strides is None and not spec.offset:
        return _dense_text(spec.dtype.name, spec.shape)
    dense = _dense_text(spec.dtype.name, spec.shape)
    return dense if spec.is_plain else f"{dense},[{','.join(map(str, spec.strides or ()))}],{spec.offset}"


@lru_cache(maxsize=4096)
def _dense_text(name: str, shape: tuple[int, ...]) -> str:
    """Return the canonical JSON of dtype and shape without its brackets."""
    # To the cache (4,) and (4.0,) are equal, so both need the same text.
    return f'"{name}",[{",".join([str(int(size)) for size in shape])}]'


def _compact_text(value: Any) -> str:
    """Return an attribute as text on one line, lists and tuples as ``[1,2]``."""
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(_compact_text, value)) + "]"
    return str(value).replace("\n", "\\n")


def canonical_json(value: Any) -> str:
    """Encode plain data as JSON with sorted keys and no spaces; ``1`` and ``1.0`` differ, NaN is written ``NaN``.

    Raises:
        TypeError: for a value that is not plain data.
    """
    return _encode(value)


def _canonical_encoder() -> Callable[[Any], str]:
    """Return a function equal to ``json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode``, but faster."""
    encoder = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=True)
    # The C encoder itself, without the Python layers of JSONEncoder around it.
    c_encoder: Any = getattr(json.encoder, "c_make_encoder", None)
    if c_encoder is None:
        return encoder.encode
    default = encoder.default
    return lambda value: "".join(c_encoder({}, default, _quoted, None, ":", ",", True, False, True)(value, 0))


_encode = _canonical_encoder()
