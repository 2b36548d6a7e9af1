"""Declaration of ONNX Runtime's option; imports no part of ONNX."""

from __future__ import annotations

from optest.guests import Guest, Option

GUEST = Guest(
    options=(
        Option(
            name="provider",
            group="Backend",
            repro=True,
            metavar="NAME",
            commands=("run", "list", "check", "replay"),
            in_trends=True,
            help="Execution provider of onnxruntime: CPU, CUDA …, if installed. [CPU]",
        ),
    ),
    backend="onnxruntime",
)
