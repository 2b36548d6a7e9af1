"""``optest replay --script``: one failure as a short Python script, without optest where the backend can say how."""

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

MOST_LINES = 30
_INLINE_ELEMENTS = 32
_INLINE_WIDTH = 110
_MAY_NOT_RUN = frozenset({Status.CRASHED, Status.TIMEOUT})


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """A result that was asked again; ``tensors`` is the file of its saved tensors, ``options`` are the driver's."""

    result: CaseResult
    case: TestCase
    driver: BackendDriver
    tensors: Path
    options: Mapping[str, Any] = field(default_factory=dict)
    plugins: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenScript:
    """The text of a script, and what has to lie beside it: nothing, or the saved tensors with more ``arrays``.

    ``why_optest`` says why the script needs optest, "" if it does not.
    """

    text: str
    needs_tensors: bool
    arrays: Mapping[str, Any]
    why_optest: str = ""


def script_for(replayed: Replayed, beside: Path) -> WrittenScript:
    """Write the script of a result; ``beside`` is the file in the script's folder that holds its saved tensors."""
    result, case, file_name = replayed.result, replayed.case, beside.name
    archive = read_archive(replayed.tensors)
    inputs = [_script_input(argument.path, archive, inline=_fits_inline(archive, case)) for argument in case.inputs]
    driver = replayed.driver
    script: Script | str = f"backend {driver.name} does not say how a case runs without optest"
    if is_composed(driver, case.descriptor):
        script = "a layer is computed by several calls of the backend, which optest makes"
    elif isinstance(driver, WritesScripts):
        script = driver.script(case, inputs, may_run=result.status not in _MAY_NOT_RUN)
    if isinstance(script, str):
        return _through_optest(replayed, script, beside)
    uses_saved = any("saved[" in line for line in script.lines)
    uses_path = uses_saved or any("Path(" in line for line in script.lines)
    exotic = _ML_DTYPES not in script.imports and any("ml_dtypes." in line for line in script.lines)
    imports = (_ML_DTYPES, *script.imports) if exotic else script.imports
    needs = ", ".join(dict.fromkeys(("numpy", *(("ml_dtypes",) if exotic else ()), *script.needs)))
    found_by = _appended(_folders_of(script.needs), beside)
    header = [
        *_docstring(result, f"Written by `optest replay --script`. It needs {needs}, but not optest."),
        *sorted(each for each in (*imports, *(("import sys",) if found_by else ())) if each in _STANDARD),
        *(("from pathlib import Path",) if uses_path or found_by else ()),
        *(("",) if uses_path or found_by or _STANDARD & set(imports) else ()),
        "import numpy as np",
        *found_by,
        *(each for each in imports if each not in _STANDARD),
        "",
    ]
    body = [
        *((f"saved = np.load(Path(__file__).with_name({_quoted(file_name)}))",) if uses_saved else ()),
        *script.lines,
        *_comparison(result, case, script.outputs),
    ]
    return WrittenScript(text=_within_limit(header, body), needs_tensors=uses_saved, arrays=script.arrays)


_STANDARD = frozenset({"import os", "import subprocess", "import sys"})
_ML_DTYPES = "import ml_dtypes"


def _folders_of(modules: Iterable[str]) -> Iterable[Path]:
    """The folders of an import path in which those of ``modules`` lie that are no installed packages."""
    for module in modules:
        file = file_of_module(module)
        if file and not {"site-packages", "dist-packages"} & set(Path(file).parts):
            yield Path(file).resolve().parents[module.count(".") + (Path(file).name == "__init__.py")]


def _appended(folders: Iterable[Path], beside: Path) -> list[str]:
    """Lines that append ``folders`` to the import path, relative to the script's own, which Python searches anyway."""
    own = beside.resolve().parent
    paths = dict.fromkeys(os.path.relpath(folder, own) for folder in folders if folder != own)
    return [f"sys.path.append(str(Path(__file__).resolve().parent / {_quoted(path)}))" for path in paths]


