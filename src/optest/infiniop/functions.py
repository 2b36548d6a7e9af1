"""One function of the library: where its signature comes from, the call, its status, and what it made or ended."""

from __future__ import annotations

import ctypes
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from optest.clib.ffi.arguments import POINTER
from optest.clib.ffi.calls import Function, StatusCodes, StatusError
from optest.clib.ffi.handles import HandleError
from optest.clib.ffi.signatures import CKind, Prototype
from optest.errors import UsageError
from optest.infiniop.op_register import CORE_FUNCTIONS, Declared, Drift, OpRegister, drift_of
from optest.infiniop.scope import current_scope, watched

if TYPE_CHECKING:
    from optest.infiniop.liboperators import InfiniLib

DEFAULT_CODES = StatusCodes(
    names={
        0: "INFINI_STATUS_SUCCESS",
        1: "INFINI_STATUS_INTERNAL_ERROR",
        2: "INFINI_STATUS_NOT_IMPLEMENTED",
        3: "INFINI_STATUS_BAD_PARAM",
        4: "INFINI_STATUS_NULL_POINTER",
        5: "INFINI_STATUS_DEVICE_TYPE_NOT_SUPPORTED",
        6: "INFINI_STATUS_DEVICE_NOT_FOUND",
        7: "INFINI_STATUS_DEVICE_NOT_INITIALIZED",
        8: "INFINI_STATUS_DEVICE_ARCHITECTURE_NOT_SUPPORTED",
        10: "INFINI_STATUS_BAD_TENSOR_DTYPE",
        11: "INFINI_STATUS_BAD_TENSOR_SHAPE",
        12: "INFINI_STATUS_BAD_TENSOR_STRIDES",
        13: "INFINI_STATUS_INSUFFICIENT_WORKSPACE",
    }
)
"""The codes of infinicore.h, for a library that comes without it; 9 is not used there."""


class Status(int):
    """What a C function returned, as the integer that it is.

    ``seen`` becomes True when it is compared, asked for its truth or given to :func:`check_error`.
    """

    function: str
    name: str
    seen: bool

    def __new__(cls, code: int, function: str, name: str) -> Status:
        status = super().__new__(cls, code)
        status.function, status.name, status.seen = function, name, False
        return status

    def error(self) -> StatusError:
        return StatusError(self.function, int(self), self.name)

    def __eq__(self, other: object) -> bool:
        self.seen = True
        return int(self) == other

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __bool__(self) -> bool:
        self.seen = True
        return int(self) != 0

    def __hash__(self) -> int:
        return hash(int(self))

    def __repr__(self) -> str:
        return f"{int(self)} ({self.name or 'a status that the header does not name'})"


def check_error(status: Any) -> None:
    """Require success.

    Raises:
        StatusError: with the function, where it is known, the number and its name.
    """
    if isinstance(status, Status):
        status.seen = True
        if int(status):
            raise status.error()
        return
    DEFAULT_CODES.require("the library", int(status))


class UncheckedSignature(UserWarning):
    """A hand-written signature is used that no header could be held against."""


