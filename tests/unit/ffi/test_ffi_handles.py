"""What C made is destroyed once; what is not is a leak with a name and a place."""

from __future__ import annotations

import ctypes
import gc
from pathlib import Path
from typing import Any

import pytest

from optest.clib.ffi.calls import BadCall, bind
from optest.clib.ffi.handles import Handle, HandleError, Ledger
from optest.clib.ffi.headers import read_headers
from optest.clib.ffi.libraries import open_library
from optest.clib.ffi.statuses import StatusCodes, StatusError


class Fake:
    """A library that hands out numbers and remembers which it got back."""

    def __init__(self) -> None:
        self.ended: list[int] = []
        self.next = 0x1000
        self.refuses = False

    def create(self, out: Any) -> None:
        out._obj.value = self.next
        self.next += 16

    def destroy(self, pointer: int) -> None:
        if self.refuses:
            raise StatusError("destroy", 3, "BAD_PARAM")
        self.ended.append(pointer)


def made(ledger: Ledger, fake: Fake, what: str = "descriptor") -> Handle:
    return ledger.make(what, fake.create, fake.destroy)


def test_a_handle_is_made_used_and_destroyed_once() -> None:
    ledger, fake = Ledger(), Fake()
    with made(ledger, fake) as handle:
        assert handle.address == 0x1000
        assert handle.is_alive
    assert fake.ended == [0x1000]
    assert ledger.leaks() == ()
    assert (ledger.created["descriptor"], ledger.destroyed["descriptor"]) == (1, 1)


def test_a_second_destruction_and_a_late_use_are_refused() -> None:
    ledger, fake = Ledger(), Fake()
    handle = made(ledger, fake)
    handle.destroy()
    with pytest.raises(HandleError, match="descriptor was destroyed already, but is destroyed again"):
        handle.destroy()
    with pytest.raises(HandleError, match="descriptor was destroyed already, but is used"):
        _ = handle.address
    assert handle.stale_address == 0x1000
    assert fake.ended == [0x1000]
    assert repr(handle) == "<descriptor at 0x1000, destroyed>"


def test_leaving_the_block_after_destroying_is_no_second_destruction() -> None:
    ledger, fake = Ledger(), Fake()
    with made(ledger, fake) as handle:
        handle.destroy()
    assert fake.ended == [0x1000]


def test_what_is_alive_is_a_leak_with_its_place() -> None:
    ledger, fake = Ledger(), Fake()
    handle = made(ledger, fake, "gemm descriptor")
    (leak,) = ledger.leaks()
    assert leak.made_at.startswith(__file__)
    assert str(leak) == f"gemm descriptor made at {leak.made_at} was not destroyed (alive)"
    assert handle.is_alive


def test_what_is_forgotten_is_destroyed_and_stays_a_leak() -> None:
    ledger, fake = Ledger(), Fake()
    made(ledger, fake)
    gc.collect()
    assert fake.ended == [0x1000]
    assert [leak.why for leak in ledger.leaks()] == ["forgotten"]
    assert ledger.destroyed["descriptor"] == 0


def test_a_ledger_destroys_the_youngest_first() -> None:
    fake = Fake()
    with Ledger() as ledger:
        handles = [made(ledger, fake, what) for what in ("handle", "descriptor", "done")]
        handles[2].destroy()
    assert fake.ended == [0x1020, 0x1010, 0x1000]
    assert [(leak.what, leak.why) for leak in ledger.leaks()] == [
        ("descriptor", "alive at the end"),
        ("handle", "alive at the end"),
    ]
    assert not handles[0].is_alive


def test_a_refused_destruction_leaves_a_leak() -> None:
    ledger, fake = Ledger(), Fake()
    handle = made(ledger, fake)
    fake.refuses = True
    with pytest.raises(StatusError):
        handle.destroy()
    assert handle.is_alive
    (leak,) = ledger.close()
    assert leak.why == "alive at the end; destroy returned 3 (BAD_PARAM)"


def test_a_creation_that_fails_leaves_nothing() -> None:
    ledger, fake = Ledger(), Fake()

    def fail(out: Any) -> None:
        raise StatusError("create", 4, "NULL_POINTER")

    with pytest.raises(StatusError):
        ledger.make("x", fail, fake.destroy)
    with pytest.raises(HandleError, match="x was created without an error, but its pointer is NULL"):
        ledger.make("x", lambda out: None, fake.destroy)
    assert ledger.leaks() == ()
    assert not ledger.created


HEADER = """
typedef enum { OK, BAD = 3 } status_t;
typedef struct Handle *handle_t;
typedef struct Descriptor *descriptor_t;
status_t createHandle(handle_t *out);
status_t destroyHandle(handle_t handle);
status_t createDescriptor(handle_t handle, descriptor_t *out, int size);
status_t destroyDescriptor(descriptor_t descriptor);
int alive(void);
"""
SOURCE = """
#include <stdlib.h>
#include "ops.h"
static int count;
struct Handle { int x; };
struct Descriptor { int size; };
status_t createHandle(handle_t *out) { *out = malloc(sizeof **out); count++; return OK; }
status_t destroyHandle(handle_t handle) { free(handle); count--; return OK; }
status_t createDescriptor(handle_t handle, descriptor_t *out, int size) {
  if (size < 0) return BAD;
  *out = malloc(sizeof **out); (*out)->size = size; count++; return OK;
}
status_t destroyDescriptor(descriptor_t descriptor) { free(descriptor); count--; return OK; }
int alive(void) { return count; }
"""


@pytest.mark.cxx
def test_with_a_real_library(build_library, tmp_path: Path) -> None:
    (tmp_path / "ops.h").write_text(HEADER)
    library = open_library(build_library(SOURCE, name="libops.so", folder=tmp_path))
    header = read_headers([tmp_path / "ops.h"])
    codes = StatusCodes.of(header.enum("status_t"))
    f = {name: bind(library, prototype, codes=codes) for name, prototype in header.prototypes.items()}
    with Ledger() as ledger:
        handle = ledger.make("handle", f["createHandle"].succeed, f["destroyHandle"].succeed, tag="Handle")
        descriptor = ledger.make(
            "descriptor",
            lambda out: f["createDescriptor"].succeed(handle, out, 4),
            f["destroyDescriptor"].succeed,
            tag="Descriptor",
        )
        assert f["alive"]() == 2
        with pytest.raises(StatusError, match=r"createDescriptor returned 3 \(BAD\)"):
            ledger.make("bad", lambda out: f["createDescriptor"].succeed(handle, out, -1), f["destroyDescriptor"])
        with pytest.raises(BadCall, match=r"argument 1 \(handle\) is a handle of Descriptor, but should be handle_t"):
            f["destroyHandle"](descriptor)
        descriptor.destroy()
        assert f["alive"]() == 1
        with pytest.raises(HandleError, match="descriptor was destroyed already, but is used"):
            f["destroyDescriptor"](descriptor)
        out = ctypes.c_void_p()
        with pytest.raises(BadCall, match=r"argument 3 \(size\) is 'x'"):
            f["createDescriptor"](handle, ctypes.byref(out), "x")
    assert f["alive"]() == 0
    assert [leak.what for leak in ledger.leaks()] == ["handle"]
