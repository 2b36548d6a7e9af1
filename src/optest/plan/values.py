"""Readers of plan values: shapes, dtypes, tolerances, generators and others, from plain data to typed values.

Plans and the command line share them; each takes plain YAML data and raises :class:`Misfit` for a wrong value.
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
# Keys and indices that lead from a value to a part of it.
Steps: TypeAlias = "tuple[str | int, ...]"


class Misfit(ValueError):
    """A wrong value of a key; ``path`` leads to the wrong part, ``others`` are further misfits of the same value."""

    def __init__(self, message: str, *, path: Steps = (), hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.path = path
        self.hint = hint
        self.others: tuple[Misfit, ...] = ()

    def all_below(self, *steps: str | int) -> list[Misfit]:
        """Prefix the path of this misfit and of the others with ``steps``; return them all."""
        for misfit in (self, *self.others):
            misfit.path = (*steps, *misfit.path)
        return [self, *self.others]


def refuse(misfits: Sequence[Misfit]) -> None:
    """Raise the first misfit with the others attached, if any."""
    if misfits:
        misfits[0].others = tuple(misfits[1:])
        raise misfits[0]


def _read_all(read: Callable[[Any], _T], values: Iterable[tuple[str | int | Steps, Any]]) -> list[_T]:
    """Return each value as read; raise all misfits together, each below its value's key, index or path."""
    results: list[_T] = []
    misfits: list[Misfit] = []
    for key, value in values:
        try:
            results.append(read(value))
        except Misfit as misfit:  # noqa: PERF203 - all of them are wanted
            misfits += misfit.all_below(*(key if isinstance(key, tuple) else (key,)))
    refuse(misfits)
    return results


class Layout(NamedTuple):
    """A shape in a plan, with strides and offset in elements; ``strides`` None is row-major."""

    shape: tuple[int, ...]
    strides: tuple[int, ...] | None = None
    offset: int = 0


class GeneratorChoice(NamedTuple):
    """Source of the inputs: an import ``path``, or a fill for ``every`` input that those ``by_tensor`` override."""

    path: str | None = None
    every: Fill | None = None
    by_tensor: Mapping[str, Fill] = {}


class ToleranceChoice(NamedTuple):
    """Tolerance of ``every`` output, which those ``by_output`` override."""

    every: Tolerance | None = None
    by_output: Mapping[str, Tolerance] = {}


