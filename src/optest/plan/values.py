"""Readers of values: a shape, dtypes, a tolerance, a generator and the like, from plain data into the vocabulary.

Plans and the command line share them; each function takes what YAML gives and raises :class:`Misfit`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeAlias, TypeVar

from optest.errors import UnknownName, UsageError, did_you_mean, nearest
from optest.spec import DType, ExpectedError, Fill, Skip, Status, Tolerance, Xfail, dtype

_T = TypeVar("_T")
MAX_SIZE = 2**63 - 1
XFAIL_STATUSES = ("failed", "error", "timeout", "any")
Steps: TypeAlias = "tuple[str | int, ...]"
"""Keys and indices that lead from a value to a part of it."""


class Misfit(ValueError):
    """A value that its key does not take; ``path`` leads from the value to the culprit in it.

    ``others`` are what else is wrong with the same value.
    """

    def __init__(self, message: str, *, path: Steps = (), hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.path = path
        self.hint = hint
        self.others: tuple[Misfit, ...] = ()

    def all_below(self, *steps: str | int) -> list[Misfit]:
        """This and the others, as those of a value that lies so much higher."""
        for each in (self, *self.others):
            each.path = (*steps, *each.path)
        return [self, *self.others]


def refuse(misfits: Sequence[Misfit]) -> None:
    """Raise the first with all others, if there are any."""
    if misfits:
        misfits[0].others = tuple(misfits[1:])
        raise misfits[0]


def _each(read: Callable[[Any], _T], values: Iterable[tuple[str | int | Steps, Any]]) -> list[_T]:
    """Read every value under its key, index or path; the first that does not fit is raised, with all others."""
    found: list[_T] = []
    misfits: list[Misfit] = []
    for key, value in values:
        try:
            found.append(read(value))
        except Misfit as misfit:  # noqa: PERF203 - all of them are wanted
            misfits += misfit.all_below(*(key if isinstance(key, tuple) else (key,)))
    refuse(misfits)
    return found


class Layout(NamedTuple):
    """A shape as the plan states it, in elements; ``strides`` None is row-major."""

    shape: tuple[int, ...]
    strides: tuple[int, ...] | None = None
    offset: int = 0


class GeneratorChoice(NamedTuple):
    """Who makes the inputs: a dotted ``path``, or ``every`` fill and fills ``by_tensor`` that go before it."""

    path: str | None = None
    every: Fill | None = None
    by_tensor: Mapping[str, Fill] = {}


class ToleranceChoice(NamedTuple):
    """What is allowed: for ``every`` output, and ``by_output`` for those that are named; these go first."""

    every: Tolerance | None = None
    by_output: Mapping[str, Tolerance] = {}


def shown(value: Any) -> str:
    """A value as it would stand in YAML, cut to one short line."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case Mapping():
            text = "{" + ", ".join(f"{key}: {shown(each)}" for key, each in list(value.items())[:4]) + "}"
        case list() | tuple():
            text = "[" + ", ".join(map(shown, value[:8])) + (", ...]" if len(value) > 8 else "]")
        case str():
            text = repr(value)
        case _:
            text = str(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def unknown_key(name: str, known: Collection[str], *, of: str = "") -> Misfit:
    hint = did_you_mean(name, known, f"known keys: {', '.join(known)}")
    place = f" of {of}" if of else ""
    return Misfit(f"unknown key {name!r}{place}", path=(name,), hint=hint)


def _misfit(name: str, value: Any, should_be: str, **more: Any) -> Misfit:
    return Misfit(f"{name} is {shown(value)}, but should be {should_be}", **more)


def _only_keys(value: Mapping[str, Any], known: Sequence[str], *, of: str) -> None:
    for key in value:
        if key not in known:
            raise unknown_key(key, known, of=of)


def read_version(value: Any) -> int:
    """Read the version of the plan format; True, which equals 1 in Python, is none."""
    if type(value) is not int or value != 1:
        raise _misfit("version", value, "1")
    return value


class Included(NamedTuple):
    """A file whose cases come first; ``model`` is what its model is called here, "" leaves it its name.

    ``expectations`` is a file of what is known of its cases, "" for none.
    """

    file: str
    model: str = ""
    expectations: str = ""


def read_include(value: Any) -> tuple[Included, ...]:
    """Read one file or a list of files; ``{file, model, expectations}`` says more of one."""
    if (isinstance(value, str) and value) or isinstance(value, dict):
        return (_included("include", value),)
    if not isinstance(value, list) or not value:
        raise _misfit("include", value, "a file or a list of files", hint="include: [common.yaml]")
    return tuple(_each(lambda item: _included(*item), ((i, (f"item {i} of include", v)) for i, v in enumerate(value))))


def _included(what: str, value: Any) -> Included:
    if isinstance(value, str) and value:
        return Included(value)
    if not isinstance(value, dict):
        raise _misfit(what, value, "the name of a file")
    _only_keys(value, Included._fields, of="an included file")
    for key, stated in value.items():
        if not isinstance(stated, str) or not stated.isprintable() or not stated:
            raise _misfit(f"{key} of {what}", stated, "a name", path=(key,))
    if "file" not in value:
        raise _misfit(what, value, "{file: FILE, model: NAME}")
    return Included(**value)


_SHAPE_FORM = "a list of sizes such as [2, 3], 2x3, or {shape: [2, 3], strides: [3, 1], offset: 0}"


def read_shape(value: Any) -> Layout:
    """Read ``[2, 3]``, ``2x3``, ``scalar``, ``2`` (one dimension) or ``{shape, strides, offset}``."""
    if type(value) is list:
        return Layout(_sizes(value))
    if type(value) is int:
        return Layout(_sizes([value]))
    if isinstance(value, str):
        return Layout(_sizes_of_text(value))
    if isinstance(value, dict):
        _only_keys(value, ("shape", "strides", "offset"), of="a shape")
        if "shape" not in value:
            raise _misfit("shape", value, "a mapping with the key shape")
        if isinstance(value["shape"], dict):
            raise _misfit("shape", value["shape"], "a list of sizes", path=("shape",))
        (layout,) = _each(read_shape, [("shape", value["shape"])])
        strides = value.get("strides")
        if "strides" in value and not (isinstance(strides, list) and all(type(stride) is int for stride in strides)):
            raise _misfit("strides", strides, "a list of integers, in elements", path=("strides",))
        offset = value.get("offset", 0)
        if type(offset) is not int or offset < 0:
            raise _misfit("offset", offset, "an integer of 0 or more, in elements", path=("offset",))
        return Layout(layout.shape, None if strides is None else tuple(strides), offset)
    hint = "sizes stand in brackets" if value is None else whole_number(value)
    raise _misfit("shape", value, _SHAPE_FORM, hint=hint)


def _sizes(value: list[Any]) -> tuple[int, ...]:
    if value and all(isinstance(size, (list, dict)) for size in value):
        raise _misfit("shape", value, "one list of sizes", hint=several("shapes.TENSOR", value))
    for size in value:
        if type(size) is not int or not 0 <= size <= MAX_SIZE:
            return tuple(_each(_size, ((place, (place, each)) for place, each in enumerate(value))))
    return tuple(value)


def several(key: str, values: Any) -> str:
    """The hint for a list where one value is wanted."""
    text = values
    if not isinstance(values, str):  # as a person writes them, words without quotes
        words = ", ".join(value if isinstance(value, str) else shown(value) for value in values[:4])
        text = f"[{words}, ...]" if len(values) > 4 else f"[{words}]"
    return f"several values make several cases: product: {{{key}: {text}}}"


def whole_number(value: Any) -> str:
    """The hint for ``1e5`` where an integer is wanted: YAML and Python read it as a float."""
    is_whole = isinstance(value, float) and value.is_integer() and 0 <= value <= 2**53
    return f"write {int(value)}" if is_whole else ""


_NO_AXIS = "a word after $ is an axis of `product`, which the case does not have"


def _size(item: tuple[int, Any]) -> int:
    place, value = item
    if type(value) is not int or not 0 <= value <= MAX_SIZE:
        hint = _NO_AXIS if isinstance(value, str) and "$" in value else whole_number(value)
        should_be = "below 2^63" if type(value) is int and value > MAX_SIZE else "an integer of 0 or more"
        raise _misfit(f"size {place} of the shape", value, should_be, hint=hint)
    return value


def _sizes_of_text(text: str) -> tuple[int, ...]:
    if text.strip() in ("scalar", "[]", "()"):
        return ()
    inner = text.strip()
    if inner[:1] + inner[-1:] in ("[]", "()"):
        inner = inner[1:-1].strip().removesuffix(",")
    parts = re.split(r"\s*[xX,]\s*", inner)
    if not all(re.fullmatch(r"[0-9]{1,18}", part) for part in parts):
        sizes = re.findall(r"[0-9]{1,18}", text)
        hint = f"if it is a list of sizes, write [{', '.join(sizes)}]" if len(sizes) > 1 else ""
        hint = _NO_AXIS if "$" in text else hint
        raise _misfit("shape", text, "sizes such as 2x3x4, or scalar for a tensor without dimensions", hint=hint)
    return tuple(map(int, parts))


def read_dtypes(value: Any) -> tuple[DType, ...] | dict[str, DType]:
    """Read one name, ``a,b``, a list of names, or names by tensor."""
    if type(value) is list:
        if not value:
            raise _misfit("dtypes", value, "one dtype for all inputs or one for each")
        return tuple(_each(_dtype, enumerate(value)))
    if isinstance(value, str):
        return tuple(_dtype(part.strip()) for part in value.split(","))
    if isinstance(value, dict):
        return dict(zip(value, _each(_dtype, value.items()), strict=True))
    raise _misfit("dtypes", value, "a dtype, a list of dtypes, or a mapping from tensors to dtypes")


def _dtype(value: Any) -> DType:
    if not isinstance(value, str):
        raise _misfit("dtype", value, "the name of a dtype such as float16")
    try:
        return dtype(value)
    except UnknownName as error:
        known = f"known: {', '.join(error.known)}"
        hint = f"did you mean {error.suggestion}? {known}" if error.suggestion else known
        raise Misfit(f"unknown {error.kind} {error.name!r}", hint=hint) from None


def read_tolerance(value: Any) -> Tolerance:
    """Read ``{rtol: 1e-3, atol: 0, mismatch_ratio: 1e-3}`` or the longer words for these."""
    if not isinstance(value, dict):
        raise _misfit("tolerance", value, "a mapping such as {rtol: 1e-3, atol: 1e-5}")
    if not value:
        raise _misfit("tolerance", value, "a mapping that states rtol, atol, mismatch_ratio or signed_zeros")
    _each(_check_allowance, ((name, (name, each)) for name, each in value.items()))
    try:
        return Tolerance.from_mapping(value)
    except UsageError as error:
        raise Misfit(str(error)) from None


def read_tolerances(value: Any) -> ToleranceChoice:
    """Read the flat form for all outputs, ``{out: {rtol: 1e-3}}`` for single ones, or both in one mapping."""
    if not isinstance(value, dict) or not any(isinstance(each, dict) for each in value.values()):
        return ToleranceChoice(every=read_tolerance(value))
    flat = {key: each for key, each in value.items() if not isinstance(each, dict)}
    parts: dict[Steps, Any] = {(): flat} if flat else {}
    parts |= {(key,): each for key, each in value.items() if isinstance(each, dict)}
    read = dict(zip(parts, _each(read_tolerance, parts.items()), strict=True))
    return ToleranceChoice(every=read.pop((), None), by_output={str(name): each for (name,), each in read.items()})


def _check_allowance(field: tuple[str, Any]) -> None:
    """One field of a tolerance: a known word, with a number."""
    name, value = field
    try:
        if type(value) in (int, float) or name == "signed_zeros":
            Tolerance.from_mapping({name: value})
            return
    except UnknownName as error:
        misfit = unknown_key(name, error.known, of="tolerance")
        misfit.path = ()
        if not nearest(name, error.known):
            misfit.hint += f"; in a plan, that of one output is a mapping, as {name}: {{rtol: {value}}}"
        raise misfit from None
    except UsageError as error:
        raise Misfit(str(error)) from None
    hint = "write it without quotes" if isinstance(value, str) and _is_number(value) else ""
    raise _misfit(name, value, "a number of 0 or more", hint=hint)


def _is_number(text: str) -> bool:
    return re.fullmatch(r"[0-9.]+([eE][-+]?[0-9]+)?", text.strip()) is not None


def is_dotted(text: str) -> bool:
    """Whether a generator is an import path; names of fills have neither dots nor colons."""
    return ":" in text or "." in text


def read_generator(value: Any) -> GeneratorChoice:
    """Read ``uniform``, ``uniform(low=0, high=1)``, a dotted path, ``{fill: uniform, low: 0}``, or fills by tensor."""
    if isinstance(value, str):
        if not value.strip():
            raise _misfit("generator", value, "the name of a fill or package.module:name")
        is_path = is_dotted(value) and _FILL_CALL.fullmatch(value.strip()) is None
        return GeneratorChoice(path=value) if is_path else GeneratorChoice(every=_fill(value))
    if not isinstance(value, dict) or not value:
        raise _misfit("generator", value, "a fill, package.module:name, {fill: ...} or a mapping from inputs to fills")
    if "fill" in value:
        return GeneratorChoice(every=_fill(value))
    return GeneratorChoice(by_tensor=dict(zip(value, _each(_fill, value.items()), strict=True)))


_FILL_CALL = re.compile(r"([A-Za-z][\w-]*)\((.*)\)")
_NEXT_PARAMETER = re.compile(r",(?![^=]*\])")


def fill_scalar(text: str) -> Any:
    """The value that a parameter's text means in ``uniform(low=0, high=1)``."""
    if text in ("true", "false"):
        return text == "true"
    if text.startswith("["):
        from optest.plan.yaml_source import load_value  # YAML is needed for lists alone

        return load_value(text)
    with suppress(ValueError):
        return int(text)
    with suppress(ValueError):
        return float(text)
    return text


def _fill(value: Any) -> Fill:
    if isinstance(value, str) and (call := _FILL_CALL.fullmatch(value.strip())) is not None:
        # uniform(low=0, high=1): numbers, true, false, or words.
        inside = call[2]
        found: dict[str, Any] = {}
        for part in _NEXT_PARAMETER.split(inside) if inside.strip() else ():
            name, equals, text = (word.strip() for word in part.partition("="))
            if not equals or not name or not text or name in found:
                raise _misfit("generator", value, "like uniform(low=0, high=1)")
            found[name] = fill_scalar(text)
        return Fill(kind=call[1], parameters=found)
    if isinstance(value, str) and not is_dotted(value):
        return Fill(kind=value)
    if isinstance(value, str):
        hint = "a dotted path makes all inputs: generator: package.module:name"
        raise _misfit("fill", value, "the name of a fill", hint=hint)
    kind = value.get("fill") if isinstance(value, dict) else None
    if not isinstance(kind, str):
        raise _misfit("fill", value, "the name of a fill or {fill: uniform, low: 0, high: 1}")
    if is_dotted(kind):
        raise _misfit("fill", kind, "the name of a fill", path=("fill",))
    return Fill(kind=kind, parameters={key: each for key, each in value.items() if key != "fill"})


def read_skip(value: Any) -> Skip:
    return Skip(reason=_reason("skip", value, ("reason",)))


def read_xfail(value: Any) -> Xfail:
    """Read a reason, or ``{reason, status, strict}``; only what a verdict or an exception says can be expected."""
    reason = _reason("xfail", value, ("reason", "status", "strict"))
    status = value.get("status", "failed") if isinstance(value, dict) else "failed"
    if status not in XFAIL_STATUSES:
        hint = "a crash is never excused" if status == "crashed" else ""
        should_be = f"one of {', '.join(XFAIL_STATUSES)}"
        raise _misfit("status", status, should_be, path=("status",), hint=hint)
    expected = None if status == "any" else Status(status)
    return Xfail(reason=reason, status=expected, strict=read_strict(value) if isinstance(value, dict) else None)


def read_strict(value: Mapping[str, Any]) -> bool | None:
    """Read ``strict`` of an expected failure, None where it is not stated."""
    strict = value.get("strict")
    if strict is not None and not isinstance(strict, bool):
        raise _misfit("strict", strict, "true or false", path=("strict",))
    return strict


def _reason(name: str, value: Any, keys: tuple[str, ...]) -> str:
    reason = value
    path: Steps = ()
    if isinstance(value, dict):
        _only_keys(value, keys, of=name)
        reason, path = value.get("reason"), ("reason",)
    if not isinstance(reason, str) or not reason.strip():
        raise _misfit(f"reason of {name}", reason, "a sentence that says why", path=path)
    return reason


def read_expects_error(value: Any) -> ExpectedError:
    """Read ``{type: ValueError, match: text, pattern: regular expression}``; each may be left out."""
    if not isinstance(value, dict):
        raise _misfit("expects_error", value, "a mapping such as {type: ValueError, match: shape}")
    _only_keys(value, ("type", "match", "pattern"), of="expects_error")
    for key, text in value.items():
        if not isinstance(text, str) or not text:
            raise _misfit(f"{key} of expects_error", text, "a word", path=(key,))
    try:
        re.compile(value.get("pattern", ""))
    except re.error as error:
        raise Misfit(f"pattern of expects_error is no regular expression: {error}", path=("pattern",)) from None
    return ExpectedError(**value)
