"""libinfiniop and libinfinirt as one library, opened at first use: its functions with the headers' signatures, checked
calls, statuses, and the handles that functions create or destroy.
"""

from __future__ import annotations

import ctypes
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from optest.clib.ffi.arguments import POINTER
from optest.clib.ffi.calls import Function, StatusCodes, StatusError
from optest.clib.ffi.handles import HandleError, Ledger
from optest.clib.ffi.libraries import Library, open_library
from optest.clib.ffi.signatures import CKind, Header, Prototype
from optest.clib.library.mapping_file import mapping_path
from optest.errors import Unavailable, UsageError
from optest.infiniop.op_register import CORE_FUNCTIONS, Declared, Drift, OpRegister, drift_of
from optest.infiniop.scope import current_scope, watched
from optest.infiniop.structs import infiniopHandle_t
from optest.settings import infini_root

# Codes of infinicore.h, for a library without that header; it does not use 9.
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


class Status(int):
    """Integer that a C function returned; ``seen`` becomes True once it is compared, converted to bool or checked."""

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

    def __hash__(self) -> int:  # a class with __eq__ has no hash otherwise
        return hash(int(self))

    def __repr__(self) -> str:
        return f"{int(self)} ({self.name or 'not in the header'})"


def check_error(status: Any) -> None:
    """Raise StatusError, with function (if known), number and name, unless the status is success."""
    if isinstance(status, Status):
        status.seen = True
        if int(status):
            raise status.error()
        return
    DEFAULT_CODES.require("the library", int(status))


class UncheckedSignature(UserWarning):
    """Warning: a hand-written signature is used that could not be compared with a header."""


