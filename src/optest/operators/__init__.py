"""Registry of operator descriptors by name. Built-in descriptors are loaded at the first look-up."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from optest.errors import UnknownName, nearest
from optest.registry import Registry, load_object
from optest.spec import OperatorDescriptor, Spelling

__all__ = ["OperatorRegistry", "operators", "override", "register"]


class OperatorRegistry:
    """Operator descriptors by name and alias.

    Args:
        builtins: import path of the built-in descriptors, loaded at the first look-up.
        families: import path of a factory ``(name, registry) -> descriptor`` by name prefix, for names that cannot be
            listed, such as ``torch.…``.
        spellings: import path of another library's names for operators that differ in more than the name. An operator
            registered under such a name overrides it.
    """

    def __init__(
        self, builtins: str | None = None, families: Mapping[str, str] | None = None, spellings: str | None = None
    ) -> None:
        self._registry: Registry[OperatorDescriptor] = Registry("operator")
        self._builtins = builtins
        self._families = families or {}
        self._spellings_path = spellings
        self._spellings: Mapping[str, Spelling] | None = None if spellings else {}

    def register(self, descriptor: OperatorDescriptor, *, replace: bool = False) -> OperatorDescriptor:
        """Register an operator under its name and aliases, and return it.

        Raises:
            UsageError: if its name or an alias is taken and ``replace`` is False.
        """
        self._load_builtins()
        self._registry.register(descriptor.name, descriptor, aliases=descriptor.aliases, replace=replace)
        return descriptor

    def override(self, name: str, **changes: Any) -> OperatorDescriptor:
        """Replace fields of a registered operator and return it: ``override("relu", dtype_variants=(("int8",),))``.

        Raises:
            UnknownName: if there is no such operator.
        """
        return self.register(dataclasses.replace(self.get(name), **changes), replace=True)

    def get(self, name: str) -> OperatorDescriptor:
        """Return the operator with this name or alias.

        A name with the prefix of a family, such as ``torch.add``, gets a descriptor built by that family's factory. A
        spelling returns its most common operator: conv2d for Conv.

        Raises:
            UnknownName: with the nearest known name.
        """
        self._load_builtins()
        if name in self._registry:
            return self._registry.get(name)
        for prefix, path in self._families.items():
            if name.startswith(prefix):
                descriptor: OperatorDescriptor = load_object(path)(name, self)
                return descriptor
        spelling = self.spelling(name)
        if spelling is None:
            aliases = (*self._registry.aliases(), *self._load_spellings())
            hint = "to add an operator, write a plug-in: docs/how-to/custom-operator.md"
            # A close match is more likely a typing error than a missing plug-in.
            is_typo = nearest(name, (*self.names(), *aliases), least=0.8)
            raise UnknownName("operator", name, self.names(), aliases=aliases, hint="" if is_typo else hint)
        return self._registry.get(spelling.operators[0])

    def spelling(self, name: str) -> Spelling | None:
        """Return the spelling called ``name``; None if there is none or an operator is registered under the name."""
        self._load_builtins()
        return None if name in self._registry else self._load_spellings().get(name)

    def meanings(self, name: str) -> tuple[str, ...]:
        """Return the canonical names of all operators that ``name`` may stand for: several for some spellings.

        Raises:
            UnknownName: with the nearest known name.
        """
        spelling = self.spelling(name)
        return (self.get(name).name,) if spelling is None else spelling.operators

    def other_names(self, descriptor: OperatorDescriptor) -> tuple[str, ...]:
        """Return the operator's aliases, then the spellings that may stand for it."""
        self._load_builtins()
        spellings = (
            name
            for name, spelling in self._load_spellings().items()
            if descriptor.name in spelling.operators and name not in self._registry
        )
        return (*descriptor.aliases, *spellings)

    def names(self) -> tuple[str, ...]:
        """Return the canonical names of all registered operators, without aliases, spellings and families."""
        self._load_builtins()
        return self._registry.names()

    def __contains__(self, name: str) -> bool:
        self._load_builtins()
        return name in self._registry

    def __iter__(self) -> Iterator[OperatorDescriptor]:
        return (self.get(name) for name in self.names())

    def _load_spellings(self) -> Mapping[str, Spelling]:
        # Only names that no operator has need them, so most runs never import the module.
        if self._spellings is None:
            assert self._spellings_path is not None
            self._spellings = load_object(self._spellings_path)
        return self._spellings

    def _load_builtins(self) -> None:
        if self._builtins is None:
            return
        # Cleared before the loop: `register` calls this method, too.
        path, self._builtins = self._builtins, None
        for descriptor in load_object(path):
            self.register(descriptor)


operators = OperatorRegistry(
    builtins="optest.operators.catalogue:BUILTINS",
    families={
        "torch.": "optest.torch.calls.descriptors:descriptor_of",
        "onnx.": "optest.onnx.node_tests:descriptor_of",
        "model.": "optest.models.driver:descriptor_of",
        "scene.": "optest.scenes.cases:descriptor_of",
        "function.": "optest.core.reference_functions:descriptor_of",
    },
    spellings="optest.operators.onnx:SPELLINGS",
)
register = operators.register
override = operators.override
