"""Why a mapping cannot call a case, in words: what C cannot be told, and wrong calls that nothing refuses."""

from __future__ import annotations

from collections.abc import Sequence

from optest.clib.library.binding import BoundCase, bind_case
from optest.clib.library.case_tensors import NO_REQUEST, CallRequest, OutputLayout
from optest.clib.library.layouts import Gap
from optest.clib.library.mapping import LibraryMapping
from optest.spec import TestCase

__all__ = ["lack"]


def lack(
    case: TestCase, mapping: LibraryMapping, layouts: Sequence[OutputLayout] = (), request: CallRequest = NO_REQUEST
) -> str | None:
    """Why no function of the mapping can be called for this case, in words; ``layouts`` are those of the outputs,
    ``request`` is what is done otherwise in the call."""
    alternatives = mapping.entries(case.descriptor)
    if not alternatives:
        return f"mapping {mapping.name} has no operator {case.descriptor.name}; it has {', '.join(mapping.operators)}"
    why = "" if case.expects_error is None else _why_accepted(case, mapping, request)
    if why:
        return f"mapping {mapping.name}: {case.descriptor.name} {why}"
    try:
        bound = bind_case(case, mapping, layouts, request)
        if case.expects_error is not None:
            _require_described(bound, case, request)
    except Gap as gap:
        return f"mapping {mapping.name}: {gap}"
    return None


def _why_accepted(case: TestCase, mapping: LibraryMapping, request: CallRequest) -> str:
    """Why nobody can expect that a call is refused; empty if one can."""
    if not mapping.status:
        return "is called without a status by which it could refuse"
    promised = {kind for entry in mapping.entries(case.descriptor) for kind in mapping.promised(entry)}
    mixed = len({argument.spec.dtype for argument in case.inputs}) > 1
    if not request and not promised & {"dtype" if mixed else "shape", "index"}:
        return "does not promise to refuse what does not fit (`refuses: [shape, dtype]`)"
    return ""


def _require_described(bound: BoundCase, case: TestCase, request: CallRequest) -> None:
    """A call can be refused for what C is told of it; a gap for anything else."""
    entry, read, function = bound.entry, bound.entry.read, bound.entry.any_function
    not_described = {each.name for each in read.passed if each.kind == "scalar"}
    not_described |= {start.input for start in entry.starts}  # C is told of the outputs that hold them
    named = ((key.partition(":")[2], spec) for key, spec in bound.specs.items() if spec is not None)
    specs = {name: spec for name, spec in named if name not in not_described}
    is_wrong = {
        "shape": request.shapes or not case.outputs,
        "dtype": request.dtypes or len({spec.dtype for spec in specs.values()}) > 1,
    }
    for kind in ("shape", "dtype"):
        for tensor in specs if is_wrong[kind] else ():
            if (kind, tensor) not in read.kinds:
                raise Gap(f"{function} is not told the {kind} of {tensor}, so it cannot refuse it")
    for key in request.null:
        has_it = {
            "handle": read.passes("handle"),
            "descriptor": bool(entry.objects),
            "workspace": entry.workspace is not None,
        }
        if not has_it.get(key, key != f"output:{entry.returns}"):
            raise Gap(f"{function} takes no {key}")
    for key in request.null_descriptor:
        tensor = key.partition(":")[2]
        if not any(each.name == tensor and (each.as_descriptor or each.as_tensor) for each in read.passed):
            raise Gap(f"{function} takes no descriptor of {tensor}")
    if request.short_workspace and entry.workspace is None:
        raise Gap(f"{function} takes no workspace")
