"""The two shared objects seen as one: opened when first used, with the signatures of their own headers."""

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
    """A function that the library does not export; whoever does not call it is not concerned."""


class InfiniLib:
    """``lib.infiniopAdd(...)``: a name is looked for in the operators' library, then in the runtime's.

    What Create functions made is in :attr:`ledger` until it is destroyed; statuses of failure stay in :attr:`unseen`
    until somebody looks at them.
    """

    def __init__(self, librt: Any, libop: Any, *, headers: Sequence[str | Path] = (), where: str = "") -> None:
        """``librt`` and ``libop`` are ``ctypes.CDLL``; without ``headers`` the registrations are the signatures."""
        self.librt = librt
        self.libop = libop
        self.where = where or "this library"
        self.ledger = Ledger()
        self.unseen: list[Status] = []
        self._headers = tuple(map(str, headers))
        self._library = Library(paths=(str(libop._name), str(librt._name)), objects=(libop, librt))

    def __getattr__(self, name: str) -> LibraryFunction:
        """The function called ``name``.

        Raises:
            MissingSymbol: which is an ``AttributeError``, with the nearest name that is there.
        """
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            symbol = self._library.symbol(name)
        except Unavailable as error:
            raise MissingSymbol(error.what, error.remedy) from None
        function = LibraryFunction(self, name, symbol)
        vars(self)[name] = function  # from now on found without asking here
        return function

    def exports(self, name: str) -> bool:
        return self._library.has(name)

    @cached_property
    def header(self) -> Header | None:
        """What the library's headers declare, None without headers; read at the first call.

        Raises:
            Unavailable: without pycparser or a C compiler's preprocessor.
        """
        if not self._headers:
            return None
        from optest.clib.library.session import header_of

        return header_of(self._headers)

    @cached_property
    def _usual_header(self) -> Header:
        from optest.clib.library.session import header_of

        return header_of([str(mapping_path("infiniop", "").with_suffix(".h"))])

    @cached_property
    def codes(self) -> StatusCodes:
        header = self.header
        if header is None or "infiniStatus_t" not in header.typedefs:
            return DEFAULT_CODES
        return StatusCodes.of(header.enum("infiniStatus_t"))

    def prototype(self, name: str, *, is_registered: bool) -> Prototype | None:
        """What the header says of a function, None where it does not declare it. A library without headers has what
        libinfiniop declares, as far as nothing is registered.

        Raises:
            HeaderError: for a declaration that cannot be read or called.
        """
        header = self.header
        if header is None and not is_registered:
            header = self._usual_header
        if header is None or (name not in header.prototypes and name not in header.refused):
            return None
        return header.prototype(name)

    def take_unseen(self) -> list[Status]:
        """The statuses of failure that nobody looked at, once."""
        unseen = [status for status in self.unseen if not status.seen]
        self.unseen.clear()
        return unseen

    def __repr__(self) -> str:
        return f"<InfiniLib of {self.where}>"


def open_lib(root: str | Path | None = None, *, headers: str | Path | Sequence[str | Path] | None = None) -> InfiniLib:
    """Load ``libinfiniop`` and ``libinfinirt``, which :data:`LIBINFINIOP` stands for from now on.

    ``root`` is ``INFINI_ROOT`` or ``~/.infini`` unless stated. The objects lie in its ``lib`` (Windows: ``bin``, where
    their names have no ``lib`` in front), the headers, if there are any, in its ``include``.

    Raises:
        Unavailable: naming the library and where it was looked for.
    """
    library = open_library(("infiniop", "infinirt"), root=root)
    folder = Path(root).expanduser() if root is not None else infini_root()
    libop, librt = library.objects
    opened = InfiniLib(librt, libop, headers=_headers(folder, headers), where=str(folder))
    _default.append(opened)
    return opened


def _headers(folder: Path, given: str | Path | Sequence[str | Path] | None) -> Sequence[str | Path]:
    if given is not None:
        return [given] if isinstance(given, (str, Path)) else given
    include = folder / "include"
    return [include] if any(include.rglob("*.h")) else []


_default: list[InfiniLib] = []


class _Default:
    """Stands for the library that was opened last, and opens the default one if none was."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(_default[-1] if _default else open_lib(), name)

    def __repr__(self) -> str:
        return repr(_default[-1]) if _default else "<LIBINFINIOP, not opened yet>"


LIBINFINIOP: Any = _Default()
"""The library; nothing is loaded before something of it is asked for."""


def create_handle() -> Any:
    """An ``infiniopHandle_t`` for the selected device.

    Raises:
        StatusError: if the library refuses.
        Unavailable: without a library.
    """
    handle = infiniopHandle_t()
    check_error(LIBINFINIOP.infiniopCreateHandle(ctypes.byref(handle)))
    return handle


def destroy_handle(handle: Any) -> None:
    """End a handle.

    Raises:
        HandleError: if it was destroyed already; C was not called.
        StatusError: if the library refuses.
    """
    check_error(LIBINFINIOP.infiniopDestroyHandle(handle))
