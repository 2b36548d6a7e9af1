"""Values that the command line sets for cases, and the parsing of its flags."""

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
# Options that a plan may set for each of its cases.
OF_CASES = ("dtype", "shape", "attr", "generator", "reference", "tolerance", "seed", "timeout", "retries")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseRequest:
    """Values of the command line for all cases; they override every plan. None and empty mean "not set".

    A key ``backend_config.BACKEND.KEY`` of ``attributes`` becomes an option in the case's ``backend_config``.
    """

    ops: tuple[str, ...] = ()
    dtypes: tuple[DType, ...] = ()
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    attributes: Mapping[str, Any] = field(default_factory=dict)
    # Options of the driver for every case, by backend; those in `attributes` override them.
    backend_config: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    generator: str | None = None
    reference: str | None = None
    tolerance: Tolerance | None = None
    seed: int | None = None
    timeout_s: float | None = None
    retries: int | None = None
    untrusted: bool = False
    backend: str | None = None
    chip: str | None = None
    # Values of the configuration file, which every plan overrides, and the name of that file.
    below: CaseRequest | None = None
    where_below: str = ""


def request_from(options: Mapping[str, Any]) -> CaseRequest:
    """Return the request of the command line's options by name; raise PlanError with all that cannot be read."""
    problems: list[Problem] = []
    seed, timeout, retries = options.get("seed"), options.get("timeout"), options.get("retries")
    if seed is not None and not 0 <= seed < 2**64:
        problems.append(_problem("--seed", f"seed is {seed}, expected an integer from 0 to 2**64 - 1"))
    if timeout is not None and not 0 < timeout < math.inf:
        problems.append(_problem("--timeout", f"timeout is {timeout:g}, expected a number of seconds above 0"))
    if retries is not None and retries < 0:
        problems.append(_problem("--retries", f"retries is {retries}, expected 0 or more"))
    dtypes = _parse_all(parse_dtypes, options.get("dtype"), problems)
    shapes = _parse_all(parse_shape, options.get("shape"), problems)
    attributes = _parse_all(parse_attribute, options.get("attr"), problems)
    generator = options.get("generator")
    _parse_all(lambda text: _read(f"--generator {text}", read_generator, text), generator, problems)
    tolerances = _parse_all(parse_tolerance, options.get("tolerance"), problems)
    problems += _duplicates("--shape", shapes) + _duplicates("--attr", attributes)
    if problems:
        raise PlanError(problems)
    return CaseRequest(
        ops=tuple(options.get("op") or ()),
        dtypes=dtypes[0] if dtypes else (),
        shapes=dict(shapes),
        attributes=dict(attributes),
        generator=generator or None,
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


def _error(flag: str, message: str) -> PlanError:
    return PlanError([_problem(flag, message)])


def _read(flag: str, read: Callable[[Any], _T], value: Any) -> _T:
    """Return ``read(value)``, a reader of plan values; raise its misfits as problems of the flag."""
    try:
        return read(value)
    except Misfit as misfit:
        problems = [_problem(flag, x.message, x.hint) for x in (misfit, *misfit.others)]
        raise PlanError(problems) from None


def _parse_all(read: Callable[[str], _T], texts: str | Iterable[str] | None, problems: list[Problem]) -> list[_T]:
    """Return the values of one option's texts; add a problem for each that cannot be read."""
    values = []
    for text in (texts,) if isinstance(texts, str) and texts else texts or ():
        try:
            values.append(read(text))
        except PlanError as error:  # noqa: PERF203 - all of them are wanted
            problems += error.problems
    return values


def _duplicates(flag: str, pairs: list[tuple[str, Any]]) -> list[Problem]:
    counts = Counter(name for name, _ in pairs)
    hint = f"write {flag} once for each name"
    return [_problem(flag, f"{name} is set twice", hint) for name, count in counts.items() if count > 1]


def parse_shape(text: str) -> tuple[str, tuple[int, ...]]:
    """Return name and sizes of ``input0=2x3x4`` or ``input0=scalar`` (no dimensions); raise PlanError for others."""
    name, value = _split("--shape", text, "input0=2x3x4")
    return name, _read(f"--shape {text}", read_shape, value).shape


def parse_dtypes(text: str) -> tuple[DType, ...]:
    """Return the dtypes of ``float16`` or ``float32,int8``; raise PlanError for an unknown one."""
    dtypes = _read(f"--dtype {text}", read_dtypes, text)
    assert isinstance(dtypes, tuple)
    return dtypes


def parse_tolerance(text: str) -> Tolerance:
    """Return the tolerance of ``rtol=1e-3,atol=0``; raise PlanError for unknown, repeated or negative fields."""
    values: dict[str, float | str] = {}
    for part in text.split(","):
        name, value = _split("--tolerance", part, "rtol=1e-3,atol=1e-5")
        if name in values:
            raise _error(f"--tolerance {text}", f"{name} is set twice")
        if name == "signed_zeros":
            values[name] = value
            continue
        try:
            values[name] = float(value)
        except ValueError:
            raise _error(f"--tolerance {text}", f"{name} is {value!r}, expected a number") from None
    return _read(f"--tolerance {text}", read_tolerance, values)


def parse_attribute(text: str) -> tuple[str, Any]:
    """Return name and value of ``key=value``: a number, bool, null, 2x3, list or text; raise PlanError for others."""
    name, value = _split("--attr", text, "alpha=2.0")
    try:
        return name, _attribute_value(value)
    except ValueError as error:
        raise _error(f"--attr {text}", str(error)) from None


def _split(flag: str, text: str, example: str) -> tuple[str, str]:
    """Return name and value around the ``=``, both without surrounding spaces; raise PlanError if one is empty."""
    name, equals, value = text.partition("=")
    name, value = name.strip(), value.strip()
    if not equals or not name or not value:
        raise _error(flag, f"{flag[2:]} is {text!r}, expected a form like {flag} {example}")
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
        # `optest run` with numbers only should not import YAML, which takes longer than the parsing.
        from optest.plan.yaml_source import load_value

        return load_value(text)
    return text


def format_attribute(name: str, value: Any) -> str | None:
    """Return the text that :func:`parse_attribute` reads as ``name`` and ``value``, None for other types."""
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
            # Without quotes only if that is read back as the same text.
            plain = value.isascii() and value.isprintable() and value == value.strip()
            plain = plain and value[:1] not in ("", *"[{\"'") and _attribute_value(value) == value
            return value if plain else quoted(value)
        case list() | tuple():
            parts = [quoted(x) if isinstance(x, str) else _format_value(x) for x in value]
            return None if None in parts else f"[{','.join(part for part in parts if part is not None)}]"
    return None
