"""``optest replay --script``: one failure as a short Python script, without optest if the backend supports that."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from optest.backends import BackendDriver, Script, ScriptInput
from optest.backends.abilities import WritesScripts
from optest.core.kept_tensors import Archive, entry_name, read_archive, spec_of
from optest.core.layers import is_composed
from optest.registry import file_of_module
from optest.reporting.explain import explain
from optest.reporting.typography import clip, printable, without_ansi
from optest.spec import CaseResult, Evidence, Measure, Reason, Status, TestCase, dtype

# Inputs up to this size are literals in the script, so that it needs no file.
_INLINE_ELEMENTS = 32
_INLINE_WIDTH = 110
_MAY_NOT_RUN = frozenset({Status.CRASHED, Status.TIMEOUT})


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """A replayed result; ``tensors`` is the file of its saved tensors, ``options`` are the driver's."""

    result: CaseResult
    case: TestCase
    driver: BackendDriver
    tensors: Path
    options: Mapping[str, Any] = field(default_factory=dict)
    plugins: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenScript:
    """The text of a script; ``needs_tensors`` if it reads the saved tensors next to it, extended by ``arrays``.

    ``why_optest`` is why the script needs optest, "" if it does not.
    """

    text: str
    needs_tensors: bool
    arrays: Mapping[str, Any]
    why_optest: str = ""


def script_for(replayed: Replayed, saved: Path) -> WrittenScript:
    """Return the script of a result; ``saved`` is the file of its tensors in the script's folder."""
    result, case = replayed.result, replayed.case
    archive = read_archive(replayed.tensors)
    inputs, is_inline = [], _fits_inline(archive, case)
    for argument in case.inputs:
        tensor = archive.tensors[argument.path]
        spec = spec_of(tensor, archive.offsets.get(argument.path, 0))
        source = _array_literal(tensor) if is_inline else f'saved["{entry_name(argument.path, spec)}"]'
        inputs.append(ScriptInput(name=argument.path, source=source, spec=spec, array=tensor))
    driver = replayed.driver
    script: Script | str = f"backend {driver.name} cannot write scripts that run without optest"
    if is_composed(driver, case.descriptor):
        script = "optest computes a layer by several calls of the backend"
    elif isinstance(driver, WritesScripts):
        script = driver.script(case, inputs, may_run=result.status not in _MAY_NOT_RUN)
    if isinstance(script, str):
        return _script_with_optest(replayed, script, saved)
    uses_saved = any("saved[" in line for line in script.lines)
    imports, needs = list(script.imports), ["numpy", *script.needs]
    if _ML_DTYPES not in imports and any("ml_dtypes." in line for line in script.lines):
        imports.insert(0, _ML_DTYPES)
        needs.insert(1, "ml_dtypes")
    path_lines = _import_path_lines(_import_folders(script.needs), saved)
    standard = _STANDARD.intersection(imports) | ({"import sys"} if path_lines else set())
    header = [
        *_docstring(result, f"Written by `optest replay --script`. It needs {', '.join(needs)}, but not optest."),
        *sorted(standard),
        "from pathlib import Path",
        "",
        "import numpy as np",
        *path_lines,
        *(line for line in imports if line not in _STANDARD),
        "",
    ]
    body = [
        *((f"saved = np.load(Path(__file__).with_name({_double_quoted(saved.name)}))",) if uses_saved else ()),
        *script.lines,
        *_comparison_lines(result, case, script.outputs),
    ]
    return WrittenScript(text="\n".join([*header, *body, ""]), needs_tensors=uses_saved, arrays=script.arrays)


_STANDARD = frozenset({"import os", "import subprocess", "import sys"})
_ML_DTYPES = "import ml_dtypes"


def _import_folders(modules: Iterable[str]) -> Iterable[Path]:
    """Yield the folders from which ``modules`` are imported, without installed packages."""
    for module in modules:
        file = file_of_module(module)
        if file and not {"site-packages", "dist-packages"} & set(Path(file).parts):
            yield Path(file).resolve().parents[module.count(".") + (Path(file).name == "__init__.py")]


def _import_path_lines(folders: Iterable[Path], saved: Path) -> list[str]:
    """Return lines that append ``folders``, except the script's folder, to the import path."""
    here = saved.resolve().parent
    paths = dict.fromkeys(os.path.relpath(folder, here) for folder in folders if folder != here)
    return [f"sys.path.append(str(Path(__file__).resolve().parent / {_double_quoted(path)}))" for path in paths]


def _script_with_optest(replayed: Replayed, why: str, saved: Path) -> WrittenScript:
    """Return a script that runs the driver through optest, with the reason in its docstring."""
    result, case = replayed.result, replayed.case
    count = max(1, len(result.verdict.measures), len(case.outputs))
    plugins = f", plugins={list(replayed.plugins)!r}" if replayed.plugins else ""
    plugins += f", options={dict(replayed.options)!r}" if replayed.options else ""
    working_folder = os.path.relpath(Path.cwd(), saved.resolve().parent)
    header = [
        *_docstring(result, f"It needs optest, since {why}."),
        "import os",
        "import sys",
        "from pathlib import Path",
        "",
        "from optest.api.saving import ask_again",
        "",
    ]
    body = [
        f"saved = Path(__file__).resolve().with_name({_double_quoted(saved.name)})",
        f"os.chdir(saved.parent / {_double_quoted(working_folder)})  # paths in the case are relative to this folder",
        'sys.path.append("")',
        *_import_path_lines(_import_folders(replayed.plugins), saved),
        f"outputs = ask_again(saved{plugins})",
        *_comparison_lines(result, case, [f"outputs[{index}]" for index in range(count)]),
    ]
    return WrittenScript(text="\n".join([*header, *body, ""]), needs_tensors=True, arrays={}, why_optest=why)


