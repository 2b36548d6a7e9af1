"""Catalogue of the built-in operators, collected from the modules of the family folders next to this file."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path

from optest.spec import OperatorDescriptor

_PACKAGE = __name__.rpartition(".")[0]
_FOLDER = Path(__file__).parent


def _families() -> Iterator[tuple[str, tuple[OperatorDescriptor, ...]]]:
    """Yield each family's name and the ``DESCRIPTORS`` of its modules, in alphabetical order."""
    for folder in pkgutil.iter_modules([str(_FOLDER)]):
        # onnx holds ONNX's names for operators of the other folders.
        if folder.ispkg and folder.name != "onnx":
            descriptors: list[OperatorDescriptor] = []
            for module in pkgutil.iter_modules([str(_FOLDER / folder.name)]):
                # `*_reference` modules need NumPy; a hook loads them, so that listing operators stays fast.
                if not module.name.endswith("_reference"):
                    path = f"{_PACKAGE}.{folder.name}.{module.name}"
                    descriptors += getattr(pkgutil.resolve_name(path), "DESCRIPTORS", ())
            yield folder.name, tuple(descriptors)


FAMILIES: Mapping[str, tuple[OperatorDescriptor, ...]] = dict(_families())
BUILTINS: tuple[OperatorDescriptor, ...] = tuple(chain.from_iterable(FAMILIES.values()))
DESCRIPTORS = tuple(descriptor for descriptor in BUILTINS if not descriptor.parts)
# Layers are composed of operators. A backend implements them itself, or through its implementations of the parts.
LAYERS = tuple(descriptor for descriptor in BUILTINS if descriptor.parts)
