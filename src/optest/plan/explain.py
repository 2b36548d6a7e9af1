"""Values of a case with their origins, printed by ``optest explain``."""

from __future__ import annotations

from optest.plan.values import shown
from optest.spec import DEFAULT_PRIORITY, TestCase


def explain_case(case: TestCase) -> list[tuple[str, str, str]]:
    """Return name, value, origin (FILE:LINE, ``command line``, ``operator``, ``default``) of each value of a case."""
    rows = [("op", case.descriptor.name, case.origins.get("op", case.where or "default"))]
    rows += [("id", case.id, case.origins.get("name", "built from the case")), ("key", case.key, "signature and seed")]
    for argument in case.inputs:
        spec, path = argument.spec, argument.path
        # An elementwise operator gives other inputs the shape of the first.
        shape_origin = case.origins.get(f"{path}.shape") or case.origins.get("shapes", "as input0")
        rows += [
            (f"{path}.name", argument.name, "operator"),
            (f"{path}.dtype", spec.dtype.name, case.origins.get("dtypes", "operator")),
            (f"{path}.shape", shown(list(spec.shape)), shape_origin),
        ]
        if not spec.is_plain:
            rows.append((f"{path}.strides", shown(list(spec.strides or ())), shape_origin))
            rows.append((f"{path}.offset", str(spec.offset), shape_origin))
        if case.generator is None:
            origin = case.origins.get("generator", "operator" if case.descriptor.generator is not None else "default")
            rows.append((f"{path}.fill", str(argument.fill), origin))
    output_origin = "operator" if case.descriptor.infer is not None else case.origins.get("shapes", "default")
    rows += [(f"output{index}", str(spec), output_origin) for index, spec in enumerate(case.outputs)]
    rows += [
        (name, shown(value), case.origins.get(f"attributes.{name}", "operator"))
        for name, value in case.attributes.items()
    ]
    for name, value in (("generator", case.generator), ("reference", case.reference)):
        if value is not None:
            rows.append((name, value, case.origins.get(name, "operator")))
    if invariants := case.descriptor.invariants if case.invariants is None else case.invariants:
        rows.append(("invariants", ", ".join(invariants), case.origins.get("invariants", "operator")))
    # The layer that decides comes first.
    ordered = sorted(case.tolerances, key=lambda layer: layer.layer, reverse=True)
    rows += [
        (
            f"tolerance.{layer.output}" if layer.output else "tolerance",
            str(layer.tolerance),
            f"{layer.where or 'default'} ({layer.layer.phrase})",
        )
        for layer in ordered
    ]
    rows.append(("seed", str(case.seed), case.origins.get("seed", "default")))
    rows.append(("backend", case.backend.label(), case.origins.get("backend", "default")))
    for backend, options in case.backend_config.items():
        for key, value in options.items():
            name = f"backend_config.{backend}.{key}"
            rows.append((name, shown(value), case.origins.get(name) or case.origins.get("backend_config", "default")))
    return rows + _expectation_rows(case)


def _expectation_rows(case: TestCase) -> list[tuple[str, str, str]]:
    """Return the rows of limits, labels and expected outcomes that the case has."""
    values = {"timeout": f"{case.timeout_s:g} s"} if case.timeout_s is not None else {}
    values["retries"] = str(case.retries)
    if case.priority != DEFAULT_PRIORITY:
        values["priority"] = str(case.priority)
    values["tags"] = ", ".join(case.tags)
    if case.skip is not None:
        values["skip"] = case.skip.reason
    if case.xfail is not None:
        values["xfail"] = f"{case.xfail.label}: {case.xfail.reason}"
    if case.expects_error is not None:
        values["expects_error"] = f"{case.expects_error.type} with {case.expects_error.required_text() or 'any text'}"
    values["base_dir"] = case.base_dir
    return [
        (key, value, case.origins.get(key, "operator" if key == "tags" else "default"))
        for key, value in values.items()
        if value
    ]