def _docstring(result: CaseResult, how: str) -> list[str]:
    """Return the docstring of a script: the first lines of the failure block, and the requirements ``how``."""
    title, *more = explain(result)
    headline = next((line.strip() for line in more if not line.strip().startswith(("case: ", "reproduce: "))), "")
    return [f'"""{_one_line(title)}', *([_one_line(headline)] if headline else []), "", _one_line(how), '"""', ""]


def _one_line(text: str) -> str:
    return clip(" ".join(printable(without_ansi(text)).split()), 200).replace("\\", "/").replace('"""', "'''")


def _double_quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _fits_inline(archive: Archive, case: TestCase) -> bool:
    """Return whether the inputs can be literals: few finite numbers, dense, of dtypes that NumPy has."""
    tensors = [archive.tensors[argument.path] for argument in case.inputs]
    return sum(tensor.size for tensor in tensors) <= _INLINE_ELEMENTS and all(
        spec_of(tensor, archive.offsets.get(argument.path, 0)).is_dense
        and tensor.dtype.isbuiltin == 1
        and bool(np.isfinite(tensor).all())
        and len(_array_literal(tensor)) <= _INLINE_WIDTH
        for argument, tensor in zip(case.inputs, tensors, strict=True)
    )


def _array_literal(tensor: Any) -> str:
    """Return an expression for exactly this array, with as few digits as its dtype needs."""
    shaped = f".reshape({tensor.shape})" if tensor.size == 0 else ""
    digits, short = repr(tensor.tolist()), _nested(tensor)
    if tensor.dtype.kind == "f" and (np.array(json.loads(short), tensor.dtype) == tensor).all():
        digits = short  # read as float64 and rounded to the dtype, it gives the same numbers
    return f'np.array({digits}, "{tensor.dtype.name}"){shaped}'


def _nested(tensor: Any) -> str:
    """Return nested lists as text; each number has as few digits as its dtype needs."""
    return str(tensor[()]) if tensor.ndim == 0 else f"[{', '.join(_nested(row) for row in tensor)}]"


def _comparison_lines(result: CaseResult, case: TestCase, outputs: Sequence[str]) -> list[str]:
    """Return lines that print and assert the worst element or the shapes; a comment if nothing can be asserted."""
    if not outputs:
        return [f"# The last line raised this error, expected none: {_one_line(clip(result.verdict.message, 120))}"]
    measure, output = _worst(result, outputs)
    if how := result.verdict.details.get("how"):
        return [f"print({', '.join(outputs)})", f"# This plain call is right; the failure was {how}."]
    if result.reason is Reason.SHAPE and len(case.outputs) == len(outputs):
        pairs = zip(outputs, case.outputs, strict=True)
        return [f"assert tuple({name}.shape) == {spec.shape}, {name}.shape" for name, spec in pairs]
    if measure is None or measure.worst_index is None:
        return [f"print({', '.join(outputs)})", f"# {_failure_in_one_line(result)}"]
    index = ", ".join(map(str, measure.worst_index)) or "()"
    kind, expected, bound = dtype(measure.dtype), measure.worst_expected, measure.worst_bound
    reader = "float" if kind.is_float else "bool" if kind.name == "bool" else "int"
    reader = "complex" if kind.is_complex else reader
    # Numbers without a literal (NaN, infinity, complex) are text in results.
    number = f"{reader}({json.dumps(expected)})" if isinstance(expected, str) else repr(expected)
    lines = [
        f"got = {reader}({output}[{index}])",
        f"expected, allowed = {number}, {bound or 0.0!r}",
        f'print(f"{measure.output}[{index}]: got {{got}}, expected {{expected}} ± {{allowed}}")',
    ]
    if not measure.mismatched and result.status is not Status.PASSED:
        statistic, limit = measure.statistic, measure.statistic_limit
        why = _failure_in_one_line(result)
        if statistic is not None and limit is not None and statistic > limit:
            z = f"z is {statistic:.3g}, expected at most {limit:.3g}"
            why = f"Each element is within its bound, but all elements together are not: {z}."
        return [*lines, f"# {why}"]
    text = expected if isinstance(expected, str) else ""
    if "nan" in text:  # NaN is equal to nothing
        return [*lines, "assert got != got"]
    has_distance = bound and math.isfinite(bound) and "inf" not in text
    return [*lines, "assert abs(got - expected) <= allowed" if has_distance else "assert got == expected"]


def _worst(result: CaseResult, outputs: Sequence[str]) -> tuple[Measure | None, str]:
    """Return the first measure that failed, else the first one, and the expression of its output."""
    measures = result.verdict.measures
    for index, measure in enumerate(measures):
        if (measure.mismatched or measure.nonfinite_mismatched) and index < len(outputs):
            return measure, outputs[index]
    return (measures[0], outputs[0]) if measures else (None, outputs[0])


def _failure_in_one_line(result: CaseResult) -> str:
    if result.status is Status.PASSED:
        return f"Passed: {(result.verdict.evidence or Evidence.MEASURED).value}."
    reason = result.reason.value if result.reason else result.status.value.upper()
    return _one_line(f"{reason}: {clip(result.verdict.message, 160)}")
