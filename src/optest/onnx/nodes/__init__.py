"""Table of the ONNX node for each operator. An operator whose alias is an ONNX operator needs no entry."""

from __future__ import annotations

import onnx

from optest.onnx.nodes import arithmetic, movements  # noqa: F401 - they add to NODES
from optest.onnx.nodes.node import NODES, NodeOf, node_with_attributes
from optest.operators.onnx import SPELLINGS
from optest.spec import OperatorDescriptor

__all__ = ["NODES", "node_of"]


def node_of(descriptor: OperatorDescriptor) -> NodeOf | None:
    """Return the function that builds the node of a call of the operator; None if ONNX has no such operator."""
    if descriptor.name in NODES:
        return NODES[descriptor.name]
    alias = next((name for name in descriptor.alias_tensors if name not in SPELLINGS and onnx.defs.has(name)), None)
    return None if alias is None else node_with_attributes(alias)
