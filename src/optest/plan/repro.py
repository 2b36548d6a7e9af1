"""One case, written so that it can be run again by itself: as a command line, or as a plan of one case."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optest.plan.fills import default_fill, operators_fills
from optest.plan.request import format_attribute
from optest.plan.scalars import number_text, quoted
from optest.plan.values import fill_scalar
from optest.spec import (
    DEFAULT_PRIORITY,
    Fill,
    Layer,
    RuleClass,
    Skip,
    TensorSpec,
    TestCase,
    Tolerance,
    Xfail,
    format_shape,
)


def command_line(case: TestCase) -> list[str] | None:
    """The arguments after ``optest`` that run exactly this case without a plan, None if flags cannot express it.

    The options that are no part of a case (``--torch-device``) are the caller's to add.
    """
    if case.skip or case.xfail or case.expects_error or case.invariants is not None:
        return None
    if case.backend_config and case.base_dir:
        return None  # relative paths in it start from the plan's folder
    parts = (
        ["run", "--op", case.descriptor.name],
        ["--dtype", ",".join(entry.name for entry in case.dtypes)] if case.inputs else [],
        _shape_flags(case),
        _attribute_flags(case),
        _generator_flags(case),
        _tolerance_flags(case),
        _plain_flags(case),
    )
    if any(part is None for part in parts):
        return None
    return [word for part in parts for word in part or ()]


def _shape_flags(case: TestCase) -> list[str] | None:
    if not all(argument.spec.is_plain for argument in case.inputs):
        return None
    flags = [f"{argument.path}={format_shape(argument.spec.shape)}" for argument in case.inputs]
    if case.descriptor.infer is None and case.outputs:
        if {spec.dtype for spec in case.outputs} != set(case.dtypes) or len(set(case.dtypes)) != 1:
            return None
        flags += [f"output{index}={format_shape(spec.shape)}" for index, spec in enumerate(case.outputs)]
    return [word for flag in flags for word in ("--shape", flag)]


def _attribute_flags(case: TestCase) -> list[str] | None:
    stated = _attributes_off_default(case)
    if any(name.startswith("backend_config.") for name in stated):
        return None
    for backend, options in case.backend_config.items():
        if any("." in step for step in (backend, *options)):
            return None
        stated |= {f"backend_config.{backend}.{key}": value for key, value in options.items()}
    if any("=" in name or name != name.strip() for name in stated):
        return None
    texts = [format_attribute(name, value) for name, value in stated.items()]
    return None if None in texts else [word for text in texts if text is not None for word in ("--attr", text)]


def _attributes_off_default(case: TestCase) -> dict[str, Any]:
    """The attributes that a case has to state: those without a default, and those off it.

    ``repr`` keeps apart what is equal and yet has another key: 1 and 1.0, 0.0 and -0.0.
    """
    defaults = {each.name: each.default for each in case.descriptor.attributes if not each.is_required}
    return {
        name: value
        for name, value in case.attributes.items()
        if name not in defaults or repr(defaults[name]) != repr(value)
    }


def _generator_flags(case: TestCase) -> list[str] | None:
    if (case.generator, [argument.fill for argument in case.inputs]) == operators_fills(case):
        return []
    if case.generator is not None:
        return ["--generator", case.generator]
    words = {_fill_word(argument.fill, case) for argument in case.inputs}
    word = words.pop() if len(words) == 1 else None
    return None if word is None else ["--generator", word]


def _fill_word(fill: Fill, case: TestCase) -> str | None:
    """``randn`` or ``uniform(low=0.0, high=1.0)``, None where only a plan can say it."""
    if fill == default_fill(fill.kind, case):
        return fill.kind
    if fill.kind == "file":  # its path starts from the plan's folder
        return None
    texts = {name: _scalar_word(value) for name, value in fill.parameters.items()}
    if any(text is None for text in texts.values()):
        return None
    return f"{fill.kind}({','.join(f'{name}={text}' for name, text in texts.items())})"


def _scalar_word(value: Any) -> str | None:
    text = str(value).lower() if isinstance(value, bool) else repr(value) if isinstance(value, (int, float)) else value
    if not isinstance(text, str) or any(mark in text for mark in ",=()"):
        return None
    again = fill_scalar(text.strip())
    return text if type(again) is type(value) and (again == value or again != again) else None


def _tolerance_flags(case: TestCase) -> list[str] | None:
    """One layer for all: a flag names the case, so it may relax exact results where a plan's default must not."""
    if not case.tolerances:
        return []
    if any(layer.output is not None for layer in case.tolerances):
        return None
    names_the_case = any(layer.layer in (Layer.CASE, Layer.COMMAND_LINE) for layer in case.tolerances)
    rule = case.descriptor.rule
    is_exact = rule is None or rule.kind in (RuleClass.MOVEMENT, RuleClass.EXACT) or not case.outputs
    is_exact = is_exact or any(argument.fill.kind == "integer-exact" for argument in case.inputs)
    if not names_the_case and (is_exact or any(not spec.dtype.is_inexact for spec in case.outputs)):
        return None
    stated = Tolerance(**_tolerance(case, tuple(Layer))).fields()
    words = [f"{name}={value if isinstance(value, str) else repr(value)}" for name, value in stated.items()]
    return ["--tolerance", ",".join(words)]