def _through_optest(replayed: Replayed, why: str, beside: Path) -> WrittenScript:
    """The driver is asked through optest; the script says why."""
    result, case = replayed.result, replayed.case
    count = max(1, len(result.verdict.measures), len(case.outputs))
    plugins = f", plugins={list(replayed.plugins)!r}" if replayed.plugins else ""
    plugins += f", options={dict(replayed.options)!r}" if replayed.options else ""
    from_here = os.path.relpath(Path.cwd(), beside.resolve().parent)
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
        f"saved = Path(__file__).resolve().with_name({_quoted(beside.name)})",
        f"os.chdir(saved.parent / {_quoted(from_here)})  # files that the case names are found from here",
        'sys.path.append("")',
        *_appended(_folders_of(replayed.plugins), beside),
        f"outputs = ask_again(saved{plugins})",
        *_comparison(result, case, [f"outputs[{place}]" for place in range(count)]),
    ]
    return WrittenScript(text=_within_limit(header, body), needs_tensors=True, arrays={}, why_optest=why)


def _docstring(result: CaseResult, how: str) -> list[str]:
    """The first lines of the failure block, and what the script needs."""
    title, *more = explain(result)
    headline = next((line.strip() for line in more if not line.strip().startswith(("case: ", "reproduce: "))), "")
    return [f'"""{_one_line(title)}', *([_one_line(headline)] if headline else []), "", _one_line(how), '"""', ""]


def _one_line(text: str) -> str:
    return clip(" ".join(printable(without_ansi(text)).split()), 200).replace("\\", "/").replace('"""', "'''")


def _quoted(text: str) -> str:
    """A literal as ruff writes it."""
    return json.dumps(text, ensure_ascii=False)


def _fits_inline(archive: Archive, case: TestCase) -> bool:
    """Whether all inputs are few finite numbers of types that NumPy has, so that no file is needed."""
    tensors = [archive.tensors[argument.path] for argument in case.inputs]
    return sum(tensor.size for tensor in tensors) <= _INLINE_ELEMENTS and all(
        spec_of(tensor, archive.offsets.get(argument.path, 0)).is_dense
        and tensor.dtype.isbuiltin == 1
        and bool(np.isfinite(tensor).all())
        and len(_literal(tensor)) <= _INLINE_WIDTH
        for argument, tensor in zip(case.inputs, tensors, strict=True)
    )


def _script_input(name: str, archive: Archive, *, inline: bool) -> ScriptInput:
    tensor = archive.tensors[name]
    spec = spec_of(tensor, archive.offsets.get(name, 0))
    source = _literal(tensor) if inline else f'saved["{entry_name(name, spec)}"]'
    return ScriptInput(name=name, source=source, spec=spec, array=tensor)


def _literal(tensor: Any) -> str:
    """An expression that makes exactly this array, with as few digits as its type needs."""
    shaped = f".reshape({tensor.shape})" if tensor.size == 0 else ""
    digits, short = repr(tensor.tolist()), _nested(tensor)
    if tensor.dtype.kind == "f" and (np.array(json.loads(short), tensor.dtype) == tensor).all():
        digits = short  # read as float64 and rounded, it gives the same numbers again
    return f'np.array({digits}, "{tensor.dtype.name}"){shaped}'


def _nested(tensor: Any) -> str:
    return str(tensor[()]) if tensor.ndim == 0 else f"[{', '.join(_nested(row) for row in tensor)}]"


