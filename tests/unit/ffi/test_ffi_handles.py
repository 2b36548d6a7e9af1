"""Objects that C created are destroyed once, by their function; undestroyed ones are leaks with name and location."""

from __future__ import annotations

import gc

import pytest
from texts import refusal

from optest.clib.ffi.calls import StatusError
from optest.clib.ffi.handles import Handle, HandleError, Leak, Ledger


class Fake:
    """A library that returns addresses and records those that are destroyed."""

    def __init__(self) -> None:
        self.destroyed: list[int] = []
        self.next = 0x1000
        self.refuses = False

    def create(self, ledger: Ledger, what: str = "descriptor") -> Handle:
        self.next += 16
        return ledger.adopt(what, self.next, self.destroy, destroyer=f"destroy {what}", made_at=f"{what}.py:3")

    def destroy(self, pointer: int) -> None:
        if self.refuses:
            raise StatusError("destroy", 3, "BAD_PARAM")
        self.destroyed.append(pointer)


def test_handle_is_destroyed_once_by_its_function() -> None:
    ledger, fake = Ledger(), Fake()
    handle = fake.create(ledger)
    with refusal(HandleError, "ffi.descriptor_is_given_to"):
        ledger.end(handle.address, "other")
    ledger.end(handle.address, "destroy descriptor")
    with refusal(HandleError, "ffi.the_pointer_that_destroy"):
        ledger.end(handle.address, "destroy descriptor")
    del handle
    gc.collect()
    assert fake.destroyed == [], "the caller destroys it"
    ledger.end(0x99, "destroy descriptor")


def test_reused_address_is_alive() -> None:
    ledger, fake = Ledger(), Fake()
    address = fake.create(ledger).address
    ledger.release()
    ledger.adopt("descriptor", address, fake.destroy, destroyer="destroy descriptor")
    ledger.end(address, "destroy descriptor")


def test_forgotten_handle_is_destroyed() -> None:
    ledger, fake = Ledger(), Fake()
    address = fake.create(ledger).address
    gc.collect()
    assert fake.destroyed == [], "the ledger keeps it"
    owned = ledger.handed_over(address)
    assert ledger.kept() == frozenset()
    del owned
    gc.collect()
    assert fake.destroyed == [address]


def test_release_reports_leaks_and_destroys_youngest_first() -> None:
    ledger, fake = Ledger(), Fake()
    fake.create(ledger, "older")
    before = ledger.kept()
    first, second = fake.create(ledger, "handle").address, fake.create(ledger, "descriptor").address
    assert ledger.release(before) == [
        Leak(what="handle", made_at="handle.py:3"),
        Leak(what="descriptor", made_at="descriptor.py:3"),
    ]
    assert fake.destroyed == [second, first]
    assert ledger.kept() == before


def test_refused_destruction_is_not_retried() -> None:
    ledger, fake = Ledger(), Fake()
    handle = fake.create(ledger)
    fake.refuses = True
    with pytest.raises(StatusError):
        ledger.release()
    fake.refuses = False
    del handle
    gc.collect()
    assert fake.destroyed == []
