"""The stub that optest tests itself with: the references again, under a name that has to be asked for."""

from __future__ import annotations

from optest.backends.numpy_reference import NumpyBackend

__all__ = ["StubBackend"]


class StubBackend(NumpyBackend):
    """Proves the way from plan to report on any chip name; found by its name alone, never by kind or as a fallback."""

    name = "stub"
    kind = "stub"
    chips = ("*",)
