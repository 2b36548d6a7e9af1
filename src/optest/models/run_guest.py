"""The commands of ``optest model`` that compare nothing with a reference, declared. Nothing heavy is imported here."""

from __future__ import annotations

from functools import partial

from optest.guests import Argument, Command, Option

__all__ = ["COMMANDS", "HOOKS", "SOURCE"]

_MODEL = Argument(name="what", metavar="MODEL")
_of_the_model = partial(Option, group="The model")
_FILE = "FILE.safetensors"
SOURCE = (
    _of_the_model(
        name="config",
        repeat=True,
        metavar="KEY=VALUE",
        help="Of a model by name, as n_layer=4 or size=full; of a file its open sizes, as batch=2. Repeatable.",
    ),
    _of_the_model(name="preset", metavar="NAME", help="How weights are drawn: small, large … [validate: every way]"),
    _of_the_model(
        name="weights",
        flags=("--weights", "--checkpoint"),
        metavar=_FILE,
        completes="file",
        help="Weights of a model by name. [drawn]",
    ),
    _of_the_model(
        name="inputs", flags=("--input",), metavar=_FILE, completes="file", help="Inputs by name. [drawn by --seed]"
    ),
    _of_the_model(name="seed", type="int", default=0, help="Seed of all that is drawn. [0]"),
)
"""Which model, and its inputs: what all commands take that run one."""
_RUNS = (
    _of_the_model(name="backend", metavar="NAME", help="Who runs it. [torch; of a file onnxruntime]"),
    _of_the_model(name="variant", metavar="NAME", help="How it computes: inductor, basic, f32. [its default]"),
    *SOURCE,
)
HOOKS = (
    Option(
        name="dump_dir",
        metavar="DIR",
        completes="folder",
        help="Keep the program there, and each execution: inputs, outputs, all values inside, with an index in order.",
    ),
    Option(
        name="dump_mode",
        type="choice",
        choices=("all", "compile"),
        default="all",
        help="Keep all that, or the program alone (compile). [all]",
    ),
    Option(
        name="profile",
        type="bool",
        default=False,
        help="Show the time of each operator by the backend's own profiler, and write profile.json for trace viewers.",
    ),
)


def _command(name: str, module: str, short: str, text: str, *options: Option, argument: Argument = _MODEL) -> Command:
    return Command(
        name=f"model {name}",
        function=f"optest.models.{module}:{name.replace('-', '_')}_command",
        after="check",
        short=short,
        text=text,
        arguments=(argument,),
        options=options,
    )


COMMANDS = (
    _command(
        "run",
        "running",
        "Run a model, and compare it with nothing.",
        """Run a model forward on one backend, or let it write text. MODEL is a file of ONNX, or gpt2, llama, resnet34,
        mobilenet_v2, hf:CLASS, timm:NAME, or FILE.py:FUNCTION.

        \b
        optest model run resnet34 --weights resnet34.safetensors --profile
        optest model run model.onnx --backend openvino --input inputs.safetensors
        optest model run gpt2 --prompt "Hi" --max-tokens 16 --temperature 0.8 --dump-dir dumps
        """,
        *_RUNS,
        Option(name="prompt", metavar="TEXT|IDS", help="Let a language model write on: text, or ids as '464 2068'."),
        Option(name="max_tokens", type="int", minimum=1, metavar="N", help="How many tokens. [128, or what fits]"),
        Option(
            name="temperature",
            type="float",
            default=0.0,
            metavar="T",
            help="Draw them by --seed; 0 is the likeliest. [0]",
        ),
        Option(name="tokenizer", metavar="FILE.json", help="Of the package tokenizers. [bytes, or the ids stated]"),
        Option(name="kv_cache", type="bool", default=False, help="Keep keys and values, where the model can."),
        *HOOKS,
    ),
    _command(
        "diff",
        "dumps",
        "Compare two dumps of values.",
        """Compare the values of two dumps, as trace --out and run --dump-dir write them, in the order of the first.

        \b
        optest model diff one.safetensors other.safetensors --atol 1e-6

        They have to be equal, or |a - b| <= atol + rtol * max(|a|, |b|). Names that one of them lacks, other shapes or
        dtypes, and dumps without a common name are differences, too.
        """,
        Option(name="common", type="bool", default=False, help="Compare the names that both have, and no others."),
        Option(name="rtol", type="float", default=0.0, help="Relative tolerance. [0]"),
        Option(name="atol", type="float", default=0.0, help="Absolute tolerance. [0]"),
        argument=Argument(name="dumps", metavar="FILE FILE", repeat=True),
    ),
    _command(
        "export-weights",
        "running",
        "Write the weights of a model by name.",
        """Write the weights of a model as safetensors, for --weights.

        \b
        optest model export-weights resnet34 --out resnet34.safetensors
        """,
        *(each for each in SOURCE if each.name != "inputs"),
        Option(name="out", metavar=_FILE, required=True, completes="file", help="Where to."),
    ),
    _command(
        "bench",
        "benchmarks",
        "Time a model, each combination in a fresh process.",
        """Time a model and its baseline for each number of threads and size of input, each in a fresh process whose
        variables of threads (OMP_NUM_THREADS and others) are set before anything is imported.

        \b
        optest model bench gpt2 --backend onnxruntime --threads 1 4 --bench-tokens 1 64
        optest model bench resnet34 --batch 1,8 --no-baseline
        """,
        *_RUNS,
        Option(name="threads", type="ints", metavar="N [N…]", help="Numbers of threads. [the backend's own]"),
        Option(name="bench_tokens", type="ints", metavar="N [N…]", help="Tokens of one call of a language model."),
        Option(name="batch", type="ints", metavar="N [N…]", help="Sizes of the batch. [the model's own]"),
        Option(
            name="baseline",
            metavar="NAME[:VARIANT]",
            help="Whom to compare with. [torch:eager; of a file onnxruntime:disabled]",
        ),
        Option(name="no_baseline", type="bool", default=False, help="Time the backend alone."),
        Option(name="bench_time", type="float", default=1.0, metavar="SECONDS", help="For each, after a warm-up. [1]"),
        Option(name="timeout", type="float", default=600.0, metavar="SECONDS", help="Of one process. [600]"),
        *HOOKS,
    ),
)
