"""A command's case as a Python script: writes the files, runs the commands, reads the outputs; NumPy is enough."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from optest.backends.abilities import Script, ScriptInput
from optest.backends.command_config import Command, TensorFile
from optest.numerics import numpy_dtype, round_to, widen


@dataclass(frozen=True, slots=True, kw_only=True)
class Commands:
    """What runs for one case, tokens replaced: ``before`` are build and prepare, in order."""

    workdir: Path
    env: Mapping[str, str]
    before: Sequence[Command]
    command: Command
    cleanup: Sequence[Command]
    timeout_s: float | None


def command_script(
    commands: Commands,
    inputs: Sequence[tuple[ScriptInput, TensorFile, Path]],
    outputs: Sequence[tuple[TensorFile, Path]],
) -> Script:
    """The script; files that the command does not get as the tensor lies in memory are saved as their bytes."""
    arrays: dict[str, Any] = {}
    made = [_shown(path, commands) for _, path in outputs]
    run = f"subprocess.run({{}}, check=True, timeout={commands.timeout_s})"
    lines = [
        f"os.chdir({str(commands.workdir)!r})",
        f"for file in {[_shown(path, commands) for _, _, path in inputs] + made}:",
        "    Path(file).parent.mkdir(parents=True, exist_ok=True)",
        *(f"{_source(each, file, arrays)}.tofile({_shown(path, commands)!r})" for each, file, path in inputs),
        *(f"os.putenv({name!r}, {value!r})" for name, value in commands.env.items()),
        *(run.format(list(command)) for command in commands.before),
        f"for old in {made}:",
        "    Path(old).unlink(missing_ok=True)",
    ]
    if commands.cleanup:
        lines += ["try:", f"    {run.format(list(commands.command))}", "finally:"]
        lines += [f"    subprocess.run({list(command)})" for command in commands.cleanup]
    else:
        lines.append(run.format(list(commands.command)))
    lines += [f"output{place} = {_read(file, _shown(path, commands))}" for place, (file, path) in enumerate(outputs)]
    exotic = any(not _is_numpys(file) for file, _ in outputs)
    return Script(
        imports=("import os", "import subprocess", *(("import ml_dtypes",) if exotic else ())),
        lines=lines,
        outputs=[f"output{place}" for place in range(len(outputs))],
        needs=("ml_dtypes",) if exotic else (),
        arrays=arrays,
    )


def _shown(path: Path, commands: Commands) -> str:
    """Relative to the working directory where the file lies in it."""
    return str(path.relative_to(commands.workdir)) if path.is_relative_to(commands.workdir) else str(path)


def _source(each: ScriptInput, file: TensorFile, arrays: dict[str, Any]) -> str:
    if file.dtype is each.spec.dtype and each.spec.is_dense and file.dtype.bits != 4:
        return each.source
    array = each.array if file.dtype is each.spec.dtype else round_to(widen(each.array), file.dtype)
    arrays[f"{each.name}.file"] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return f'saved["{each.name}.file"]'


def _is_numpys(file: TensorFile) -> bool:
    return numpy_dtype(file.dtype).isbuiltin == 1


def _read(file: TensorFile, path: str) -> str:
    if _is_numpys(file):
        return f'np.fromfile({path!r}, "{file.dtype.name}").reshape({file.spec.shape})'
    carrier = f"uint{8 * file.dtype.itemsize_bytes}"
    return f'np.fromfile({path!r}, "{carrier}").view(ml_dtypes.{file.dtype.name}).reshape({file.spec.shape})'
