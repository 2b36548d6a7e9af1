"""What the command line asks of the cases, and how its flags are read."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from optest.errors import PlanError, Problem
from optest.plan.scalars import number_text, quoted
from optest.plan.values import Misfit, read_dtypes, read_generator, read_shape, read_tolerance
from optest.spec import DType, Tolerance

COMMAND_LINE = "command line"
OF_CASES = ("dtype", "shape", "attr", "generator", "reference", "tolerance", "seed", "timeout", "retries")
"""Options that a plan may state for each of its cases."""
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseRequest:
    """What the command line states about the cases; it wins over every plan. None and empty mean "not stated".

    A key ``backend_config.BACKEND.KEY`` of ``attributes`` goes into the case's ``backend_config``.
    """

    ops: tuple[str, ...] = ()
    dtypes: tuple[DType, ...] = ()
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    attributes: Mapping[str, Any] = field(default_factory=dict)
    backend_config: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Options of the driver for every case, by backend; those among ``attributes`` take precedence."""
    generator: str | None = None
    reference: str | None = None
    tolerance: Tolerance | None = None
    seed: int | None = None
    timeout_s: float | None = None
    retries: int | None = None
    untrusted: bool = False
    backend: str | None = None
    chip: str | None = None
    below: CaseRequest | None = None
    """What the configuration file states, over which every plan wins."""
    where_below: str = ""
    """That file."""


def request_from(options: Mapping[str, Any]) -> CaseRequest:
    """Read the options of :data:`optest.settings.OPTIONS` that make cases, by name; those not stated are left out.

    Raises:
        PlanError: with every flag that cannot be read.
    """
    problems: list[Problem] = []
    seed, timeout, retries = options.get("seed"), options.get("timeout"), options.get("retries")
    if seed is not None and not 0 <= seed < 2**64:
        problems.append(_problem("--seed", f"seed is {seed}, but should be an integer from 0 to 2**64 - 1"))
    if timeout is not None and not 0 < timeout < math.inf:
        problems.append(_problem("--timeout", f"timeout is {timeout:g}, but should be a number of seconds above 0"))
    if retries is not None and retries < 0:
        problems.append(_problem("--retries", f"retries is {retries}, but should be 0 or more"))
    dtypes = _each(parse_dtypes, options.get("dtype"), problems)
    shapes = _each(parse_shape, options.get("shape"), problems)
    attributes = _each(parse_attribute, options.get("attr"), problems)
    generators = _each(_generator, options.get("generator"), problems)
    tolerances = _each(parse_tolerance, options.get("tolerance"), problems)
    problems += _duplicates("--shape", shapes) + _duplicates("--attr", attributes)
    if problems:
        raise PlanError(problems)
    return CaseRequest(
        ops=tuple(options.get("op") or ()),
        dtypes=dtypes[0] if dtypes else (),
        shapes=dict(shapes),
        attributes=dict(attributes),
        generator=generators[0] if generators else None,
        reference=options.get("reference"),
        tolerance=tolerances[0] if tolerances else None,
        seed=seed,
        timeout_s=timeout,
        retries=retries,
        untrusted=bool(options.get("untrusted")),
        backend=options.get("backend"),
        chip=options.get("chip"),
    )


def _problem(flag: str, message: str, hint: str = "") -> Problem:
    return Problem(message=message, file=COMMAND_LINE, path=flag, hint=hint)


def _fault(flag: str, message: str) -> PlanError:
    return PlanError([_problem(flag, message)])


def _read(flag: str, read: Callable[[Any], _T], value: Any) -> _T:
    """What a reader of plans makes of a flag's value; its faults are the flag's."""
    try:
        return read(value)
    except Misfit as misfit:
        faults = [_problem(flag, each.message, each.hint) for each in (misfit, *misfit.others)]
        raise PlanError(faults) from None


def _each(read: Callable[[str], _T], texts: str | Iterable[str] | None, problems: list[Problem]) -> list[_T]:
    """What the texts of one option mean; those that cannot be read go into ``problems``."""
    found = []
    for text in (texts,) if isinstance(texts, str) and texts else texts or ():
        try:
            found.append(read(text))
        except PlanError as error:  # noqa: PERF203 - all of them are wanted
            problems += error.problems
    return found


