"""The built-in operators: what the operator modules in the folders beside this file describe.

A folder is a family. Each module in it that has ``DESCRIPTORS`` is found by itself; those called ``*_reference`` need
NumPy and are loaded when a hook of an operator is asked for, so that listing needs neither NumPy nor a framework.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path

from optest.spec import OperatorDescriptor

_PACKAGE = __name__.rpartition(".")[0]
_FOLDER = Path(__file__).parent
_ONNX = "onnx"
"""The folder of the names that ONNX has for operators, which is no family."""


def _families() -> Iterator[tuple[str, tuple[OperatorDescriptor, ...]]]:
    for folder in pkgutil.iter_modules([str(_FOLDER)]):
        if folder.ispkg and folder.name != _ONNX:
            descriptors: list[OperatorDescriptor] = []
            for module in pkgutil.iter_modules([str(_FOLDER / folder.name)]):
                if not module.name.endswith("_reference"):
                    path = f"{_PACKAGE}.{folder.name}.{module.name}"
                    descriptors += getattr(pkgutil.resolve_name(path), "DESCRIPTORS", ())
            yield folder.name, tuple(descriptors)


FAMILIES: Mapping[str, tuple[OperatorDescriptor, ...]] = dict(_families())
"""The operators of each family, families and modules in alphabetical order."""
BUILTINS: tuple[OperatorDescriptor, ...] = tuple(chain.from_iterable(FAMILIES.values()))
DESCRIPTORS = tuple(each for each in BUILTINS if not each.parts)
LAYERS = tuple(each for each in BUILTINS if each.parts)
"""What is made of operators, which a backend computes by them or has itself."""
