"""The operators that can be asked for by name. Built-in descriptors are loaded at the first look-up."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from optest.registry import Registry, load_object
from optest.spec import OperatorDescriptor

__all__ = ["OperatorRegistry", "operators", "override", "register"]


class OperatorRegistry:
    """Operator descriptors by name and alias."""

    def __init__(self, builtins: str | None = None) -> None:
        self._registry: Registry[OperatorDescriptor] = Registry("operator")
        self._builtins = builtins

    def register(self, descriptor: OperatorDescriptor, *, replace: bool = False) -> OperatorDescriptor:
        """Add an operator and return it.

        Raises:
            UsageError: if its name or an alias is taken and ``replace`` is False.
        """
        self._load_builtins()
        self._registry.register(descriptor.name, descriptor, aliases=descriptor.aliases, replace=replace)
        return descriptor

    def override(self, name: str, **changes: Any) -> OperatorDescriptor:
        """Replace fields of a registered operator, for example ``override("relu", dtype_variants=(("int8",),))``.

        Raises:
            UnknownName: if there is no such operator.
        """
        return self.register(dataclasses.replace(self.get(name), **changes), replace=True)

    def get(self, name: str) -> OperatorDescriptor:
        """Return the operator called ``name`` or an alias of it.

        Raises:
            UnknownName: with the nearest known name.
        """
        self._load_builtins()
        return self._registry.get(name)

    def names(self) -> tuple[str, ...]:
        self._load_builtins()
        return self._registry.names()

    def __contains__(self, name: str) -> bool:
        self._load_builtins()
        return name in self._registry

    def __iter__(self) -> Iterator[OperatorDescriptor]:
        return (self.get(name) for name in self.names())

    def _load_builtins(self) -> None:
        if self._builtins is None:
            return
        path, self._builtins = self._builtins, None
        for descriptor in load_object(path):
            self.register(descriptor)


operators = OperatorRegistry(builtins="optest.operators.catalogue:DESCRIPTORS")
register = operators.register
override = operators.override
