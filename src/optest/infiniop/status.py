"""Status numbers with a name, with the function that returned them, and with a memory of whether anybody looked."""

from __future__ import annotations

from typing import Any

from optest.clib.ffi.statuses import StatusCodes, StatusError

__all__ = ["DEFAULT_CODES", "Status", "check_error"]

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
