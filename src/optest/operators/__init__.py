"""The operators that can be asked for by name. Built-in descriptors are loaded at the first look-up."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from optest.registry import Registry, load_object
from optest.spec import OperatorDescriptor

__all__ = ["OperatorRegistry", "operators", "override", "register"]


class OperatorRegistry:
    """Operator descriptors by name and alias.

    ``families`` are descriptors that are made when they are asked for: a dotted path to ``(name, registry) ->
    descriptor`` for all names that begin so, of which no list exists.
    """

    def __init__(self, builtins: str | None = None, families: Mapping[str, str] | None = None) -> None:
        self._registry: Registry[OperatorDescriptor] = Registry("operator")
        self._builtins = builtins
        self._families = families or {}

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
        """Return the operator called ``name`` or an alias of it; a name such as ``torch.add`` is torch's own.

        Raises:
            UnknownName: with the nearest known name.
        """
        self._load_builtins()
        if name not in self._registry:
            for prefix, path in self._families.items():
                if name.startswith(prefix):
                    made: OperatorDescriptor = load_object(path)(name, self)
                    return made
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


operators = OperatorRegistry(
    builtins="optest.operators.catalogue:DESCRIPTORS",
    families={"torch.": "optest.backends.torch_calls.descriptors:descriptor_of"},
)
register = operators.register
override = operators.override
