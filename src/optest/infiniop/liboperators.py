"""libinfiniop and libinfinirt as one library, opened at first use, with the signatures of its headers."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from optest.clib.ffi.calls import StatusCodes
from optest.clib.ffi.handles import Ledger
from optest.clib.ffi.libraries import Library, open_library
from optest.clib.ffi.signatures import Header, Prototype
from optest.clib.library.mapping_file import mapping_path
from optest.errors import Unavailable
from optest.infiniop.functions import DEFAULT_CODES, LibraryFunction, Status, check_error
from optest.infiniop.structs import infiniopHandle_t
from optest.settings import infini_root


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
    def _bundled_header(self) -> Header:
        from optest.clib.library.session import header_of

        return header_of([str(mapping_path("infiniop", "").with_suffix(".h"))])

    @cached_property
    def codes(self) -> StatusCodes:
        header = self.header
        if header is None or "infiniStatus_t" not in header.typedefs:
            return DEFAULT_CODES
        return StatusCodes.of(header.enum("infiniStatus_t"))

    def prototype(self, name: str, *, is_registered: bool) -> Prototype | None:
        """Return a function's prototype, None if undeclared; raise HeaderError if it cannot be called."""
        header = self.header
        # The bundled declarations of libinfiniop are used only if nothing else has a signature.
        if header is None and not is_registered:
            header = self._bundled_header
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