class LibraryFunction:
    """``LIBINFINIOP.infiniopAdd``: checks arguments; returns a :class:`Status`, or C's result if that is no status.

    The header's prototype is the signature, and a registration has to agree with it; without a prototype the
    registration is used unchecked.
    """

    def __init__(self, library: InfiniLib, name: str, symbol: Any) -> None:
        self._library = library
        self._symbol = symbol
        self._call: Callable[..., Any] | None = None
        self.name = name
        self._declared: Declared | None = None
        self._prototype: Prototype | None = None
        self._returns_status = False
        self._passed_checks = False
        self._creates = "Create" in name and library.exports(name.replace("Create", "Destroy"))
        self._destroys = "Destroy" in name

    @property
    def argtypes(self) -> Sequence[Any] | None:
        return getattr(self._header_prototype() or self._registration(), "argtypes", None)

    @argtypes.setter
    def argtypes(self, argtypes: Sequence[Any]) -> None:
        self._declare(argtypes=argtypes)

    @property
    def restype(self) -> Any:
        return getattr(self._header_prototype() or self._registration(), "restype", None)

    @restype.setter
    def restype(self, restype: Any) -> None:
        self._declare(restype=restype)

    def _declare(self, **part: Any) -> None:
        """Set `argtypes` or `restype` of the registration; raise Drift if that contradicts the header."""
        declared = replace(self._declared or Declared(), **part)
        _require_no_drift(declared, self._library.prototype(self.name, is_registered=True))
        self._declared, self._call = declared, None

    def _header_prototype(self) -> Prototype | None:
        return self._library.prototype(self.name, is_registered=self._registration() is not None)

    def _registration(self) -> Declared | None:
        return self._declared or OpRegister.declared(self.name)

    def __call__(self, *arguments: Any) -> Any:
        """Call C and return its result; raise BadCall, Drift, HandleError or UsageError if a check before fails."""
        # Enumerators are not checked: whether the library refuses a wrong dtype is a test of its own.
        scope = current_scope()
        if self._passed_checks and scope.is_timed:  # Timed calls skip the checks, whose time would be measured, too.
            return self._status(self._symbol(*arguments))
        if self._call is None:
            self._call = self._bind()
        scope.calls += self.name not in CORE_FUNCTIONS
        if self._destroys and len(arguments) == 1:
            self._library.ledger.end(_address_of(arguments[0]) or 0, self.name)
        with watched(self._prototype, arguments):
            returned = self._call(*arguments)
        self._passed_checks = not (self._creates or self._destroys)  # creation and destruction are always recorded
        status = self._status(returned)
        if self._creates and int(returned) in self._library.codes.success:
            self._adopt_created(arguments)
        return status

    def _status(self, returned: Any) -> Any:
        """Return C's result, as a Status if the function returns one; record a failure as unseen."""
        if not self._returns_status:
            return returned
        codes, code = self._library.codes, int(returned)
        status = Status(code, self.name, codes.name(code))
        if code not in codes.success:
            self._library.unseen.append(status)
        return status

    def _bind(self) -> Callable[..., Any]:
        """Return the callable for the header's prototype or else the registration; raise UsageError without both."""
        prototype, declared = self._header_prototype(), self._registration()
        _require_no_drift(declared, prototype)
        self._prototype = prototype
        if prototype is not None:
            self._returns_status = prototype.result.kind in (CKind.INT, CKind.ENUM)
            return Function(prototype, self._symbol)
        if declared is None or declared.argtypes is None:
            raise UsageError(
                f"{self.name} has no signature, neither in a header of {self._library.where} nor by registration; "
                f"write @OpRegister.operator over a function that sets lib.{self.name}.argtypes"
            )
        text = f"no header of {self._library.where} declares {self.name}; its registration is used unchecked"
        warnings.warn(text, UncheckedSignature, stacklevel=4)  # the line of the script
        self._symbol.argtypes, self._symbol.restype = tuple(declared.argtypes), declared.restype
        self._returns_status = declared.restype is ctypes.c_int
        count = len(declared.argtypes)

        # ctypes accepts further arguments without a type, and truncates them to 32 bits.
        def call(*arguments: Any) -> Any:
            if len(arguments) != count:
                raise UsageError(f"{self.name} got {len(arguments)} arguments, expected {count}")
            return self._symbol(*arguments)

        return call

    def _adopt_created(self, arguments: Sequence[Any]) -> None:
        """Add the handle that a Create function stored in its first slot to the ledger."""
        for argument in arguments:
            slot = getattr(argument, "_obj", None)
            if isinstance(slot, (POINTER, ctypes.c_void_p)):
                pointer = ctypes.cast(slot, ctypes.c_void_p).value
                if not pointer:
                    raise HandleError(f"{self.name} returned success, but created a NULL pointer")
                destroy = getattr(self._library, self.name.replace("Create", "Destroy"))
                # The caller is the nearest frame outside this package.
                frame = sys._getframe(1)
                while frame.f_back is not None and Path(frame.f_code.co_filename).parent == _HERE:
                    frame = frame.f_back
                # "Gemm descriptor" for infiniopCreateGemmDescriptor.
                label = self.name.removeprefix("infiniop").removeprefix("infinirt").replace("Create", "", 1)
                for word, text in (("Descriptor", " descriptor"), ("Tensor d", "tensor d"), ("Handle", "handle")):
                    label = label.replace(word, text)
                made_at = f"{frame.f_code.co_filename}:{frame.f_lineno}"
                self._library.ledger.adopt(label, pointer, destroy.at_address, destroyer=destroy.name, made_at=made_at)
                return

    def at_address(self, pointer: int) -> None:
        """Destroy the object at an address; raise StatusError if the library refuses."""
        if self._call is None:
            self._call = self._bind()
        pointer_type = (self.argtypes or [ctypes.c_void_p])[0]
        self._library.codes.require(self.name, int(self._call(ctypes.cast(pointer, pointer_type))))

    def __repr__(self) -> str:
        return f"<{self._header_prototype() or self.name}>"


def _require_no_drift(declared: Declared | None, prototype: Prototype | None) -> None:
    differences = drift_of(declared, prototype) if declared is not None and prototype is not None else ()
    if differences:
        raise Drift(differences)


def _address_of(argument: Any) -> int | None:
    if isinstance(argument, int):
        return argument
    if isinstance(argument, (POINTER, ctypes.c_void_p)):
        return ctypes.cast(argument, ctypes.c_void_p).value
    return None


_HERE = Path(__file__).parent


class MissingSymbol(Unavailable, AttributeError):
    """A function that the library does not export; raised only when it is looked up."""


