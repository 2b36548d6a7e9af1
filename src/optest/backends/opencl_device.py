"""An OpenCL device: kernels from source files, and buffers followed by a guard zone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyopencl as cl

from optest.backends import Fault, Reason
from optest.process.state import ProcessState

# The scalar types of OpenCL C, by their names there.
NUMBERS: dict[str, Any] = {
    "int": np.int32,
    "uint": np.uint32,
    "long": np.int64,
    "ulong": np.uint64,
    "float": np.float32,
    "double": np.float64,
}
_GUARD_BYTES = 1 << 16


class OpenClDevice:
    """A device, or the first one of a context, with an in-order queue."""

    def __init__(self, device: Any, context: Any = None) -> None:
        flags = cl.command_queue_properties.PROFILING_ENABLE
        self.queue = cl.CommandQueue(context or cl.Context([device]), properties=flags)
        self.device = device
        self._programs: dict[tuple[str, str], Any] = {}

    def program(self, text: str, options: str = "", what: str = "") -> Any:
        """Return the program of a source text, built once per text and options; raise Fault COMPILE if that fails."""
        key = (text, options)
        if key not in self._programs:
            try:
                self._programs[key] = cl.Program(self.queue.context, text).build(options=options)
            except cl.RuntimeError as error:
                raise Fault(Reason.COMPILE, f"OpenCL could not build {what}: {str(error)[:4000]}") from None
        return self._programs[key]

    def kernel(self, path: Path, name: str, options: Sequence[str] = ()) -> Any:
        """Return a new kernel object from a source file; its folder is searched for headers.

        Raises:
            Fault: BAD_CASE without the file or the kernel, COMPILE with the compiler's message.
        """
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise Fault(Reason.BAD_CASE, f"the source cannot be read: {error}") from None
        folder = () if " " in str(path.parent) else (f"-I {path.parent}",)  # PoCL takes no quotes
        program = self.program(text, " ".join(("-cl-kernel-arg-info", *folder, *options)), path.name)
        try:
            return cl.Kernel(program, name)
        except cl.Error:
            known = program.kernel_names
            raise Fault(Reason.BAD_CASE, f"{path.name} has no kernel {name!r}; it has {known}") from None

    def buffer(self, array: Any, behind: int) -> Any:
        """Return a buffer with the dense bytes of an array, and a guard zone filled with ``behind`` after them."""
        guard = np.full(_GUARD_BYTES, behind, np.uint8)
        held = np.concatenate([np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8), guard])
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        return cl.Buffer(self.queue.context, flags, hostbuf=held)

    def read_buffer(self, name: str, buffer: Any, behind: int) -> Any:
        """Return the bytes of a tensor in a buffer; raise Fault OUT_OF_BOUNDS if its guard zone has changed."""
        held = np.empty(buffer.size, np.uint8)
        cl.enqueue_copy(self.queue, held, buffer)
        if not (held[-_GUARD_BYTES:] == behind).all():
            raise Fault(Reason.OUT_OF_BOUNDS, f"the kernel wrote behind the end of {name}")
        return held[:-_GUARD_BYTES]

    def enqueue(self, kernel: Any, sizes: Sequence[int], local: Sequence[int]) -> Any:
        """Enqueue a kernel and return its event, None without work-items; ``sizes`` are rounded up to multiples of
        ``local``."""
        if local:
            # OpenCL 1 needs multiples; the kernel has to test its global id.
            sizes = [-(-size // group) * group for size, group in zip(sizes, local, strict=True)]
        return None if 0 in sizes else cl.enqueue_nd_range_kernel(self.queue, kernel, sizes, local or None)

    def copy(self, to: Any, from_: Any, nbytes: int) -> Any:
        return cl.enqueue_copy(self.queue, to, from_, byte_count=nbytes)

    def now_s(self) -> float:
        """Wait until the queue is empty; return the time of the device's clock, in seconds."""
        event = cl.enqueue_marker(self.queue)
        event.wait()
        return float(event.profile.end) * 1e-9


def devices_of(*, cpu: bool) -> list[Any]:
    """Return the CPU devices of all platforms, or all others; [] without a platform."""
    try:
        with calls_of_opencl():
            devices = [device for platform in cl.get_platforms() for device in platform.get_devices()]
    except Fault:
        return []
    return [device for device in devices if bool(device.type & cl.device_type.CPU) is cpu]


@contextmanager
def calls_of_opencl() -> Iterator[None]:
    """Turn OpenCL errors in the block into Faults, OUT_OF_MEMORY or RAISED; restore the signal handlers after it."""
    # Compilers install signal handlers on first use.
    handlers = ProcessState(("actions",))
    try:
        yield
    except cl.MemoryError as error:
        raise Fault(Reason.OUT_OF_MEMORY, f"OpenCL: {error}") from None
    except cl.Error as error:
        raise Fault(Reason.RAISED, f"OpenCL: {error}") from error
    finally:
        handlers.changes()


def declared_type(kernel: Any, index: int) -> str:
    """Return the type of an argument in the source if it is a pointer or in :data:`NUMBERS`, else ""."""
    try:
        declared = str(kernel.get_arg_info(index, cl.kernel_arg_info.TYPE_NAME))
    except cl.Error:  # the compiler kept no types
        return ""
    return declared if declared.endswith("*") or declared in NUMBERS else ""
