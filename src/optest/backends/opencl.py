"""OpenCL kernels as a backend: a source, the name of a kernel in it, and what its arguments are."""

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
_GUARD, _BEHIND_INPUTS = 0xA5, 0x5A
"""Different, or a kernel that copies what lies behind an input behind an output would write what stands there."""


class OpenClBackend(BackendDriver):
    """Runs the kernels of ``backend_config.opencl`` on the first OpenCL device, or the one that PYOPENCL_CTX names.

    Outputs lie in front of a guard zone and hold optest's poison when the kernel begins.
    """

    name = "opencl"
    kind = "opencl"
    reads_inputs = False
    runs_programs = True

    def configure(self, options: Mapping[str, Any]) -> None:  # noqa: ARG002 - it takes none
        """Open the device.

        Raises:
            Unavailable: without a device.
        """
        self._device  # noqa: B018 - opened by being read

    def problems(self, case: TestCase) -> Sequence[str]:
        return () if why_outside(case, self.name) else _read(case, self.name)[1]

    def unsupported(self, case: TestCase) -> str | None:
        return why_outside(case, self.name)

    def run_into(self, case: TestCase, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Call the kernel once.

        Raises:
            Fault: BAD_CASE for a wrong section, COMPILE with the compiler's words, OUT_OF_BOUNDS for a write behind an
                output, RAISED for what OpenCL says of the call.
        """
        section, problems = _read(case, self.name)
        if problems:
            raise Fault(Reason.BAD_CASE, "\n".join(problems))
        tokens = case_tokens(case)
        with calls_of_opencl():
            kernel = self._kernel(case, section)
            given = {
                argument.path: self._device.buffer(array, _BEHIND_INPUTS)
                for argument, array in zip(case.inputs, inputs, strict=True)
            }
            written = {f"output{place}": self._device.buffer(array, _GUARD) for place, array in enumerate(outputs)}
            sizes = [_number(f"global {each!r}", "int", each, tokens) for each in section["global"]]
            local = [_number(f"local {each!r}", "int", each, tokens) for each in section.get("local", ())]
            _set_arguments(kernel, section, tokens, {**given, **written})
            self._device.enqueue(kernel, sizes, local)
            self._device.queue.finish()
            for argument, array in zip(case.inputs, inputs, strict=True):
                held = self._device.received(argument.name, given[argument.path], _BEHIND_INPUTS)
                if held.tobytes() != np.ascontiguousarray(array).tobytes():
                    raise Fault(Reason.INPUT_MUTATED, f"the kernel wrote into input {argument.name}")
            for (name, buffer), output in zip(written.items(), outputs, strict=True):
                output[...] = self._device.received(name, buffer, _GUARD).view(output.dtype).reshape(output.shape)

    def device(self) -> str | None:
        return self._device.device.name.split("-", 1)[0].strip()  # type: ignore[no-any-return]

    def versions(self) -> Mapping[str, str]:
        device = self._device.device
        return {"pyopencl": cl.VERSION_TEXT, "opencl": device.version.strip(), "driver": device.driver_version}

    def doctor(self) -> Sequence[str]:
        return tuple(
            f"{each.platform.name.strip()}: {each.name.strip()}" for each in self._device.queue.context.devices
        )

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
        return self._device.kernel(
            path, section["kernel"], [expand(each, tokens) for each in section.get("options", ())]
        )


def _read(case: TestCase, section: str) -> tuple[Mapping[str, Any], list[str]]:
    """The section, and what is wrong with it."""
    reader = SectionReader(case, section, "source, kernel, arguments and global")
    stated = reader.section
    reader.unknown_keys(stated, _KEYS)
    for key, kind in (("source", str), ("kernel", str), ("arguments", list), ("global", list)):
        if not isinstance(stated.get(key), (list, tuple) if kind is list else kind):
            reader.say(key, f"is {stated.get(key)!r}, expected {'a list' if kind is list else 'text'}")
    known = case_tokens(case)
    tensors = [*(each.path for each in case.inputs), *(f"output{place}" for place in range(len(case.outputs)))]
    for key in ("arguments", "global", "local", "options") if not reader.problems else ():
        for text in map(str, stated.get(key, ())):
            for problem in problems_of(text, [*known, *(tensors if key == "arguments" else ())]):
                reader.say(key, problem)
            word = text.split()[0] if text.split() else ""
            if key == "arguments" and not _is_tensor(text) and word not in NUMBERS:
                reader.say(key, f"has {text!r}, expected a tensor, or a number: {', '.join(NUMBERS)}")
    return stated, reader.problems


def _is_tensor(text: str) -> bool:
    return any(token.startswith(("input", "output")) for token in tokens_of(text))


def _set_arguments(kernel: Any, section: Mapping[str, Any], tokens: Mapping[str, str], buffers: Any) -> None:
    """Give the kernel its arguments: a buffer each, or the number of ``int {numel0}``.

    Raises:
        Fault: BAD_CASE for another number of arguments than the kernel has, or one of another kind.
    """
    where, stated = f"kernel {section['kernel']} of {section['source']}", section["arguments"]
    if kernel.num_args != len(stated):
        raise Fault(Reason.BAD_CASE, f"{where} takes {kernel.num_args} arguments, but the section has {len(stated)}")
    for place, text in enumerate(stated):
        what = f"argument {place + 1} of {where} is {text!r}"
        kind, _, number = str(text).partition(" ")
        is_tensor, declared = _is_tensor(text), declared_type(kernel, place)
        if declared and (declared.endswith("*") != is_tensor or (not is_tensor and declared not in (kind, ""))):
            raise Fault(Reason.BAD_CASE, f"{what}, but the source has {declared!r} there")
        value = buffers[tokens_of(text)[0]] if is_tensor else _number(what, kind, number, tokens)
        try:
            kernel.set_arg(place, value)
        except cl.Error as error:
            raise Fault(Reason.BAD_CASE, f"{what}, which OpenCL does not take: {error}") from None


def _number(what: str, kind: str, text: Any, tokens: Mapping[str, str]) -> Any:
    """The number that a text with tokens is, in the type of OpenCL C that is called ``kind``."""
    value = expand(str(text), tokens)
    try:
        return NUMBERS[kind](float(value) if kind in ("float", "double") else int(value))
    except (ValueError, OverflowError):
        raise Fault(Reason.BAD_CASE, f"{what}, which is {value!r} here, expected of type {kind}") from None
