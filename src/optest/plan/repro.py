"""Reproduce one case: as a command line, or as a plan with only this case."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optest.plan.fills import default_fill, operators_fills
from optest.plan.request import format_attribute
from optest.plan.scalars import number_text, quoted
from optest.plan.values import fill_scalar
from optest.spec import DEFAULT_PRIORITY, Fill, Layer, RuleClass, TensorSpec, TestCase, Tolerance, format_shape


def command_line(case: TestCase) -> list[str] | None:
    """Return the arguments after ``optest`` that run exactly this case, None if only a plan can express it."""
    # No flag sets these.
    if case.skip or case.xfail or case.expects_error or case.invariants is not None:
        return None
    if case.backend_config and case.base_dir:
        # Relative paths in the options start from the plan's folder, which no flag sets.
        return None
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
    """Return --shape for each input, and for outputs that the operator cannot infer; None for strided inputs."""
    if not all(argument.spec.is_plain for argument in case.inputs):
        return None
    flags = [f"{argument.path}={format_shape(argument.spec.shape)}" for argument in case.inputs]
    if case.descriptor.infer is None and case.outputs:
        # The dtypes of the outputs would follow from --dtype.
        if {spec.dtype for spec in case.outputs} != set(case.dtypes) or len(set(case.dtypes)) != 1:
            return None
        flags += [f"output{index}={format_shape(spec.shape)}" for index, spec in enumerate(case.outputs)]
    return [word for flag in flags for word in ("--shape", flag)]


def _attribute_flags(case: TestCase) -> list[str] | None:
    """Return --attr for attributes and backend options, None if a name or value has no unambiguous form."""
    values = _attributes_off_default(case)
    if any(name.startswith("backend_config.") for name in values):
        return None
    for backend, options in case.backend_config.items():
        if any("." in step for step in (backend, *options)):
            return None
        values |= {f"backend_config.{backend}.{key}": value for key, value in options.items()}
    if any("=" in name or name != name.strip() for name in values):
        return None
    texts = [format_attribute(name, value) for name, value in values.items()]
    return None if None in texts else [word for text in texts if text is not None for word in ("--attr", text)]


def _attributes_off_default(case: TestCase) -> dict[str, Any]:
    """Return the attributes that have no default or differ from it."""
    # `repr` distinguishes equal values with different case keys: 1 and 1.0, 0.0 and -0.0.
    defaults = {x.name: x.default for x in case.descriptor.attributes if not x.is_required}
    return {
        name: value
        for name, value in case.attributes.items()
        if name not in defaults or repr(defaults[name]) != repr(value)
    }


def _generator_flags(case: TestCase) -> list[str] | None:
    """Return --generator if it is not the operator's default, None if the inputs have several fills."""
    if (case.generator, [argument.fill for argument in case.inputs]) == operators_fills(case):
        return []
    if case.generator is not None:
        return ["--generator", case.generator]
    words = {_fill_word(argument.fill, case) for argument in case.inputs}
    word = words.pop() if len(words) == 1 else None
    return None if word is None else ["--generator", word]


def _fill_word(fill: Fill, case: TestCase) -> str | None:
    """Return ``randn`` or ``uniform(low=0.0, high=1.0)``, None if only a plan can express the fill."""
    if fill == default_fill(fill.kind, case):
        return fill.kind
    if fill.kind == "file":
        # Its path starts from the plan's folder.
        return None
    texts = {name: _scalar_word(value) for name, value in fill.parameters.items()}
    if any(text is None for text in texts.values()):
        return None
    return f"{fill.kind}({','.join(f'{name}={text}' for name, text in texts.items())})"


def _scalar_word(value: Any) -> str | None:
    """Return the text of a fill's parameter, None if it would not be read back as the same value."""
    text = str(value).lower() if isinstance(value, bool) else repr(value) if isinstance(value, (int, float)) else value
    if not isinstance(text, str) or any(mark in text for mark in ",=()"):
        return None
    parsed = fill_scalar(text.strip())
    return text if type(parsed) is type(value) and (parsed == value or parsed != parsed) else None


def _tolerance_flags(case: TestCase) -> list[str] | None:
    """Return --tolerance with all layers merged, None if it would differ by output or relax more than they do."""
    if not case.tolerances:
        return []
    if any(layer.output is not None for layer in case.tolerances):
        return None
    # A flag counts as written for the case: it may relax exact results, a plan's default may not.
    names_the_case = any(layer.layer in (Layer.CASE, Layer.COMMAND_LINE) for layer in case.tolerances)
    rule = case.descriptor.rule
    is_exact = rule is None or rule.kind in (RuleClass.MOVEMENT, RuleClass.EXACT) or not case.outputs
    is_exact = is_exact or any(argument.fill.kind == "integer-exact" for argument in case.inputs)
    if not names_the_case and (is_exact or any(not spec.dtype.is_inexact for spec in case.outputs)):
        return None
    fields = Tolerance(**_tolerance(case, tuple(Layer))).fields()
    words = [f"{name}={value if isinstance(value, str) else repr(value)}" for name, value in fields.items()]
    return ["--tolerance", ",".join(words)]