class InfiniLib:
    """Both libraries: ``lib.infiniopAdd(...)`` looks a name up in the operators' library, then in the runtime's.

    :attr:`ledger` holds created objects until they are destroyed, :attr:`unseen` failure statuses not checked yet.
    """

    def __init__(self, librt: Any, libop: Any, *, headers: Sequence[str | Path] = (), where: str = "") -> None:
        """Store two ``ctypes.CDLL``; without ``headers`` the registrations are the signatures."""
        self.librt = librt
        self.libop = libop
        self.where = where or "this library"
        self.ledger = Ledger()
        self.unseen: list[Status] = []
        self._headers = tuple(map(str, headers))
        self._library = Library(paths=(str(libop._name), str(librt._name)), objects=(libop, librt))

    def __getattr__(self, name: str) -> LibraryFunction:
        """Return the function ``name``; raise MissingSymbol, an ``AttributeError``, with the nearest exported name."""
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            symbol = self._library.symbol(name)
        except Unavailable as error:
            raise MissingSymbol(error.what, error.remedy) from None
        function = LibraryFunction(self, name, symbol)
        vars(self)[name] = function  # later look-ups do not call __getattr__
        return function

    def exports(self, name: str) -> bool:
        return self._library.has(name)

    @cached_property
    def header(self) -> Header | None:
        """Declarations of the headers, None without any; Unavailable without pycparser or a C compiler."""
        if not self._headers:
            return None
        from optest.clib.library.session import header_of

        return header_of(self._headers)

    @cached_property
    def codes(self) -> StatusCodes:
        header = self.header
        if header is None or "infiniStatus_t" not in header.typedefs:
            return DEFAULT_CODES
        return StatusCodes.of(header.enum("infiniStatus_t"))

    def prototype(self, name: str, *, is_registered: bool) -> Prototype | None:
        """Return a function's prototype, None if undeclared; raise HeaderError if it cannot be called."""
        header = self.header
        if header is None and not is_registered:
            header = _bundled_header()
        if header is None or (name not in header.prototypes and name not in header.refused):
            return None
        return header.prototype(name)

    def take_unseen(self) -> list[Status]:
        """Return the failure statuses that were not checked, and clear the list."""
        unseen = [status for status in self.unseen if not status.seen]
        self.unseen.clear()
        return unseen

    def __repr__(self) -> str:
        return f"<InfiniLib of {self.where}>"


@cache
def _bundled_header() -> Header:
    """Return the bundled declarations of libinfiniop, which are used only if nothing else has a signature."""
    from optest.clib.library.session import header_of

    return header_of([str(mapping_path("infiniop", "").with_suffix(".h"))])


def open_lib(root: str | Path | None = None, *, headers: str | Path | Sequence[str | Path] | None = None) -> InfiniLib:
    """Load ``libinfiniop`` and ``libinfinirt`` for :data:`LIBINFINIOP`; raise Unavailable if one is missing.

    ``root`` defaults to ``INFINI_ROOT`` or ``~/.infini``. Its ``lib`` holds the libraries (Windows: ``bin``, without
    the prefix ``lib``), its ``include`` the headers, if there are any.
    """
    library = open_library(("infiniop", "infinirt"), root=root)
    folder = Path(root).expanduser() if root is not None else infini_root()
    if headers is None:
        include = folder / "include"
        headers = [include] if any(include.rglob("*.h")) else []
    elif isinstance(headers, (str, Path)):
        headers = [headers]
    libop, librt = library.objects
    opened = InfiniLib(librt, libop, headers=headers, where=str(folder))
    _default.append(opened)
    return opened


_default: list[InfiniLib] = []


class _Default:
    """Proxy for the library that was opened last; opens the default library at first use."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(_default[-1] if _default else open_lib(), name)

    def __repr__(self) -> str:
        return repr(_default[-1]) if _default else "<LIBINFINIOP, not opened yet>"


# The library; it is loaded when an attribute is first used.
LIBINFINIOP: Any = _Default()


def create_handle() -> Any:
    """Return a new ``infiniopHandle_t`` for the selected device; raise StatusError if the library refuses."""
    handle = infiniopHandle_t()
    check_error(LIBINFINIOP.infiniopCreateHandle(ctypes.byref(handle)))
    return handle


def destroy_handle(handle: Any) -> None:
    """Destroy a handle; raise HandleError if it was destroyed before, StatusError if the library refuses."""
    check_error(LIBINFINIOP.infiniopDestroyHandle(handle))
