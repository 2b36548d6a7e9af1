"""``optest model``, declared. Nothing of a framework is imported here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from optest.guests import Argument, Command, Guest, Option, RunHooks, Values
from optest.spec import BAD_STATUSES, CaseResult, Status

_FILE = "FILE.safetensors"
_MODES = ("isolated", "accumulated")
_MODEL = Argument(name="what", metavar="MODEL")
_model = partial(Option, group="The model")
_file = partial(_model, metavar=_FILE, completes="file")
_number = partial(Option, type="float", default=0.0)
_flag = partial(Option, type="bool", default=False)
_sizes = partial(Option, type="ints", metavar="N [N…]")
_VARIANT = _model(name="variant", metavar="NAME", help="How it computes: all, basic, f32, inductor. [its default]")
_CONFIG = "Of a model by name, as n_layer=4 or size=full; of a file its open sizes, as batch=2. Repeatable."
_SOURCE = (
    _model(name="config", repeat=True, metavar="KEY=VALUE", help=_CONFIG),
    _model(name="preset", metavar="NAME", help="How weights are drawn: small, large … [validate: every way]"),
    _file(name="weights", flags=("--weights", "--checkpoint"), help="Weights of a model by name. [drawn]"),
    _model(name="seed", type="int", default=0, help="Seed of all that is drawn. [0]"),
)
_INPUTS = _file(name="inputs", flags=("--input",), metavar="FILE", help="As .safetensors, .npz, .npy, .pb. [drawn]")
_DUMP = "Keep the program there, and each execution: inputs, outputs, all values inside, with an index in order."
_DUMP_MODE = "Keep all that, or the program alone (compile). [all]"
_PROFILE = "Show the time of each operator by the backend's own profiler, and write profile.json for trace viewers."
_HOOKS = (
    Option(name="dump_dir", metavar="DIR", completes="folder", help=_DUMP),
    Option(name="dump_mode", type="choice", choices=("all", "compile"), default="all", help=_DUMP_MODE),
    _flag(name="profile", help=_PROFILE),
)
_backend = partial(_model, name="backend", metavar="NAME")
_JUDGED = (
    _backend(default="onnxruntime", help="Backend that runs it. [onnxruntime]"),
    _VARIANT,
    _file(name="optimized", metavar="FILE.onnx", help="What another optimiser made of the model: runs in its place."),
    *_SOURCE,
    _INPUTS,
)
_RUN = (_backend(help="Backend that runs it. [torch; of a file onnxruntime]"), _VARIANT, *_SOURCE, _INPUTS, *_HOOKS)


def _command(function: str, text: str, *options: Option, what: Argument = _MODEL, table: str = "") -> Command:
    """``function`` is a module and, by the name of the command, a function of it."""
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


_judges = partial(_command, table="model")


class ModelRunHooks(RunHooks):
    """Describes a trace as a whole: the first value that differs, and the number of those that do."""

    def closing_notes(self, settings: Values, results: Sequence[CaseResult]) -> Iterator[str]:  # noqa: ARG002
        traced = [each for each in results if each.attributes.get("part") in _MODES]
        wrong = [each for each in traced if each.status in BAD_STATUSES]
        if wrong:
            place = wrong[0].where.partition(": ")[2]
            yield f"first mismatch: {wrong[0].id} ({place}); {len(wrong)} of {len(traced)} values fail"
        if traced and (all(each.status is Status.SKIPPED for each in traced) or len(traced) == len(wrong) == 1):
            yield "no value inside was compared"
        for each in results if traced and not wrong else ():
            if each.status in BAD_STATUSES and each.attributes.get("part") == "outputs":
                yield f"first mismatch: {each.id}; no value inside fails: the nodes are right one by one, not together"


_COMMANDS = (
    _judges(
        "commands:validate",
        """Compare a model's outputs with what it computes in float64.

        \b
        optest model validate model.onnx --backend onnxruntime --variant all
        """,
        *_JUDGED,
        *_HOOKS,
    ),
    _judges(
        "commands:trace",
        """Name the first value inside a model that differs.

        \b
        optest model trace model.onnx --backend onnxruntime --mode isolated
        optest model trace resnet34 --out values.safetensors      write the backend's values, compare nothing

        Nodes are those of the model as the backend has optimised it. Isolated, each gets what the nodes before it
        should have made; accumulated, what they did make.
        """,
        *_JUDGED,
        Option(name="mode", type="choice", choices=_MODES, default=_MODES[0], help="What each node gets. [isolated]"),
        _flag(name="stop", flags=("--stop-on-first-mismatch",), help="Compute nothing behind the first that differs."),
        Option(name="out", metavar=_FILE, completes="file", help="Write the values of one run, and compare nothing."),
        *_HOOKS,
    ),
    _judges(
        "bisect:bisect",
        """Name the pass and the node that change a model's answers.

        That is the level of optimization at which it differs, the passes that make it so, and the nodes. A plan is
        written that runs the first of these alone.

        \b
        optest model bisect model.onnx --backend onnxruntime
        optest model bisect model.onnx --exact      any bit that optimization changes
        """,
        *_JUDGED,
        _flag(name="exact", help="Compare bits with the first level, not accuracy."),
        Option(name="out", metavar="DIR", default="bisected", completes="folder", help="For the plan. [bisected]"),
    ),
    _judges(
        "suite:suite",
        """Run the models and workloads that a file lists.

        \b
        optest model suite vision
        optest model suite suite.yaml --backend openvino     options go before what the file states

        Suites of optest's own are vision and text.
        """,
        *(replace(each, default=None) for each in (*_JUDGED, *_HOOKS)),
        what=Argument(name="what", metavar="SUITE"),
    ),
    _command(
        "running:run",
        """Run a model, and compare it with nothing.

        It runs forward, or writes text. MODEL is a file of ONNX, or gpt2, llama, resnet34, mobilenet_v2, hf:CLASS,
        timm:NAME, or FILE.py:FUNCTION.

        \b
        optest model run resnet34 --weights resnet34.safetensors --profile
        optest model run model.onnx --backend openvino --input inputs.safetensors
        optest model run gpt2 --prompt "Hi" --max-tokens 16 --temperature 0.8 --dump-dir dumps
        """,
        *_RUN,
        Option(name="prompt", metavar="TEXT|IDS", help="Let a language model write on: text, or ids as '464 2068'."),
        Option(name="max_tokens", type="int", minimum=1, metavar="N", help="How many tokens. [128, or what fits]"),
        _number(name="temperature", metavar="T", help="Draw them by --seed; 0 is the likeliest. [0]"),
        Option(name="tokenizer", metavar="FILE.json", help="Of the package tokenizers. [bytes, or the ids stated]"),
        _flag(name="kv_cache", help="Keep keys and values, where the model can."),
    ),
    _command(
        "dumps:diff",
        """Compare two dumps of values.

        \b
        optest model diff one.safetensors other.safetensors --atol 1e-6

        Dumps are what trace --out and run --dump-dir write. Values have to be equal, or
        |a - b| <= atol + rtol * |b|. Values that one of them lacks, other shapes or dtypes, and dumps without a common
        value are differences, too. Two exports are compared by statement, not by name.
        """,
        _flag(name="common", help="Compare the names that both have, and no others."),
        _number(name="rtol", help="Relative tolerance. [0]"),
        _number(name="atol", help="Absolute tolerance. [0]"),
        what=Argument(name="dumps", metavar="FILE FILE", repeat=True),
    ),
    _command(
        "running:export-weights",
        """Write the weights of a model by name, for --weights.

        \b
        optest model export-weights resnet34 --out resnet34.safetensors
        """,
        *_SOURCE,
        Option(name="out", metavar=_FILE, required=True, completes="file", help="Where to."),
    ),
    _command(
        "benchmarks:bench",
        """Time a model and its baseline, each size in a fresh process.

        The variables of threads (OMP_NUM_THREADS and others) are set before anything is imported.

        \b
        optest model bench gpt2 --backend onnxruntime --threads 1 4 --bench-tokens 1 64
        optest model bench resnet34 --batch 1,8 --no-baseline
        """,
        *_RUN,
        _sizes(name="threads", help="Numbers of threads. [the backend's own]"),
        _sizes(name="bench_tokens", help="Tokens of one call of a language model."),
        _sizes(name="batch", help="Sizes of the batch. [the model's own]"),
        Option(name="baseline", metavar="NAME[:VARIANT]", help="To compare with. [torch:eager, onnxruntime:disabled]"),
        _flag(name="no_baseline", help="Time the backend alone."),
        _number(name="bench_time", default=1.0, metavar="SECONDS", help="For each, after a warm-up. [1]"),
        _number(name="timeout", default=600.0, metavar="SECONDS", help="Of one process. [600]"),
    ),
)
GUEST = Guest(commands=_COMMANDS, hooks="optest.models.guest:ModelRunHooks")