def _duplicates(flag: str, pairs: list[tuple[str, Any]]) -> list[Problem]:
    counts = Counter(name for name, _ in pairs)
    return [_problem(flag, f"{name} is stated twice") for name, count in counts.items() if count > 1]


def _generator(text: str) -> str:
    _read(f"--generator {text}", read_generator, text)
    return text


def parse_shape(text: str) -> tuple[str, tuple[int, ...]]:
    """Read ``input0=2x3x4``; ``input0=scalar`` has no dimensions.

    Raises:
        PlanError: if the text has another form.
    """
    name, value = _split("--shape", text, "input0=2x3x4")
    return name, _read(f"--shape {text}", read_shape, value).shape


def parse_dtypes(text: str) -> tuple[DType, ...]:
    """Read ``float16`` or ``float32,int8``.

    Raises:
        PlanError: if a dtype is unknown.
    """
    found = _read(f"--dtype {text}", read_dtypes, text)
    assert isinstance(found, tuple)
    return found


def parse_tolerance(text: str) -> Tolerance:
    """Read ``rtol=1e-3,atol=0,mismatch_ratio=1e-3`` or the longer words for these.

    Raises:
        PlanError: if a key is unknown, stated twice, or no number of 0 or more.
    """
    stated: dict[str, float | str] = {}
    for part in text.split(","):
        name, value = _split("--tolerance", part, "rtol=1e-3,atol=1e-5")
        if name in stated:
            raise _fault(f"--tolerance {text}", f"{name} is stated twice")
        if name == "signed_zeros":
            stated[name] = value
            continue
        try:
            stated[name] = float(value)
        except ValueError:
            raise _fault(f"--tolerance {text}", f"{name} is {value!r}, but should be a number") from None
    return _read(f"--tolerance {text}", read_tolerance, stated)


def parse_attribute(text: str) -> tuple[str, Any]:
    """Read ``key=value``, where the value is a number, true, false, null, 2x3, a list, text, or text in quotes.

    Raises:
        PlanError: if there is no ``=``, or a list or quoted text is not closed.
    """
    name, value = _split("--attr", text, "alpha=2.0")
    try:
        return name, _attribute_value(value)
    except ValueError as error:
        raise _fault(f"--attr {text}", str(error)) from None


def _split(flag: str, text: str, example: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    name, value = name.strip(), value.strip()
    if not equals or not name or not value:
        raise _fault(flag, f"{flag[2:]} is {text!r}, but should look like {flag} {example}")
    return name, value


_NUMBER = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
_CONSTANTS = {"true": True, "false": False, "null": None, "none": None}
_FLOATS = {"inf": math.inf, "+inf": math.inf, "-inf": -math.inf, "nan": math.nan}


def _attribute_value(text: str) -> Any:
    folded = text.lower()
    if folded in _CONSTANTS:
        return _CONSTANTS[folded]
    if folded.replace(".inf", "inf").replace(".nan", "nan") in _FLOATS:
        return _FLOATS[folded.replace(".", "")]
    if re.fullmatch(r"[-+]?[0-9]{1,64}", text):
        return int(text)
    if _NUMBER.fullmatch(text):
        return float(text)
    if re.fullmatch(r"[0-9]{1,18}(x[0-9]{1,18})+", folded):
        return tuple(map(int, folded.split("x")))
    if text[0] in "[{\"'":
        from optest.plan.yaml_source import load_value  # YAML is needed for lists alone

        return load_value(text)
    return text


def format_attribute(name: str, value: Any) -> str | None:
    """The text that :func:`parse_attribute` reads as ``name`` and ``value``, None if there is none."""
    text = _format_value(value)
    return None if text is None else f"{name}={text}"


def _format_value(value: Any) -> str | None:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return number_text(value)
        case str():
            # as it is where that reads back as text, else in quotes
            plain = value.isascii() and value.isprintable() and value == value.strip()
            plain = plain and value[:1] not in ("", *"[{\"'") and _attribute_value(value) == value
            return value if plain else quoted(value)
        case list() | tuple():
            parts = [quoted(each) if isinstance(each, str) else _format_value(each) for each in value]
            return None if None in parts else f"[{','.join(part for part in parts if part is not None)}]"
    return None
