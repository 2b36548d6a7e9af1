"""OpenCL kernels as a backend: a source file, the name of a kernel in it, and its arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyopencl as cl

from optest.backends import BackendDriver, Fault, Reason
from optest.backends.command_config import case_tokens, why_outside
from optest.backends.opencl_device import NUMBERS, OpenClDevice, calls_of_opencl, declared_type
from optest.backends.sections import SectionReader
from optest.backends.tokens import expand, problems_of, tokens_of
from optest.errors import Unavailable
from optest.spec import TestCase
from optest.store import path_of

_KEYS = ("source", "kernel", "arguments", "global", "local", "options", "workdir", "promises")
# Two values: with one, a kernel that copies the guard behind an input to behind an output would stay undetected.
_OUTPUT_GUARD, _INPUT_GUARD = 0xA5, 0x5A


class OpenClBackend(BackendDriver):
    """Runs the kernels of ``backend_config.opencl`` on the first OpenCL device, or the one in PYOPENCL_CTX.

    Outputs are poisoned when the kernel begins, and followed by a guard zone.
    """

    name = "opencl"
    kind = "opencl"
    reads_inputs = False
    runs_programs = True

    def configure(self, options: Mapping[str, Any]) -> None:  # noqa: ARG002 - it has no options
        """Open the device; raise Unavailable without one."""
        self._device  # noqa: B018 - opened by being read

    def problems(self, case: TestCase) -> Sequence[str]:
        return () if why_outside(case, self.name) else _read_section(case, self.name)[1]

    def unsupported(self, case: TestCase) -> str | None:
        return why_outside(case, self.name)

    def run_into(self, case: TestCase, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Run the kernel once and copy its results into ``outputs``.

        Raises:
            Fault: BAD_CASE for a wrong section, COMPILE with the compiler's message, OUT_OF_BOUNDS for a write behind a
                tensor, INPUT_MUTATED, RAISED or OUT_OF_MEMORY for an OpenCL error.
        """
        section, problems = _read_section(case, self.name)
        if problems:
            raise Fault(Reason.BAD_CASE, "\n".join(problems))
        tokens = case_tokens(case)
        with calls_of_opencl():
            kernel = self._kernel(case, section)
            sources = {
                argument.path: self._device.buffer(array, _INPUT_GUARD)
                for argument, array in zip(case.inputs, inputs, strict=True)
            }
            targets = {f"output{n}": self._device.buffer(array, _OUTPUT_GUARD) for n, array in enumerate(outputs)}
            sizes = [_parse_number(f"global {size!r}", "int", size, tokens) for size in section["global"]]
            local = [_parse_number(f"local {size!r}", "int", size, tokens) for size in section.get("local", ())]
            _set_arguments(kernel, section, tokens, {**sources, **targets})
            self._device.enqueue(kernel, sizes, local)
            self._device.queue.finish()
            for argument, array in zip(case.inputs, inputs, strict=True):
                held = self._device.read_buffer(argument.name, sources[argument.path], _INPUT_GUARD)
                if held.tobytes() != np.ascontiguousarray(array).tobytes():
                    raise Fault(Reason.INPUT_MUTATED, f"the kernel wrote into input {argument.name}")
            for (name, buffer), output in zip(targets.items(), outputs, strict=True):
                held = self._device.read_buffer(name, buffer, _OUTPUT_GUARD)
                output[...] = held.view(output.dtype).reshape(output.shape)

    def device(self) -> str | None:
        return self._device.device.name.split("-", 1)[0].strip()  # type: ignore[no-any-return]

    def versions(self) -> Mapping[str, str]:
        device = self._device.device
        return {"pyopencl": cl.VERSION_TEXT, "opencl": device.version.strip(), "driver": device.driver_version}

    def doctor(self) -> Sequence[str]:
        return tuple(f"{x.platform.name.strip()}: {x.name.strip()}" for x in self._device.queue.context.devices)

    @cached_property
    def _device(self) -> OpenClDevice:
        try:
            context = cl.create_some_context(interactive=False)
        except cl.Error as error:
            raise Unavailable("an OpenCL device", f"{error}; Debian has one for CPUs: pocl-opencl-icd") from None
        return OpenClDevice(context.devices[0], context)

    def _kernel(self, case: TestCase, section: Mapping[str, Any]) -> Any:
        tokens = case_tokens(case)
        path = Path(path_of(case, section["source"], path_of(case, section.get("workdir", "."))))
        options = [expand(option, tokens) for option in section.get("options", ())]
        return self._device.kernel(path, section["kernel"], options)


def _read_section(case: TestCase, name: str) -> tuple[Mapping[str, Any], list[str]]:
    """Return the section of a case, and the errors in it."""
    reader = SectionReader(case, name, "source, kernel, arguments and global")
    section = reader.section
    reader.unknown_keys(section, _KEYS)
    for key, kind in (("source", str), ("kernel", str), ("arguments", list), ("global", list)):
        if not isinstance(section.get(key), (list, tuple) if kind is list else kind):
            reader.add_problem(key, f"is {section.get(key)!r}, expected {'a list' if kind is list else 'text'}")
    known = case_tokens(case)
    tensors = [*(argument.path for argument in case.inputs), *(f"output{n}" for n in range(len(case.outputs)))]
    for key in ("arguments", "global", "local", "options") if not reader.problems else ():
        for text in map(str, section.get(key, ())):
            for problem in problems_of(text, [*known, *(tensors if key == "arguments" else ())]):
                reader.add_problem(key, problem)
            word = text.split()[0] if text.split() else ""
            if key == "arguments" and not _is_tensor(text) and word not in NUMBERS:
                reader.add_problem(key, f"has {text!r}, expected a tensor, or a number: {', '.join(NUMBERS)}")
    return section, reader.problems


def _is_tensor(text: str) -> bool:
    return any(token.startswith(("input", "output")) for token in tokens_of(text))


def _set_arguments(kernel: Any, section: Mapping[str, Any], tokens: Mapping[str, str], buffers: Any) -> None:
    """Set a kernel's arguments, buffers or numbers (``int {numel0}``); raise Fault BAD_CASE if they do not match."""
    where, arguments = f"kernel {section['kernel']} of {section['source']}", section["arguments"]
    if kernel.num_args != len(arguments):
        message = f"{where} has {kernel.num_args} arguments, but `arguments` has {len(arguments)}"
        raise Fault(Reason.BAD_CASE, message)
    for index, text in enumerate(arguments):
        subject = f"argument {index + 1} of {where} is {text!r}"
        kind, _, number = str(text).partition(" ")
        is_tensor, declared = _is_tensor(text), declared_type(kernel, index)
        if declared and (declared.endswith("*") != is_tensor or (not is_tensor and declared not in (kind, ""))):
            raise Fault(Reason.BAD_CASE, f"{subject}, but the source declares {declared!r}")
        value = buffers[tokens_of(text)[0]] if is_tensor else _parse_number(subject, kind, number, tokens)
        try:
            kernel.set_arg(index, value)
        except cl.Error as error:
            raise Fault(Reason.BAD_CASE, f"{subject}, which OpenCL rejects: {error}") from None


def _parse_number(subject: str, kind: str, text: Any, tokens: Mapping[str, str]) -> Any:
    """Return the number in a text with tokens as the OpenCL type ``kind``; raise Fault BAD_CASE if it is no number."""
    value = expand(str(text), tokens)
    try:
        return NUMBERS[kind](float(value) if kind in ("float", "double") else int(value))
    except (ValueError, OverflowError):
        raise Fault(Reason.BAD_CASE, f"{subject}, which is {value!r} here, expected of type {kind}") from None