class LibraryFunction:
    """``LIBINFINIOP.infiniopAdd``: checks its arguments, returns a :class:`Status` (or what else the C function does).

    The header's prototype counts; a registration has to agree with it. Without a prototype the registration is the
    signature. Enumerators are not checked: whether the library refuses a wrong dtype is a test of its own.
    """

    def __init__(self, library: InfiniLib, name: str, symbol: Any) -> None:
        self._library = library
        self._symbol = symbol
        self._call: Callable[..., Any] | None = None
        self.name = name
        self._declared: Declared | None = None
        self._prototype: Prototype | None = None
        self._returns_status = False
        self._was_right = False
        self._makes = "Create" in name and library.exports(name.replace("Create", "Destroy"))
        self._ends = "Destroy" in name

    @property
    def argtypes(self) -> Sequence[Any] | None:
        return getattr(self._signature(), "argtypes", None)

    @argtypes.setter
    def argtypes(self, argtypes: Sequence[Any]) -> None:
        self._declare(argtypes=argtypes)

    @property
    def restype(self) -> Any:
        return getattr(self._signature(), "restype", None)

    @restype.setter
    def restype(self, restype: Any) -> None:
        self._declare(restype=restype)

    def _declare(self, **part: Any) -> None:
        """Take part of a signature that is set on the function itself.

        Raises:
            Drift: where it is not the header's.
        """
        declared = replace(self._declared or Declared(), **part)
        _require_no_drift(declared, self._library.prototype(self.name, is_registered=True))
        self._declared, self._call = declared, None

    def _signature(self) -> Prototype | Declared | None:
        return self._prototype_of_c() or self._registered()

    def _prototype_of_c(self) -> Prototype | None:
        return self._library.prototype(self.name, is_registered=self._registered() is not None)

    def _registered(self) -> Declared | None:
        return self._declared or OpRegister.declared(self.name)

    def __call__(self, *arguments: Any) -> Any:
        """Check the arguments, call, return what C returned.

        Raises:
            BadCall: naming the argument that does not fit; C was not called.
            Drift: where a registration is not what the header says.
            HandleError: for a descriptor that was destroyed already; C was not called.
            UsageError: if neither a header nor a registration says what the arguments are.
        """
        scope = current_scope()
        if self._was_right and scope.is_timed:
            return self._status(self._symbol(*arguments))
        if self._call is None:
            self._call = self._bound()
        scope.calls += self.name not in CORE_FUNCTIONS
        if self._ends and len(arguments) == 1:
            self._library.ledger.end(_address(arguments[0]) or 0, self.name)
        with watched(self._prototype, arguments):
            returned = self._call(*arguments)
        self._was_right = not (self._makes or self._ends)
        status = self._status(returned)
        if self._makes and int(returned) in self._library.codes.success:
            self._made(arguments)
        return status

    def _status(self, returned: Any) -> Any:
        """What the C function returned, as a status if it is one."""
        if not self._returns_status:
            return returned
        codes, code = self._library.codes, int(returned)
        status = Status(code, self.name, codes.name(code))
        if code not in codes.success:
            self._library.unseen.append(status)
        return status

    def _bound(self) -> Callable[..., Any]:
        prototype, declared = self._prototype_of_c(), self._registered()
        _require_no_drift(declared, prototype)
        self._prototype = prototype
        if prototype is not None:
            self._returns_status = prototype.result.kind in (CKind.INT, CKind.ENUM)
            return Function(prototype, self._symbol)
        if declared is None or declared.argtypes is None:
            raise UsageError(
                f"{self.name} has no signature: no header of {self._library.where} declares it and nothing is "
                f"registered; write @OpRegister.operator over a function that sets lib.{self.name}.argtypes"
            )
        text = f"no header of {self._library.where} declares {self.name}: its registration is used unchecked"
        warnings.warn(text, UncheckedSignature, stacklevel=4)
        self._symbol.argtypes, self._symbol.restype = tuple(declared.argtypes), declared.restype
        self._returns_status = declared.restype is ctypes.c_int
        count = len(declared.argtypes)

        # ctypes lets further arguments through untyped, and cuts them to 32 bits.
        def call(*arguments: Any) -> Any:
            if len(arguments) != count:
                raise UsageError(f"{self.name} was given {len(arguments)} arguments, expected given {count}")
            return self._symbol(*arguments)

        return call

    def _made(self, arguments: Sequence[Any]) -> None:
        """Remember what a Create function put into its first slot, until its Destroy function is called."""
        for argument in arguments:
            slot = getattr(argument, "_obj", None)
            if isinstance(slot, (POINTER, ctypes.c_void_p)):
                pointer = ctypes.cast(slot, ctypes.c_void_p).value
                if not pointer:
                    raise HandleError(f"{self.name} returned success, but its pointer is NULL")
                destroy = getattr(self._library, self.name.replace("Create", "Destroy"))
                # Name the nearest frame outside this package.
                frame = sys._getframe(1)
                while frame.f_back is not None and Path(frame.f_code.co_filename).parent == _HERE:
                    frame = frame.f_back
                # "Gemm descriptor" for infiniopCreateGemmDescriptor.
                what = self.name.removeprefix("infiniop").removeprefix("infinirt").replace("Create", "", 1)
                for word, spelled in (("Descriptor", " descriptor"), ("Tensor d", "tensor d"), ("Handle", "handle")):
                    what = what.replace(word, spelled)
                made_at = f"{frame.f_code.co_filename}:{frame.f_lineno}"
                self._library.ledger.adopt(what, pointer, destroy.at_address, destroyer=destroy.name, made_at=made_at)
                return

    def at_address(self, pointer: int) -> None:
        """End what lies at an address, and require that the library does.

        Raises:
            StatusError: if the library refuses.
        """
        if self._call is None:
            self._call = self._bound()
        argtypes = self.argtypes
        typed = argtypes[0] if argtypes else ctypes.c_void_p
        self._library.codes.require(self.name, int(self._call(ctypes.cast(pointer, typed))))

    def __repr__(self) -> str:
        prototype = self._prototype_of_c()
        return f"<{prototype or self.name}>"


def _require_no_drift(declared: Declared | None, prototype: Prototype | None) -> None:
    differences = drift_of(declared, prototype) if declared is not None and prototype is not None else ()
    if differences:
        raise Drift(differences)


def _address(argument: Any) -> int | None:
    if isinstance(argument, int):
        return argument
    if isinstance(argument, (POINTER, ctypes.c_void_p)):
        return ctypes.cast(argument, ctypes.c_void_p).value
    return None


_HERE = Path(__file__).parent
