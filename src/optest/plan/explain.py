"""Where every value of a case came from, for ``optest explain``."""

from __future__ import annotations

from optest.plan.values import shown
from optest.spec import DEFAULT_PRIORITY, Argument, TestCase

__all__ = ["explain_case"]


def explain_case(case: TestCase) -> list[tuple[str, str, str]]:
    """Return ``(what, value, origin)`` for everything that a case holds, in the order of a plan.

    An origin is a place such as ``plan.yaml:14``, ``plan.yaml:3 defaults``, ``command line``, ``operator`` for what
    the operator's descriptor says, or ``default``.
    """
    rows = [("op", case.descriptor.name, case.origins.get("op", case.where or "default"))]
    rows += [("id", case.id, case.origins.get("name", "made from the case")), ("key", case.key, "signature and seed")]
    for argument in case.inputs:
        rows += _argument_rows(case, argument)
    of_outputs = "operator" if case.descriptor.infer is not None else case.origins.get("shapes", "default")
    rows += [(f"output{index}", str(spec), of_outputs) for index, spec in enumerate(case.outputs)]
    rows += [
        (name, shown(value), case.origins.get(f"attributes.{name}", "operator"))
        for name, value in case.attributes.items()
    ]
    for name, value in (("generator", case.generator), ("reference", case.reference)):
        if value is not None:
            rows.append((name, value, case.origins.get(name, "operator")))
    rows += _tolerance_rows(case)
    rows.append(("seed", str(case.seed), case.origins.get("seed", "default")))
    rows.append(("backend", case.backend.label(), case.origins.get("backend", "default")))
    for backend, options in case.backend_config.items():
        for key, value in options.items():
            what = f"backend_config.{backend}.{key}"
            rows.append((what, shown(value), case.origins.get(what) or case.origins.get("backend_config", "default")))
    return rows + _expectation_rows(case)


def _argument_rows(case: TestCase, argument: Argument) -> list[tuple[str, str, str]]:
    spec, path = argument.spec, argument.path
    shape_origin = case.origins.get(f"{path}.shape") or case.origins.get("shapes", "as input0")
    rows = [
        (f"{path}.name", argument.name, "operator"),
        (f"{path}.dtype", spec.dtype.name, case.origins.get("dtypes", "operator")),
        (f"{path}.shape", shown(list(spec.shape)), shape_origin),
    ]
    if not spec.is_plain:
        rows.append((f"{path}.strides", shown(list(spec.strides or ())), shape_origin))
        rows.append((f"{path}.offset", str(spec.offset), shape_origin))
    if case.generator is None:
        unstated = "operator" if case.descriptor.generator is not None else "default"
        rows.append((f"{path}.fill", str(argument.fill), case.origins.get("generator", unstated)))
    return rows


def _tolerance_rows(case: TestCase) -> list[tuple[str, str, str]]:
    ordered = sorted(case.tolerances, key=lambda layer: layer.layer, reverse=True)
    return [
        (
            f"tolerance.{layer.output}" if layer.output else "tolerance",
            str(layer.tolerance),
            f"{layer.where or 'default'} ({layer.layer.phrase})",
        )
        for layer in ordered
    ]


def _expectation_rows(case: TestCase) -> list[tuple[str, str, str]]:
    values = {"timeout": f"{case.timeout_s:g} s"} if case.timeout_s is not None else {}
    values["retries"] = str(case.retries)
    if case.priority != DEFAULT_PRIORITY:
        values["priority"] = str(case.priority)
    values["tags"] = ", ".join(case.tags)
    if case.skip is not None:
        values["skip"] = case.skip.reason
    if case.xfail is not None:
        values["xfail"] = f"{case.xfail.status.value}: {case.xfail.reason}"
    if case.expects_error is not None:
        values["expects_error"] = f"{case.expects_error.type} with {case.expects_error.required_text() or 'any text'}"
    values["base_dir"] = case.base_dir
    owner = {"tags": "operator"}
    return [(key, value, case.origins.get(key, owner.get(key, "default"))) for key, value in values.items() if value]
