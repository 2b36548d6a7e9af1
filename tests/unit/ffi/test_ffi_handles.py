"""What C made is destroyed once, by its own function; what is left at the end is a leak with a name and a place."""

from __future__ import annotations

import gc

import pytest
from texts import refusal

from optest.clib.ffi.calls import StatusError
from optest.clib.ffi.handles import Handle, HandleError, Leak, Ledger


class Fake:
    """A library that hands out numbers and remembers which it got back."""

    def __init__(self) -> None:
        self.ended: list[int] = []
        self.next = 0x1000
        self.refuses = False

    def made(self, ledger: Ledger, what: str = "descriptor") -> Handle:
        self.next += 16
        return ledger.adopt(what, self.next, self.destroy, destroyer=f"destroy {what}", made_at=f"{what}.py:3")

    def destroy(self, pointer: int) -> None:
        if self.refuses:
            raise StatusError("destroy", 3, "BAD_PARAM")
        self.ended.append(pointer)


def test_a_handle_is_ended_once_by_its_own_function() -> None:
    ledger, fake = Ledger(), Fake()
    handle = fake.made(ledger)
    with refusal(HandleError, "ffi.descriptor_is_given_to"):
        ledger.end(handle.address, "other")
    ledger.end(handle.address, "destroy descriptor")
    with refusal(HandleError, "ffi.the_pointer_that_destroy"):
        ledger.end(handle.address, "destroy descriptor")
    del handle
    gc.collect()
    assert fake.ended == [], "whose function it is was about to"
    ledger.end(0x99, "destroy descriptor")


def test_an_address_that_c_gives_again_is_alive_again() -> None:
    ledger, fake = Ledger(), Fake()
    address = fake.made(ledger).address
    ledger.release()
    ledger.adopt("descriptor", address, fake.destroy, destroyer="destroy descriptor")
    ledger.end(address, "destroy descriptor")


def test_what_its_owner_forgets_is_destroyed() -> None:
    ledger, fake = Ledger(), Fake()
    address = fake.made(ledger).address
    gc.collect()
    assert fake.ended == [], "the ledger keeps it"
    owned = ledger.handed_over(address)
    assert ledger.kept() == frozenset()
    del owned
    gc.collect()
    assert fake.ended == [address]


def test_what_is_released_is_a_leak_and_the_youngest_goes_first() -> None:
    ledger, fake = Ledger(), Fake()
    fake.made(ledger, "older")
    before = ledger.kept()
    first, second = fake.made(ledger, "handle").address, fake.made(ledger, "descriptor").address
    assert ledger.release(before) == [
        Leak(what="handle", made_at="handle.py:3"),
        Leak(what="descriptor", made_at="descriptor.py:3"),
    ]
    assert fake.ended == [second, first]
    assert ledger.kept() == before


def test_a_refused_destruction_is_not_tried_again() -> None:
    ledger, fake = Ledger(), Fake()
    handle = fake.made(ledger)
    fake.refuses = True
    with pytest.raises(StatusError):
        ledger.release()
    fake.refuses = False
    del handle
    gc.collect()
    assert fake.ended == []
