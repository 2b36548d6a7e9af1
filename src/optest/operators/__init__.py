"""The operators that can be asked for by name. Built-in descriptors are loaded at the first look-up."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from optest.errors import UnknownName, nearest
from optest.registry import Registry, load_object
from optest.spec import OperatorDescriptor, Spelling

__all__ = ["OperatorRegistry", "operators", "override", "register"]


_OF_ONES_OWN = "one of your own is described in a plug-in: docs/how-to/custom-operator.md"


class OperatorRegistry:
    """Operator descriptors by name and alias.

    ``families`` are descriptors that are made when they are asked for: a dotted path to ``(name, registry) ->
    descriptor`` for all names that begin so, of which no list exists. ``spellings`` is the dotted path of the names
    that another library has for operators, with more than the name different; an operator registered under such a name
    takes its place.
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

        Of a spelling it is the operator that it most often stands for: conv2d of Conv.

        Raises:
            UnknownName: with the nearest known name.
        """
        self._load_builtins()
        if name in self._registry:
            return self._registry.get(name)
        for prefix, path in self._families.items():
            if name.startswith(prefix):
                made: OperatorDescriptor = load_object(path)(name, self)
                return made
        spelling = self.spelling(name)
        if spelling is None:
            aliases = (*self._registry.aliases(), *self._load_spellings())
            hint = "" if nearest(name, (*self.names(), *aliases), least=0.8) else _OF_ONES_OWN
            raise UnknownName("operator", name, self.names(), aliases=aliases, hint=hint)
        return self._registry.get(spelling.operators[0])

    def spelling(self, name: str) -> Spelling | None:
        """How calls are written under ``name``, where that is more than another name of an operator; else None."""
        self._load_builtins()
        return None if name in self._registry else self._load_spellings().get(name)

    def meanings(self, name: str) -> tuple[str, ...]:
        """The canonical names of all operators that ``name`` may stand for.

        Raises:
            UnknownName: with the nearest known name.
        """
        spelling = self.spelling(name)
        return (self.get(name).name,) if spelling is None else spelling.operators

    def other_names(self, descriptor: OperatorDescriptor) -> tuple[str, ...]:
        """Its aliases and the spellings that may stand for it."""
        spellings = (name for name, each in self._load_spellings().items() if descriptor.name in each.operators)
        return (*descriptor.aliases, *(name for name in spellings if self.spelling(name) is not None))

    def names(self) -> tuple[str, ...]:
        self._load_builtins()
        return self._registry.names()

    def __contains__(self, name: str) -> bool:
        self._load_builtins()
        return name in self._registry

    def __iter__(self) -> Iterator[OperatorDescriptor]:
        return (self.get(name) for name in self.names())

    def _load_spellings(self) -> Mapping[str, Spelling]:
        """They are loaded when a name is asked for that no operator has."""
        if self._spellings is None:
            assert self._spellings_path is not None
            self._spellings = load_object(self._spellings_path)
        return self._spellings

    def _load_builtins(self) -> None:
        if self._builtins is None:
            return
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