def _plain_flags(case: TestCase) -> list[str]:
    flags = ["--reference", case.reference] if case.reference is not None else []
    if case.timeout_s is not None:
        flags += ["--timeout", repr(float(case.timeout_s))]
    if case.retries:
        flags += ["--retries", str(case.retries)]
    flags += ["--seed", str(case.seed), "--backend", case.backend.name]
    return [*flags, "--chip", case.backend.chip] if case.backend.chip is not None else flags


# The plan of one case


def case_plan(case: TestCase) -> str:
    """YAML of a plan that holds this case alone, wherever it is put: ``base_dir`` says where relative paths start."""
    top: dict[str, Any] = {"version": 1, "backend": case.backend.name}
    if case.backend.chip is not None:
        top["chip"] = case.backend.chip
    if case.base_dir:
        top["base_dir"] = case.base_dir
    lines = [f"{key}: {flow(value)}" for key, value in top.items()]
    if defaults := _tolerance(case, (Layer.PLAN,)):
        lines += ["defaults:", f"  tolerance: {flow(defaults)}"]
    entry = case_entry(case)
    if own := _tolerance(case, (Layer.CASE, Layer.COMMAND_LINE)):
        entry["tolerance"] = own
    lines.append("cases:")
    lines += [
        f"  {'-' if index == 0 else ' '} {key}: {flow(value)}" for index, (key, value) in enumerate(entry.items())
    ]
    return "\n".join(lines) + "\n"


def _tolerance(case: TestCase, layers: tuple[Layer, ...]) -> dict[str, Any]:
    """What these layers state together, flat and by output; a later layer for all outputs goes before outputs below."""
    found: dict[str, Any] = {}
    by_output: dict[str, dict[str, Any]] = {}
    for each in sorted(case.tolerances, key=lambda each: (each.layer, each.output is not None)):
        if each.layer not in layers:
            continue
        stated = each.tolerance.fields()
        if each.output is not None:
            by_output[each.output] = {**by_output.get(each.output, {}), **stated}
            continue
        found |= stated
        by_output = {output: {**fields, **stated} for output, fields in by_output.items()}
    return {**found, **by_output}


def case_entry(case: TestCase) -> dict[str, Any]:
    fills = {argument.path: _fill(argument.fill) for argument in case.inputs}
    shapes = {argument.path: _layout(argument.spec) for argument in case.inputs}
    if case.descriptor.infer is None:
        shapes |= {f"output{index}": list(spec.shape) for index, spec in enumerate(case.outputs)}
    xfail, refusal = case.xfail, case.expects_error
    entry: dict[str, Any] = {
        "op": case.descriptor.name,
        "name": case.name,
        "description": case.description,
        "tags": list(case.tags),
        "dtypes": _dtypes(case),
        "shapes": shapes,
        "attributes": _attributes_off_default(case),
        "generator": fills if case.generator is None else case.generator,
        "reference": case.reference,
        "backend_config": case.backend_config,
        "seed": case.seed,
        "timeout": case.timeout_s,
        "retries": case.retries or None,
        "priority": None if case.priority == DEFAULT_PRIORITY else case.priority,
        "skip": case.skip and _reason(case.skip),
        "xfail": xfail and _without_empty(reason=_reason(xfail), status=xfail.label, strict=xfail.strict),
        "expects_error": refusal and _without_empty(type=refusal.type, match=refusal.match, pattern=refusal.pattern),
    }
    own = {} if case.invariants is None else {"invariants": list(case.invariants)}  # none at all is a statement
    return {**_without_empty(**entry), **own}


def _reason(mark: Skip | Xfail) -> str:
    """A plan has to give a reason, a case from Python need not."""
    return mark.reason if mark.reason.strip() else "no reason given"


def _without_empty(**values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value not in (None, "", {}, [])}


def _dtypes(case: TestCase) -> list[str] | dict[str, str]:
    names = [entry.name for entry in case.dtypes]
    if case.descriptor.infer is not None or not case.outputs:
        return names
    outputs = {f"output{index}": spec.dtype.name for index, spec in enumerate(case.outputs)}
    return {**{argument.path: argument.spec.dtype.name for argument in case.inputs}, **outputs}


def _layout(spec: TensorSpec) -> Any:
    if spec.is_plain:
        return list(spec.shape)
    layout: dict[str, Any] = {"shape": list(spec.shape)}
    if spec.strides is not None:
        layout["strides"] = list(spec.strides)
    return {**layout, "offset": spec.offset}


def _fill(fill: Fill) -> Any:
    return {"fill": fill.kind, **fill.parameters} if fill.parameters else fill.kind


def flow(value: Any) -> str:
    """A value on one line, which our own reader and every other YAML reader take alike."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case float():
            return number_text(value)
        case int():
            return str(value)
        case str():
            return quoted(value)
        case Mapping():
            return "{" + ", ".join(f"{quoted(str(key))}: {flow(each)}" for key, each in value.items()) + "}"
        case list() | tuple():
            return "[" + ", ".join(map(flow, value)) + "]"
    raise TypeError(f"a plan cannot hold {value!r}")
