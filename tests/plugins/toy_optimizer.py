"""Three backends on ONNX Runtime, for models: ``toy_optimizer`` with a pass that breaks them, and ``unfaithful``, which
runs something else than what it says that it has made of a model, and ``refusing``, which refuses what its pass makes.

``toy_optimizer`` writes a line into ``nodes.log`` for each group of nodes that it is called for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx

from optest.backends import backend_manager
from optest.onnx.runtime import OnnxRuntimeBackend


def _with_other_axis(content: bytes) -> bytes:
    """The last Softmax over the first axis."""
    model = onnx.load_from_string(content)
    node = [each for each in model.graph.node if each.op_type == "Softmax"][-1]
    node.attribute[0].i = 0
    return bytes(model.SerializeToString())


class ToyOptimizer(OnnxRuntimeBackend):
    name = "toy_optimizer"
    variants = ("disabled", "some", "all")

    def passes(self, content: bytes, variant: str) -> Sequence[str]:
        level, *left_out = variant.split("-")
        return [each for each in ("Harmless", "Breaks") if level == "all" and each not in left_out]

    def optimized(self, content: bytes, variant: str) -> tuple[bytes, str]:
        return (_with_other_axis(content) if "Breaks" in self.passes(content, variant) else content), "disabled"

    def load(self, content: bytes, variant: str, *_: Any, **more: Any) -> Any:
        return super().load(self.optimized(content, variant)[0], "disabled", **more)

    def call(self, program: Any, model: Any, feeds: Mapping[str, Any]) -> Sequence[Any]:
        with Path("nodes.log").open("a") as log:
            log.write(" ".join(model.outputs) + "\n")
        return super().call(program, model, feeds)


class Unfaithful(OnnxRuntimeBackend):
    name = "unfaithful"

    def load(self, content: bytes, variant: str, *_: Any, **more: Any) -> Any:
        is_whole = len(onnx.load_from_string(content).graph.node) > 1
        return super().load(_with_other_axis(content) if is_whole else content, "disabled", **more)

    def optimized(self, content: bytes, variant: str) -> tuple[bytes, str]:
        return content, "disabled"


class Refusing(ToyOptimizer):
    name = "refusing"

    def load(self, content: bytes, variant: str, *_: Any, **more: Any) -> Any:
        if "Breaks" in self.passes(content, variant):
            raise RuntimeError("node input 'mid' is of no node")
        return OnnxRuntimeBackend.load(self, content, "disabled", **more)

    def optimized(self, content: bytes, variant: str) -> tuple[bytes, str]:
        self.load(content, variant)
        return content, "disabled"


def register() -> None:
    for each in (ToyOptimizer(), Unfaithful(), Refusing()):
        backend_manager.register(each, replace=True)


register()
