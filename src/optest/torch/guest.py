"""Declaration of the torch integration: options, ``optest capture`` and run hooks. It does not import torch."""

from __future__ import annotations

from functools import partial

from optest.guests import Argument, Command, Guest, Option

_of_the_cases = partial(Option, group="What to run", in_trends=True)
_of_the_backend = partial(Option, group="Backend", repro=True)

_BACKWARD = "Compute the gradients of every torch call, and compare those of its inputs, too."
_TORCH_DEVICE = "Device of the torch backend: cpu, cuda, npu, spyre … or one that a package registers; cuda:1. [cpu]"
_COMPILE_BACKEND = "Run torch calls by torch.compile with this backend: inductor, aot_eager … [eager]"
_ALLOW_FALLBACK = "Torch calls that may fall back to the CPU or to eager torch; compared, with a note. Repeatable."
_MAX_BYTES = "Skip torch calls that need more memory, with their reference. [half of the available memory]"
_OPTIONS = (
    _of_the_cases(
        name="reference_dtype",
        type="choice",
        choices=("float64", "same"),
        default="float64",
        help="Dtype of the expected outputs of torch calls: float64, or same, that of the case, for parity. [float64]",
    ),
    _of_the_cases(name="backward", type="bool", default=False, help=_BACKWARD),
    _of_the_backend(
        name="torch_device",
        metavar="DEVICE",
        commands=("run", "list", "check", "replay", "model", "model run", "model bench"),
        help=_TORCH_DEVICE,
    ),
    _of_the_backend(
        name="compile_backend",
        metavar="NAME",
        commands=("run", "check", "replay"),
        in_trends=True,
        help=_COMPILE_BACKEND,
    ),
    _of_the_backend(name="allow_fallback", repeat=True, metavar="OP,OP", help=_ALLOW_FALLBACK),
    _of_the_backend(
        name="same_strides",
        type="bool",
        default=False,
        help="Fail torch calls whose outputs have other strides than torch on the CPU returns; else only a note.",
    ),
    _of_the_backend(name="max_bytes", type="int", minimum=1, metavar="N", help=_MAX_BYTES),
)

_CAPTURE = Command(
    name="capture",
    function="optest.torch.capture_command:capture_command",
    after="explain",
    short="Write the operators that a model calls as cases.",
    text="""Run a model once and write every torch call that it makes as a case of FILE.yaml.

    \b
    optest capture model.py -o model.yaml            the whole script
    optest capture model.py:forward -o model.yaml    a function of it, without the calls made while loading it
    optest capture package.model:forward -o model.yaml
    optest capture hf:GPT2LMHeadModel --config n_layer=2 -o gpt2.yaml

    The function takes no arguments. The script runs here, with your rights, as `python model.py` does.
    """,
    arguments=(Argument(name="target", metavar="SCRIPT_OR_MODEL"),),
    options=(
        Option(
            name="output",
            flags=("-o", "--output"),
            required=True,
            metavar="FILE.yaml",
            completes="file",
            help="File to write the cases to.",
        ),
        Option(name="model", default="", metavar="NAME", help="Name of the model in the file. [that of the script]"),
        Option(
            name="level",
            type="choice",
            choices=("torch", "aten"),
            default="torch",
            help="Level of the calls: torch, the functions that the model calls; aten, the dispatcher's. [torch]",
        ),
        Option(
            name="ops", repeat=True, metavar="PATTERN", help="Operators by name or glob: linear,torch.nn.*. Repeatable."
        ),
        Option(name="min_bytes", type="int", minimum=0, default=0, help="Leave out calls with fewer bytes of tensors."),
        Option(name="max_bytes", type="int", minimum=0, help="Leave out calls with more bytes of tensors."),
        Option(
            name="shrink_to",
            type="int",
            minimum=8,
            metavar="SIZE",
            help="Divide sizes above SIZE, alike in all tensors of a call, until they fit.",
        ),
        Option(
            name="seed", type="int", minimum=0, default=0, help="Seed of the model's random numbers and of FILE. [0]"
        ),
        Option(name="config", repeat=True, metavar="KEY=VALUE|FILE", help="Configuration of hf:CLASS. Repeatable."),
        Option(name="force", type="bool", default=False, help="Overwrite FILE.yaml if it exists."),
    ),
)

GUEST = Guest(
    options=_OPTIONS,
    backend="torch",
    commands=(_CAPTURE,),
    hooks="optest.torch.cases:TorchRunHooks",
    references="optest.torch.operators.reference",
)