def _plain_flags(case: TestCase) -> list[str]:
    flags = ["--reference", case.reference] if case.reference is not None else []
    if case.timeout_s is not None:
        flags += ["--timeout", repr(float(case.timeout_s))]
    if case.retries:
        flags += ["--retries", str(case.retries)]
    flags += ["--seed", str(case.seed), "--backend", case.backend.name]
    return [*flags, "--chip", case.backend.chip] if case.backend.chip is not None else flags


def case_plan(case: TestCase) -> str:
    """Return the YAML of a plan with only this case, valid in any folder: ``base_dir`` resolves relative paths."""
    top: dict[str, Any] = {"version": 1, "backend": case.backend.name}
    if case.backend.chip is not None:
        top["chip"] = case.backend.chip
    if case.base_dir:
        top["base_dir"] = case.base_dir
    lines = [f"{key}: {flow(value)}" for key, value in top.items()]
    if defaults := _tolerance(case, (Layer.PLAN,)):
        lines += ["defaults:", f"  tolerance: {flow(defaults)}"]
    entry = case_entry(case)
    if tolerance := _tolerance(case, (Layer.CASE, Layer.COMMAND_LINE)):
        entry["tolerance"] = tolerance
    lines.append("cases:")
    lines += [
        f"  {'-' if index == 0 else ' '} {key}: {flow(value)}" for index, (key, value) in enumerate(entry.items())
    ]
    return "\n".join(lines) + "\n"


def _tolerance(case: TestCase, layers: tuple[Layer, ...]) -> dict[str, Any]:
    """Return the tolerance of these layers merged, for all outputs and by output."""
    for_all: dict[str, Any] = {}
    by_output: dict[str, dict[str, Any]] = {}
    for choice in sorted(case.tolerances, key=lambda x: (x.layer, x.output is not None)):
        if choice.layer not in layers:
            continue
        fields = choice.tolerance.fields()
        if choice.output is not None:
            by_output[choice.output] = {**by_output.get(choice.output, {}), **fields}
            continue
        for_all |= fields
        # A later layer for all outputs overrides earlier ones for single outputs.
        by_output = {output: {**earlier, **fields} for output, earlier in by_output.items()}
    return {**for_all, **by_output}


def case_entry(case: TestCase) -> dict[str, Any]:
    """Return the case as an entry of a plan, without values that are defaults and without its tolerance."""
    fills = {x.path: {"fill": x.fill.kind, **x.fill.parameters} for x in case.inputs}
    shapes = {x.path: _layout(x.spec) for x in case.inputs}
    if case.descriptor.infer is None:
        shapes |= {f"output{index}": list(spec.shape) for index, spec in enumerate(case.outputs)}
    skip, xfail, refusal = case.skip, case.xfail, case.expects_error
    # A plan needs a reason; a case from Python may have none.
    reasons = [mark and (mark.reason if mark.reason.strip() else "no reason given") for mark in (skip, xfail)]
    entry: dict[str, Any] = {
        "op": case.descriptor.name,
        "name": case.name,
        "description": case.description,
        "tags": list(case.tags),
        "dtypes": _dtypes(case),
        "shapes": shapes,
        "attributes": _attributes_off_default(case),
        "generator": case.generator or {path: x if len(x) > 1 else x["fill"] for path, x in fills.items()},
        "reference": case.reference,
        "backend_config": case.backend_config,
        "seed": case.seed,
        "timeout": case.timeout_s,
        "retries": case.retries or None,
        "priority": None if case.priority == DEFAULT_PRIORITY else case.priority,
        "skip": reasons[0],
        "xfail": xfail and _without_empty(reason=reasons[1], status=xfail.label, strict=xfail.strict),
        "expects_error": refusal and _without_empty(type=refusal.type, match=refusal.match, pattern=refusal.pattern),
    }
    # An empty list is kept: it turns the operator's invariants off.
    invariants = {} if case.invariants is None else {"invariants": list(case.invariants)}
    return {**_without_empty(**entry), **invariants}


def _without_empty(**values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value not in (None, "", {}, [])}


def _dtypes(case: TestCase) -> list[str] | dict[str, str]:
    """Return the dtypes of the inputs in order; by tensor, with outputs, if the operator cannot infer these."""
    names = [entry.name for entry in case.dtypes]
    if case.descriptor.infer is not None or not case.outputs:
        return names
    outputs = {f"output{index}": spec.dtype.name for index, spec in enumerate(case.outputs)}
    return {**{x.path: x.spec.dtype.name for x in case.inputs}, **outputs}


def _layout(spec: TensorSpec) -> Any:
    if spec.is_plain:
        return list(spec.shape)
    layout: dict[str, Any] = {"shape": list(spec.shape)}
    if spec.strides is not None:
        layout["strides"] = list(spec.strides)
    return {**layout, "offset": spec.offset}


def flow(value: Any) -> str:
    """Return a value as one line of YAML that all YAML readers read alike; raise TypeError for another type."""
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
            return "{" + ", ".join(f"{quoted(str(key))}: {flow(x)}" for key, x in value.items()) + "}"
        case list() | tuple():
            return "[" + ", ".join(map(flow, value)) + "]"
    raise TypeError(f"a plan cannot hold {value!r}")
