"""``optest model``, declared. Nothing of a framework is imported here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from optest.guests import Argument, Command, Guest, Option
from optest.models.run_guest import COMMANDS, SOURCE

__all__ = ["GUEST"]

_MODEL = Argument(name="what", metavar="MODEL")
_GROUP = "Compare whole models with float64, and find the node that differs."
_of_the_model = partial(Option, group="The model")
_OPTIONS = (
    _of_the_model(name="backend", metavar="NAME", default="onnxruntime", help="Backend that runs it. [onnxruntime]"),
    _of_the_model(name="variant", metavar="NAME", help="How the backend computes: all, basic, f32. [its default]"),
    _of_the_model(
        name="optimized",
        metavar="FILE.onnx",
        completes="file",
        help="What another optimiser has made of the model: this is run, and compared with the model.",
    ),
    *SOURCE,
)


def _command(
    name: str,
    short: str,
    text: str,
    *own: Option,
    options: Sequence[Option] = _OPTIONS,
    argument: Argument = _MODEL,
) -> Command:
    return Command(
        name=f"model {name}",
        function=f"optest.models.{name if name in ('bisect', 'suite') else 'commands'}:{name}_command",
        group=_GROUP,
        after="check",
        short=short,
        text=text,
        arguments=(argument,),
        options=(*options, *own),
        table="model",
    )


GUEST = Guest(
    hooks="optest.models.notes:ModelRunHooks",
    commands=(
        _command(
            "validate",
            "Compare a model's outputs.",
            """Compare what a backend answers with what the model computes in float64.

            \b
            optest model validate model.onnx --backend onnxruntime --variant all
            """,
        ),
        _command(
            "trace",
            "Compare the values inside a model, and name the first that differs.",
            """Compare the values inside a model, node by node, as the backend has optimised it.

            \b
            optest model trace model.onnx --backend onnxruntime --mode isolated

            Isolated, each node gets what the nodes before it should have made; accumulated, what they did make.
            """,
            Option(
                name="mode",
                type="choice",
                choices=("isolated", "accumulated"),
                default="isolated",
                help="What each node gets. [isolated]",
            ),
            Option(
                name="stop",
                flags=("--stop-on-first-mismatch",),
                type="bool",
                default=False,
                help="Compute nothing behind the first value that differs.",
            ),
        ),
        _command(
            "bisect",
            "Name the optimizer's pass and the node that change a model's answers.",
            """Name the level of optimization at which a model differs, the passes that make it so, and the nodes, and
            write a plan that runs the first of these alone.

            \b
            optest model bisect model.onnx --backend onnxruntime
            optest model bisect model.onnx --exact      any bit that optimization changes
            """,
            Option(name="exact", type="bool", default=False, help="Compare bits with the first level, not accuracy."),
            Option(name="out", metavar="DIR", default="bisected", completes="folder", help="For the plan. [bisected]"),
        ),
        _command(
            "suite",
            "Run the models and workloads that a file lists.",
            """Run the models and workloads that a file lists, or one of optest's own suites: vision, text.

            \b
            optest model suite vision
            optest model suite suite.yaml --backend openvino     options go before what the file states
            """,
            options=[replace(each, default=None) for each in _OPTIONS],
            argument=Argument(name="what", metavar="SUITE"),
        ),
        *COMMANDS,
    ),
)
