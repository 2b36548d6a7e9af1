"""Declaration of ``optest model``; imports no framework."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from optest.guests import Argument, Command, Guest, Option, RunHooks, Values

if TYPE_CHECKING:
    from optest.spec import CaseResult

_FILE = "FILE.safetensors"
_MODES = ("isolated", "accumulated")
_MODEL = Argument(name="what", metavar="MODEL")
_model = partial(Option, group="The model")
_file = partial(_model, metavar=_FILE, completes="file")
_number = partial(Option, type="float", default=0.0)
_flag = partial(Option, type="bool", default=False)
_sizes = partial(Option, type="ints", metavar="N [N…]")
_VARIANT = _model(
    name="variant", metavar="NAME", help="Variant of the backend: all, basic, f32, inductor … [its default]"
)
_CONFIG = "Configuration of a named model, as n_layer=4 or size=full; open sizes of a file, as batch=2. Repeatable."
_SOURCE = (
    _model(name="config", repeat=True, metavar="KEY=VALUE", help=_CONFIG),
    _model(name="preset", metavar="NAME", help="Distribution of drawn weights: small, large … [first; validate: all]"),
    _file(name="weights", flags=("--weights", "--checkpoint"), help="Weights of a named model. [drawn]"),
    _model(name="seed", type="int", default=0, help="Seed of drawn weights, inputs and tokens. [0]"),
)
_INPUTS = _file(
    name="inputs", flags=("--input",), metavar="FILE", help="Inputs: .safetensors, .npz, .npy or .pb. [drawn]"
)
_DUMP = "Write the program and, for each execution, inputs, outputs, inner values and their order there."
_DUMP_MODE = "Write all of it, or only the program (compile). [all]"
_PROFILE = "Show the time of each operator from the backend's profiler, and write profile.json for trace viewers."
_HOOKS = (
    Option(name="dump_dir", metavar="DIR", completes="folder", help=_DUMP),
    Option(name="dump_mode", type="choice", choices=("all", "compile"), default="all", help=_DUMP_MODE),
    _flag(name="profile", help=_PROFILE),
)
_backend = partial(_model, name="backend", metavar="NAME")
_JUDGED = (
    _backend(default="onnxruntime", help="Backend that runs it. [onnxruntime]"),
    _VARIANT,
    _file(name="optimized", metavar="FILE.onnx", help="Run this optimised model in place of the original."),
    *_SOURCE,
    _INPUTS,
)
_RUN = (_backend(help="Backend that runs it. [torch; of a file onnxruntime]"), _VARIANT, *_SOURCE, _INPUTS, *_HOOKS)


def _command(function: str, text: str, *options: Option, what: Argument = _MODEL, table: str = "") -> Command:
    """Return the command ``optest model NAME``; ``function`` is ``module:NAME``."""
    name = function.partition(":")[2]
    return Command(
        name=f"model {name}",
        function=f"optest.models.{function.replace('-', '_')}_command",
        group="Compare whole models, and find the node that differs.",
        after="check",
        text=text,
        arguments=(what,),
        options=options,
        table=table,
    )


_comparison = partial(_command, table="model")


class ModelRunHooks(RunHooks):
    """Closing notes of a trace: the first value that differs, and the number of differing values."""

    def closing_notes(self, settings: Values, results: Sequence[CaseResult]) -> Iterator[str]:  # noqa: ARG002
        from optest.spec import BAD_STATUSES, Status  # too slow for --help, which imports this module

        traced = [result for result in results if result.attributes.get("part") in _MODES]
        wrong = [result for result in traced if result.status in BAD_STATUSES]
        if wrong:
            origin = wrong[0].where.partition(": ")[2]
            yield f"first mismatch: {wrong[0].id} ({origin}); {len(wrong)} of {len(traced)} values fail"
        if traced and (all(result.status is Status.SKIPPED for result in traced) or len(traced) == len(wrong) == 1):
            yield "no value inside the model was compared"
        for result in results if traced and not wrong else ():
            if result.status in BAD_STATUSES and result.attributes.get("part") == "outputs":
                yield f"first mismatch: {result.id}; no inner value fails: each node is right by itself"


_COMMANDS = (
    _comparison(
        "commands:validate",
        """Compare a model's outputs with those in float64.

        \b
        optest model validate model.onnx --backend onnxruntime --variant all
        """,
        *_JUDGED,
        *_HOOKS,
    ),
    _comparison(
        "commands:trace",
        """Name the first value inside a model that differs.

        \b
        optest model trace model.onnx --backend onnxruntime --mode isolated
        optest model trace resnet34 --out values.safetensors      write the backend's values, compare nothing

        Nodes are those of the model as the backend has optimised it. Isolated, each node gets the expected values of
        the nodes before it; accumulated, their actual values.
        """,
        *_JUDGED,
        Option(name="mode", type="choice", choices=_MODES, default=_MODES[0], help="Inputs of each node. [isolated]"),
        _flag(name="stop", flags=("--stop-on-first-mismatch",), help="Stop after the first value that differs."),
        Option(name="out", metavar=_FILE, completes="file", help="Write the values of one run; compare nothing."),
        *_HOOKS,
    ),
    _comparison(
        "bisect:bisect",
        """Name the pass and the node that change a model's outputs.

        Prints the optimization level at which the outputs differ, the passes and the nodes to blame, and writes a plan
        that runs the first of these nodes.

        \b
        optest model bisect model.onnx --backend onnxruntime
        optest model bisect model.onnx --exact      report any bit that optimization changes
        """,
        *_JUDGED,
        _flag(name="exact", help="Compare bits with the first level, not errors against float64."),
        Option(
            name="out", metavar="DIR", default="bisected", completes="folder", help="Folder of the plan. [bisected]"
        ),
    ),
    _comparison(
        "suite:suite",
        """Run the models and workloads that a file lists.

        \b
        optest model suite vision
        optest model suite suite.yaml --backend openvino     options override the file

        The built-in suites are vision and text.
        """,
        *(replace(each, default=None) for each in (*_JUDGED, *_HOOKS)),
        what=Argument(name="what", metavar="SUITE"),
    ),
    _command(
        "running:run",
        """Run a model forward, or generate text; compare nothing.

        MODEL is an ONNX file, gpt2, llama, resnet34, mobilenet_v2, hf:CLASS, timm:NAME or FILE.py:FUNCTION.

        \b
        optest model run resnet34 --weights resnet34.safetensors --profile
        optest model run model.onnx --backend openvino --input inputs.safetensors
        optest model run gpt2 --prompt "Hi" --max-tokens 16 --temperature 0.8 --dump-dir dumps
        """,
        *_RUN,
        Option(
            name="prompt", metavar="TEXT|IDS", help="Continue this text, or ids as '464 2068', with a language model."
        ),
        Option(
            name="max_tokens", type="int", minimum=1, metavar="N", help="Number of new tokens. [128, or as many as fit]"
        ),
        _number(name="temperature", metavar="T", help="Sample tokens by --seed; 0 takes the likeliest. [0]"),
        Option(name="tokenizer", metavar="FILE.json", help="File of the package tokenizers. [bytes, or ids]"),
        _flag(name="kv_cache", help="Use the model's key-value cache."),
    ),
    _command(
        "dumps:diff",
        """Compare two dumps of values.

        \b
        optest model diff one.safetensors other.safetensors --atol 1e-6

        trace --out and run --dump-dir write dumps. Values must be equal, or |a - b| <= atol + rtol * |b|. Values that
        one dump lacks, different shapes or dtypes, and dumps without a common value are differences, too. Values of two
        exports are matched by statement, not by name.
        """,
        _flag(name="common", help="Ignore values that only one dump has."),
        _number(name="rtol", help="Relative tolerance. [0]"),
        _number(name="atol", help="Absolute tolerance. [0]"),
        what=Argument(name="dumps", metavar="FILE FILE", repeat=True),
    ),
    _command(
        "running:export-weights",
        """Write the weights of a named model, for --weights.

        \b
        optest model export-weights resnet34 --out resnet34.safetensors
        """,
        *_SOURCE,
        Option(name="out", metavar=_FILE, required=True, completes="file", help="File to write."),
    ),
    _command(
        "benchmarks:bench",
        """Time a model and its baseline, each size in a fresh process.

        Thread variables (OMP_NUM_THREADS and others) are set before anything is imported.

        \b
        optest model bench gpt2 --backend onnxruntime --threads 1 4 --bench-tokens 1 64
        optest model bench resnet34 --batch 1,8 --no-baseline
        """,
        *_RUN,
        _sizes(name="threads", help="Numbers of threads. [the backend's default]"),
        _sizes(name="bench_tokens", help="Tokens per call of a language model."),
        _sizes(name="batch", help="Batch sizes. [the model's default]"),
        Option(name="baseline", metavar="NAME[:VARIANT]", help="Baseline. [torch:eager, onnxruntime:disabled]"),
        _flag(name="no_baseline", help="Time only the backend."),
        _number(
            name="bench_time", default=1.0, metavar="SECONDS", help="Time for each measurement, after a warm-up. [1]"
        ),
        _number(name="timeout", default=600.0, metavar="SECONDS", help="Time limit of one process. [600]"),
    ),
)
GUEST = Guest(commands=_COMMANDS, hooks="optest.models.guest:ModelRunHooks")
