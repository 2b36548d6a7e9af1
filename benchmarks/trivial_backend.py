"""The cheapest backend there is: it adds its two inputs. A plug-in, so that workers find it by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from optest.backends import BackendDriver, backend_manager
from optest.spec import TestCase


class TrivialBackend(BackendDriver):
    name = "trivial"
    kind = "trivial"
    isolated = False

    def run(self, case: TestCase, inputs: Sequence[Any]) -> Sequence[Any]:  # noqa: ARG002
        return (inputs[0] + inputs[1],)


def register() -> None:
    backend_manager.register(TrivialBackend())