def _comparison(result: CaseResult, case: TestCase, outputs: Sequence[str]) -> list[str]:
    """Print got and wanted at the worst element, and assert; words where there is nothing to assert."""
    if not outputs:
        return [f"# The last line raised here, but it should not: {_one_line(clip(result.verdict.message, 120))}"]
    measure, output = _worst(result, outputs)
    if how := result.verdict.details.get("how"):
        return [f"print({', '.join(outputs)})", f"# The plain call, which is right; what is wrong was {how}."]
    if result.reason is Reason.SHAPE and len(case.outputs) == len(outputs):
        pairs = zip(outputs, case.outputs, strict=True)
        return [f"assert tuple({each}.shape) == {spec.shape}, {each}.shape" for each, spec in pairs]
    if measure is None or measure.worst_index is None:
        return [f"print({', '.join(outputs)})", f"# {_what_was_wrong(result)}"]
    index = ", ".join(map(str, measure.worst_index)) or "()"
    lines = [
        f"got = {_reader(measure)}({output}[{index}])",
        f"expected, allowed = {_number(measure)}, {measure.worst_bound or 0.0!r}",
        f'print(f"{measure.output}[{index}]: got {{got}}, but should be {{expected}} ± {{allowed}}")',
    ]
    if measure.mismatched or result.status is Status.PASSED:
        return [*lines, f"assert {_right(measure)}"]
    return [*lines, f"# {_of_the_whole(measure) or _what_was_wrong(result)}"]


def _reader(measure: Measure) -> str:
    """The type of Python that reads one element."""
    kind = dtype(measure.dtype)
    if kind.is_complex:
        return "complex"
    return "float" if kind.is_float else "bool" if kind.name == "bool" else "int"


def _number(measure: Measure) -> str:
    """The expected number; those that have no literal, and complex ones, stand in the results as text."""
    value = measure.worst_expected
    return f"{_reader(measure)}({json.dumps(value)})" if isinstance(value, str) else repr(value)


def _right(measure: Measure) -> str:
    """When the worst element would be right; NaN is equal to nothing, infinity has no distance."""
    expected = measure.worst_expected
    if isinstance(expected, str) and "nan" in expected:
        return "got != got"
    if (
        measure.worst_bound
        and math.isfinite(measure.worst_bound)
        and not (isinstance(expected, str) and "inf" in expected)
    ):
        return "abs(got - expected) <= allowed"
    return "got == expected"


def _of_the_whole(measure: Measure) -> str:
    if measure.statistic is None or measure.statistic_limit is None or measure.statistic <= measure.statistic_limit:
        return ""
    z = f"z is {measure.statistic:.3g}, but should be {measure.statistic_limit:.3g} or less"
    return f"Each element is within its own bound, but all of them together are not: {z}."


def _worst(result: CaseResult, outputs: Sequence[str]) -> tuple[Measure | None, str]:
    """The measure that failed first, and the expression of its output."""
    measures = result.verdict.measures
    for place, measure in enumerate(measures):
        if (measure.mismatched or measure.nonfinite_mismatched) and place < len(outputs):
            return measure, outputs[place]
    return (measures[0], outputs[0]) if measures else (None, outputs[0])


def _what_was_wrong(result: CaseResult) -> str:
    if result.status is Status.PASSED:
        return f"Passed: {(result.verdict.evidence or Evidence.MEASURED).value}."
    reason = result.reason.value if result.reason else result.status.value.upper()
    return _one_line(f"{reason}: {clip(result.verdict.message, 160)}")


def _within_limit(header: Sequence[str], body: Sequence[str]) -> str:
    """At most thirty lines: where there are more, short statements that follow each other share one."""
    packed = [line for line in body if line]
    while len(header) + len(packed) > MOST_LINES:
        fixed = [line.startswith((" ", "#")) or line.endswith(":") for line in packed]  # no other statement beside it
        places = [place for place in range(1, len(packed)) if not any(fixed[place - 1 : place + 1])]
        if not places:
            break
        place = min(places, key=lambda each: len(packed[each - 1]) + len(packed[each]))
        packed[place - 1 : place + 1] = [f"{packed[place - 1]}; {packed[place]}"]
    return "\n".join([*header, *packed]) + "\n"
