"""A case of a command as a Python script: write the files, run the commands, read the outputs. It needs only NumPy."""

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
    """The commands of one case with tokens replaced: ``before`` are build and prepare, in order."""

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
    """Return the script. An input whose file differs from the tensor's memory (dtype, layout) is saved as bytes."""
    arrays: dict[str, Any] = {}
    output_paths = [_relative_path(path, commands) for _, path in outputs]
    run = f"subprocess.run({{}}, check=True, timeout={commands.timeout_s})"
    lines = [
        f"os.chdir({str(commands.workdir)!r})",
        f"for file in {[_relative_path(path, commands) for _, _, path in inputs] + output_paths}:",
        "    Path(file).parent.mkdir(parents=True, exist_ok=True)",
        *(
            f"{_input_source(entry, file, arrays)}.tofile({_relative_path(path, commands)!r})"
            for entry, file, path in inputs
        ),
        *(f"os.putenv({name!r}, {value!r})" for name, value in commands.env.items()),
        *(run.format(list(command)) for command in commands.before),
        f"for old in {output_paths}:",
        "    Path(old).unlink(missing_ok=True)",
    ]
    if commands.cleanup:
        lines += ["try:", f"    {run.format(list(commands.command))}", "finally:"]
        lines += [f"    subprocess.run({list(command)})" for command in commands.cleanup]
    else:
        lines.append(run.format(list(commands.command)))
    needs = list[str]()
    for index, ((file, _), path) in enumerate(zip(outputs, output_paths, strict=True)):
        carrier, view = file.dtype.name, ""
        if numpy_dtype(file.dtype).isbuiltin != 1:
            needs = ["ml_dtypes"]
            carrier, view = f"uint{8 * file.dtype.itemsize_bytes}", f".view(ml_dtypes.{file.dtype.name})"
        lines.append(f'output{index} = np.fromfile({path!r}, "{carrier}"){view}.reshape({file.spec.shape})')
    return Script(
        imports=("import os", "import subprocess", *(f"import {name}" for name in needs)),
        lines=lines,
        outputs=[f"output{index}" for index in range(len(outputs))],
        needs=needs,
        arrays=arrays,
    )


def _relative_path(path: Path, commands: Commands) -> str:
    """Return the path relative to the working directory if the file is in it, else unchanged."""
    return str(path.relative_to(commands.workdir)) if path.is_relative_to(commands.workdir) else str(path)


def _input_source(entry: ScriptInput, file: TensorFile, arrays: dict[str, Any]) -> str:
    """Return the expression for the content of an input file; save its bytes in ``arrays`` if it is not the tensor."""
    if file.dtype is entry.spec.dtype and entry.spec.is_dense and file.dtype.bits != 4:
        return entry.source
    array = entry.array if file.dtype is entry.spec.dtype else round_to(widen(entry.array), file.dtype)
    arrays[f"{entry.name}.file"] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return f'saved["{entry.name}.file"]'
