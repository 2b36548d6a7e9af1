"""What ONNX brings to optest: an option of ONNX Runtime. Nothing of ONNX is imported here."""

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
            help="Execution provider of onnxruntime: CPU, CUDA … as the installed build has them. [CPU]",
        ),
    ),
    backend="onnxruntime",
)