def shown(value: Any) -> str:
    """Return a value as it is written in YAML, shortened to one line of at most 80 characters."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case Mapping():
            text = "{" + ", ".join(f"{key}: {shown(x)}" for key, x in list(value.items())[:4]) + "}"
        case list() | tuple():
            text = "[" + ", ".join(map(shown, value[:8])) + (", ...]" if len(value) > 8 else "]")
        case str():
            text = repr(value)
        case _:
            text = str(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def unknown_key(name: str, known: Collection[str], *, of: str = "") -> Misfit:
    """Return the misfit of an unknown key, with a hint at the nearest or at all known keys."""
    hint = did_you_mean(name, known, f"known keys: {', '.join(known)}")
    place = f" of {of}" if of else ""
    return Misfit(f"unknown key {name!r}{place}", path=(name,), hint=hint)


def _misfit(name: str, value: Any, expected: str, **more: Any) -> Misfit:
    return Misfit(f"{name} is {shown(value)}, expected {expected}", **more)


def _only_keys(value: Mapping[str, Any], known: Sequence[str], *, of: str) -> None:
    for key in value:
        if key not in known:
            raise unknown_key(key, known, of=of)


def read_version(value: Any) -> int:
    """Return the version of the plan format; raise Misfit for anything but the integer 1 (True is a bool)."""
    if type(value) is not int or value != 1:
        raise _misfit("version", value, "1")
    return value


class Included(NamedTuple):
    """A file to include; ``model`` renames its model, ``expectations`` names the expectations file of its cases."""

    file: str
    model: str = ""
    expectations: str = ""


def read_include(value: Any) -> tuple[Included, ...]:
    """Return the included files: one, or a list; ``{file, model, expectations}`` has options of one."""
    if (isinstance(value, str) and value) or isinstance(value, dict):
        return (_read_included("include", value),)
    if not isinstance(value, list) or not value:
        raise _misfit("include", value, "a file or a list of files", hint="include: [common.yaml]")
    items = ((index, (f"item {index} of include", item)) for index, item in enumerate(value))
    return tuple(_read_all(lambda item: _read_included(*item), items))


def _read_included(what: str, value: Any) -> Included:
    if isinstance(value, str) and value:
        return Included(value)
    if not isinstance(value, dict):
        raise _misfit(what, value, "the name of a file")
    _only_keys(value, Included._fields, of="an included file")
    for key, text in value.items():
        if not isinstance(text, str) or not text.isprintable() or not text:
            raise _misfit(f"{key} of {what}", text, "a name", path=(key,))
    if "file" not in value:
        raise _misfit(what, value, "{file: FILE, model: NAME}")
    return Included(**value)


_SHAPE_FORM = "a list of sizes such as [2, 3], 2x3, or {shape: [2, 3], strides: [3, 1], offset: 0}"


def read_shape(value: Any) -> Layout:
    """Return the layout of ``[2, 3]``, ``2x3``, ``scalar``, ``2`` (one dimension) or ``{shape, strides, offset}``."""
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
        (layout,) = _read_all(read_shape, [("shape", value["shape"])])
        strides = value.get("strides")
        if "strides" in value and not (isinstance(strides, list) and all(type(stride) is int for stride in strides)):
            raise _misfit("strides", strides, "a list of integers, in elements", path=("strides",))
        offset = value.get("offset", 0)
        if type(offset) is not int or offset < 0:
            raise _misfit("offset", offset, "an integer of 0 or more, in elements", path=("offset",))
        return Layout(layout.shape, None if strides is None else tuple(strides), offset)
    hint = "write sizes in brackets: [2, 3]" if value is None else whole_number(value)
    raise _misfit("shape", value, _SHAPE_FORM, hint=hint)


def _sizes(value: list[Any]) -> tuple[int, ...]:
    # A quick check for the many right shapes; only a wrong one needs a message for each size.
    for size in value:
        if type(size) is not int or not 0 <= size <= MAX_SIZE:
            if all(isinstance(x, (list, dict)) for x in value):
                raise _misfit("shape", value, "one list of sizes", hint=hint_for_list("shapes.TENSOR", value))
            return tuple(_read_all(_size, ((index, (index, x)) for index, x in enumerate(value))))
    return tuple(value)


def hint_for_list(key: str, values: Any) -> str:
    """Return the hint for a list in place of one value: a product over the values."""
    text = values
    if not isinstance(values, str):
        # As users write them: words without quotes.
        words = ", ".join(value if isinstance(value, str) else shown(value) for value in values[:4])
        text = f"[{words}, ...]" if len(values) > 4 else f"[{words}]"
    return f"several values make several cases: product: {{{key}: {text}}}"


def whole_number(value: Any) -> str:
    """Return the hint for ``1e5`` in place of an integer, which YAML and Python read as a float; "" for others."""
    # A larger float may have been rounded from another integer.
    is_whole = isinstance(value, float) and value.is_integer() and 0 <= value <= 2**53
    return f"write {int(value)}" if is_whole else ""


_NO_AXIS = "$NAME refers to an axis of `product`, which the case does not have"


def _size(item: tuple[int, Any]) -> int:
    index, value = item
    if type(value) is not int or not 0 <= value <= MAX_SIZE:
        hint = _NO_AXIS if isinstance(value, str) and "$" in value else whole_number(value)
        expected = "below 2^63" if type(value) is int and value > MAX_SIZE else "an integer of 0 or more"
        raise _misfit(f"size {index} of the shape", value, expected, hint=hint)
    return value


def _sizes_of_text(text: str) -> tuple[int, ...]:
    """Return the sizes of ``2x3``, ``2,3``, ``[2, 3]`` or ``scalar``."""
    if text.strip() in ("scalar", "[]", "()"):
        return ()
    inner = text.strip()
    if inner[:1] + inner[-1:] in ("[]", "()"):
        inner = inner[1:-1].strip().removesuffix(",")
    # 18 digits always fit into 64 bits.
    if re.fullmatch(r"[0-9]{1,18}(\s*[xX,]\s*[0-9]{1,18})*", inner) is None:
        sizes = re.findall(r"[0-9]{1,18}", text)
        hint = f"if it is a list of sizes, write [{', '.join(sizes)}]" if len(sizes) > 1 else ""
        hint = _NO_AXIS if "$" in text else hint
        raise _misfit("shape", text, "sizes such as 2x3x4, or scalar for a tensor without dimensions", hint=hint)
    return tuple(map(int, re.split(r"[xX,]", inner)))


def read_dtypes(value: Any) -> tuple[DType, ...] | dict[str, DType]:
    """Return the dtypes of one name, ``a,b``, a list of names, or names by tensor."""
    if type(value) is list:
        if not value:
            raise _misfit("dtypes", value, "one dtype for all inputs or one for each")
        return tuple(_read_all(_dtype, enumerate(value)))
    if isinstance(value, str):
        return tuple(_dtype(part.strip()) for part in value.split(","))
    if isinstance(value, dict):
        return dict(zip(value, _read_all(_dtype, value.items()), strict=True))
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
    """Return the tolerance of ``{rtol: 1e-3, atol: 0, mismatch_ratio: 1e-3}`` or of the longer words for these."""
    if not isinstance(value, dict):
        raise _misfit("tolerance", value, "a mapping such as {rtol: 1e-3, atol: 1e-5}")
    if not value:
        raise _misfit("tolerance", value, "a mapping with rtol, atol, mismatch_ratio or signed_zeros")
    # Each field for itself first, so that all wrong ones are reported.
    _read_all(_check_tolerance_field, ((name, (name, x)) for name, x in value.items()))
    try:
        return Tolerance.from_mapping(value)
    except UsageError as error:
        raise Misfit(str(error)) from None


def read_tolerances(value: Any) -> ToleranceChoice:
    """Return the tolerances of the flat form for all outputs, ``{out: {rtol: 1e-3}}`` for single ones, or both."""
    if not isinstance(value, dict) or not any(isinstance(x, dict) for x in value.values()):
        return ToleranceChoice(every=read_tolerance(value))
    flat = {key: x for key, x in value.items() if not isinstance(x, dict)}
    parts: dict[Steps, Any] = {(): flat} if flat else {}
    parts |= {(key,): x for key, x in value.items() if isinstance(x, dict)}
    read = dict(zip(parts, _read_all(read_tolerance, parts.items()), strict=True))
    return ToleranceChoice(every=read.pop((), None), by_output={str(name): x for (name,), x in read.items()})


def _check_tolerance_field(field: tuple[str, Any]) -> None:
    """Raise Misfit for an unknown name or a wrong number of one field of a tolerance."""
    name, value = field
    try:
        if type(value) in (int, float) or name == "signed_zeros":
            Tolerance.from_mapping({name: value})
            return
    except UnknownName as error:
        misfit = unknown_key(name, error.known, of="tolerance")
        misfit.path = ()
        if not nearest(name, error.known):
            misfit.hint += f"; for one output of that name write {name}: {{rtol: {value}}}"
        raise misfit from None
    except UsageError as error:
        raise Misfit(str(error)) from None
    is_number = isinstance(value, str) and re.fullmatch(r"[0-9.]+([eE][-+]?[0-9]+)?", value.strip()) is not None
    raise _misfit(name, value, "a number of 0 or more", hint="write it without quotes" if is_number else "")


def is_dotted(text: str) -> bool:
    """Return whether a generator is an import path; names of fills have neither dots nor colons."""
    return ":" in text or "." in text


def read_generator(value: Any) -> GeneratorChoice:
    """Return the choice of ``uniform``, ``uniform(low=0)``, a path, ``{fill: uniform, low: 0}`` or fills by tensor."""
    if isinstance(value, str):
        if not value.strip():
            raise _misfit("generator", value, "the name of a fill or package.module:name")
        # A number in a call has a dot as well: uniform(low=0.5).
        is_path = is_dotted(value) and _FILL_CALL.fullmatch(value.strip()) is None
        return GeneratorChoice(path=value) if is_path else GeneratorChoice(every=_fill(value))
    if not isinstance(value, dict) or not value:
        raise _misfit("generator", value, "a fill, package.module:name, {fill: ...} or a mapping from inputs to fills")
    if "fill" in value:
        return GeneratorChoice(every=_fill(value))
    return GeneratorChoice(by_tensor=dict(zip(value, _read_all(_fill, value.items()), strict=True)))


# uniform(low=0, high=1): numbers, true, false, lists, or words.
_FILL_CALL = re.compile(r"([A-Za-z][\w-]*)\((.*)\)")
# A comma within the brackets of a list does not separate parameters.
_NEXT_PARAMETER = re.compile(r",(?![^=]*\])")


def fill_scalar(text: str) -> Any:
    """Return the value of a parameter in ``uniform(low=0, high=1)``: a bool, number or list, else the text."""
    if text in ("true", "false"):
        return text == "true"
    if text.startswith("["):
        # Only lists need YAML, which is slow to import.
        from optest.plan.yaml_source import load_value

        return load_value(text)
    with suppress(ValueError):
        return int(text)
    with suppress(ValueError):
        return float(text)
    return text


def _fill(value: Any) -> Fill:
    if isinstance(value, str) and (call := _FILL_CALL.fullmatch(value.strip())) is not None:
        inside = call[2]
        parameters: dict[str, Any] = {}
        for part in _NEXT_PARAMETER.split(inside) if inside.strip() else ():
            name, equals, text = (word.strip() for word in part.partition("="))
            if not equals or not name or not text or name in parameters:
                raise _misfit("generator", value, "a form like uniform(low=0, high=1)")
            parameters[name] = fill_scalar(text)
        return Fill(kind=call[1], parameters=parameters)
    if isinstance(value, str) and not is_dotted(value):
        return Fill(kind=value)
    if isinstance(value, str):
        hint = "an import path generates all inputs: generator: package.module:name"
        raise _misfit("fill", value, "the name of a fill", hint=hint)
    kind = value.get("fill") if isinstance(value, dict) else None
    if not isinstance(kind, str):
        raise _misfit("fill", value, "the name of a fill or {fill: uniform, low: 0, high: 1}")
    if is_dotted(kind):
        raise _misfit("fill", kind, "the name of a fill", path=("fill",))
    return Fill(kind=kind, parameters={key: x for key, x in value.items() if key != "fill"})


def read_skip(value: Any) -> Skip:
    return Skip(reason=_reason("skip", value, ("reason",)))


def read_xfail(value: Any) -> Xfail:
    """Return the expected failure of a reason, or of ``{reason, status, strict}``; raise Misfit for other statuses."""
    reason = _reason("xfail", value, ("reason", "status", "strict"))
    status = value.get("status", "failed") if isinstance(value, dict) else "failed"
    if status not in XFAIL_STATUSES:
        hint = "a crash cannot be expected" if status == "crashed" else ""
        raise _misfit("status", status, f"one of {', '.join(XFAIL_STATUSES)}", path=("status",), hint=hint)
    expected = None if status == "any" else Status(status)
    return Xfail(reason=reason, status=expected, strict=read_strict(value) if isinstance(value, dict) else None)


def read_strict(value: Mapping[str, Any]) -> bool | None:
    """Return the value of ``strict`` of an expected failure, None if it is not set."""
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
        raise _misfit(f"reason of {name}", reason, "a sentence with the reason", path=path)
    return reason


def read_expects_error(value: Any) -> ExpectedError:
    """Return the error of ``{type: ValueError, match: text, pattern: regular expression}``, all of them optional."""
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
