"""One OpenCL device: kernels of source files, and memory with a guard zone behind it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyopencl as cl

from optest.backends import Fault, Reason
from optest.process.state import ProcessState

NUMBERS: dict[str, Any] = {
    "int": np.int32,
    "uint": np.uint32,
    "long": np.int64,
    "ulong": np.uint64,
    "float": np.float32,
    "double": np.float64,
}
"""The scalar types of OpenCL C, by their names there."""
_GUARD_BYTES = 1 << 16


class OpenClDevice:
    """A device, or the first one of a context, with a queue that works in order."""

    def __init__(self, device: Any, context: Any = None) -> None:
        flags = cl.command_queue_properties.PROFILING_ENABLE
        self.queue = cl.CommandQueue(context or cl.Context([device]), properties=flags)
        self.device = device
        self._programs: dict[tuple[str, str], Any] = {}

    def built(self, text: str, options: str = "", what: str = "") -> Any:
        """The program, built once for the same text and options.

        Raises:
            Fault: COMPILE with the compiler's words.
        """
        key = (text, options)
        if key not in self._programs:
            try:
                self._programs[key] = cl.Program(self.queue.context, text).build(options=options)
            except cl.RuntimeError as error:
                raise Fault(Reason.COMPILE, f"OpenCL could not build {what}: {str(error)[:4000]}") from None
        return self._programs[key]

    def kernel(self, path: Path, name: str, options: Sequence[str] = ()) -> Any:
        """A new object of a kernel in a file.

        Raises:
            Fault: BAD_CASE without the file or the kernel, COMPILE with the compiler's words.
        """
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise Fault(Reason.BAD_CASE, f"the source cannot be read: {error}") from None
        folder = () if " " in str(path.parent) else (f"-I {path.parent}",)  # PoCL takes no quotes
        program = self.built(text, " ".join(("-cl-kernel-arg-info", *folder, *options)), path.name)
        try:
            return cl.Kernel(program, name)
        except cl.Error:
            known = program.kernel_names
            raise Fault(Reason.BAD_CASE, f"{path.name} has no kernel {name!r}; it has {known}") from None

    def buffer(self, array: Any, behind: int) -> Any:
        """The dense bytes of an array on the device, and a guard zone of bytes ``behind`` them."""
        guard = np.full(_GUARD_BYTES, behind, np.uint8)
        held = np.concatenate([np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8), guard])
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        return cl.Buffer(self.queue.context, flags, hostbuf=held)

    def received(self, name: str, buffer: Any, behind: int) -> Any:
        """The bytes of a tensor as the kernels left them.

        Raises:
            Fault: OUT_OF_BOUNDS if one wrote into the guard zone behind them.
        """
        held = np.empty(buffer.size, np.uint8)
        cl.enqueue_copy(self.queue, held, buffer)
        if not (held[-_GUARD_BYTES:] == behind).all():
            raise Fault(Reason.OUT_OF_BOUNDS, f"the kernel wrote behind the end of {name}")
        return held[:-_GUARD_BYTES]

    def enqueue(self, kernel: Any, sizes: Sequence[int], local: Sequence[int]) -> Any:
        """The event of a call, None without work-items; ``sizes`` grow to multiples of ``local``, as OpenCL 1 wants
        it, and the kernel looks where it is."""
        if local:
            sizes = [-(-size // each) * each for size, each in zip(sizes, local, strict=True)]
        return None if 0 in sizes else cl.enqueue_nd_range_kernel(self.queue, kernel, sizes, local or None)

    def copy(self, to: Any, from_: Any, nbytes: int) -> Any:
        return cl.enqueue_copy(self.queue, to, from_, byte_count=nbytes)

    def now_s(self) -> float:
        """Seconds of the device's own clock, when all that was enqueued has ended."""
        event = cl.enqueue_marker(self.queue)
        event.wait()
        return float(event.profile.end) * 1e-9


def devices_of(*, cpu: bool) -> list[Any]:
    """The devices of all platforms that are CPUs, or those that are none."""
    try:
        with calls_of_opencl():
            found = [each for platform in cl.get_platforms() for each in platform.get_devices()]
    except Fault:  # without a platform
        return []
    return [each for each in found if bool(each.type & cl.device_type.CPU) is cpu]


@contextmanager
def calls_of_opencl() -> Iterator[None]:
    """What OpenCL says of calls as a Fault. Handlers of signals, which compilers install when they are first used, do
    not stay."""
    handlers = ProcessState(("actions",))
    try:
        yield
    except cl.MemoryError as error:
        raise Fault(Reason.OUT_OF_MEMORY, f"OpenCL: {error}") from None
    except cl.Error as error:
        raise Fault(Reason.RAISED, f"OpenCL: {error}") from error
    finally:
        handlers.changes()


def declared_type(kernel: Any, place: int) -> str:
    """The type that the source has for an argument, "" where it is none of :data:`NUMBERS` and no pointer."""
    try:
        declared = str(kernel.get_arg_info(place, cl.kernel_arg_info.TYPE_NAME))
    except cl.Error:  # the compiler kept none
        return ""
    return declared if declared.endswith("*") or declared in NUMBERS else ""
