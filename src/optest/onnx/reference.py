"""Backend of ONNX's reference evaluator, the definition of its operators in NumPy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx
from onnx.reference import ReferenceEvaluator

from optest.onnx.driver import OnnxBackend
from optest.onnx.models import Model
from optest.spec import Fault, Reason


class OnnxReferenceBackend(OnnxBackend):
    """Backend that evaluates models node by node without compiling."""

    name = "onnx-reference"

    def load(self, content: bytes, variant: str) -> Any:  # noqa: ARG002 - it has no variants
        try:
            return ReferenceEvaluator(onnx.load_from_string(content))
        except NotImplementedError as error:
            raise Fault(Reason.UNSUPPORTED, f"onnx.reference: {error}") from error

    def call(self, program: Any, model: Model, feeds: Mapping[str, Any]) -> Sequence[Any]:
        return list(program.run(list(model.outputs), dict(feeds)))

    def expectations(self) -> str | None:
        return str(Path(__file__).with_name("reference_expectations.yaml"))
