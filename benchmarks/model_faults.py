"""Which node is named for a fault planted in an optimised model, by ``optest model trace`` and by Polygraphy 0.53?

    python benchmarks/model_faults.py [--quick] [--part faults honest]

A fault is an edit of a file that ONNX Runtime has optimised. The edited file is compared with the model.

- faults: ``trace`` isolated and accumulated, and Polygraphy's layerwise comparison: all values that both files have are
  outputs of both, ``Comparator.run``, ``compare_accuracy`` with its default tolerances; it names the first output in
  order that fails. All in this process, in turns, each from the files on; Polygraphy's log is off.
- honest: the models as their runtimes optimise them, unedited: the largest error of any value, as a share of the
  allowed one. Exits with 1 if it is above 1 anywhere.

Needs onnxruntime and torch; uses Polygraphy, OpenVINO and transformers if they are installed.
"""

from __future__ import annotations

import dataclasses
import os
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import kit
import numpy as np
import onnx
from planted_faults import CONFIGS, FAULTS, Fault

from optest.api import bootstrap
from optest.backends import backend_manager
from optest.core.runner import execute
from optest.models.commands import models_of, traced, with_part
from optest.models.driver import ModelDriver, subject_of
from optest.models.opened import named_model, program_for, subject_for
from optest.models.subjects import read_tensors
from optest.spec import BAD_STATUSES, TestCase

PARTS = ("faults", "honest")
OPTIONS: Mapping[str, Any] = {
    "config": [],
    "preset": "balanced",
    "weights": None,
    "inputs": None,
    "seed": 0,
    "backend": "onnxruntime",
    "variant": None,
    "optimized": None,
    "torch_device": None,
}


class Planted(NamedTuple):
    """Files of a model, of its inputs and of its faulty optimised form, and the values that are wrong."""

    fault: Fault
    model: Path
    inputs: Path
    faulty: Path
    values: tuple[str, ...]

    def case(self) -> TestCase:
        files = {"what": str(self.model), "inputs": str(self.inputs), "optimized": str(self.faulty), "preset": None}
        return next(models_of({**OPTIONS, **files}))


def exported(
    what: str, config: Sequence[str] = (), preset: str | None = "balanced", seed: int = 0
) -> Iterator[TestCase]:
    return models_of({**OPTIONS, "what": what, "config": [*config], "preset": preset, "seed": seed})


def planted(folder: Path, faults: Sequence[Fault] = FAULTS) -> Iterator[Planted]:
    runtime = backend_manager.get("onnxruntime")
    files = {
        name: next(exported(name, CONFIGS[name])).attributes for name in dict.fromkeys(fault.model for fault in faults)
    }
    for number, fault in enumerate(faults):
        path = Path(files[fault.model]["file"])
        content, _ = runtime.optimized(path.read_bytes(), fault.level)
        model = onnx.load_from_string(content)
        named = named_model({**OPTIONS, "what": fault.model, "config": CONFIGS[fault.model]})
        values = fault.edit(model.graph, named.module.state_dict())
        faulty = folder / f"fault_{number}.onnx"
        onnx.save(model, faulty)
        yield Planted(
            fault, path.absolute(), path.with_name("inputs.safetensors").absolute(), faulty.absolute(), values
        )


def blamed(case: TestCase, mode: str) -> list[str]:
    """Return the values that ``optest model trace`` rejects, in its order; "watched" if tracing changes the outputs."""
    # The outputs of the whole model are rejected rightly, and blame no node.
    cases = [case for case in traced(case, mode) if case.attributes["part"] != "outputs"]
    driver = ModelDriver()
    rejected = [case for case in cases if execute([case], driver).verdicts[0].status in BAD_STATUSES]
    return [case.attributes.get("values", "watched") for case in rejected]


def layerwise(fault: Planted) -> list[str]:
    """Return the values that Polygraphy rejects, in the order of the faulty graph."""
    from polygraphy.backend.onnx import BytesFromOnnx, ModifyOutputs
    from polygraphy.backend.onnxrt import OnnxrtRunner, SessionFromOnnx
    from polygraphy.comparator import Comparator
    from polygraphy.comparator.compare import SimpleCompareFunc
    from polygraphy.logger import G_LOGGER

    G_LOGGER.module_severity = G_LOGGER.CRITICAL
    names = shared_values(fault)
    feeds = read_tensors(fault.inputs, [value.name for value in onnx.load(fault.model).graph.input])
    runners = [
        OnnxrtRunner(SessionFromOnnx(BytesFromOnnx(ModifyOutputs(onnx.load(path), outputs=list(names)))), name=role)
        for role, path in (("right", fault.model), ("faulty", fault.faulty))
    ]
    results = Comparator.run(runners, data_loader=[feeds])
    compare = SimpleCompareFunc(infinities_compare_equal=True)  # else every masked score differs
    with np.errstate(all="ignore"):
        (accuracy,) = Comparator.compare_accuracy(results, compare_func=compare)
    ((outputs,),) = accuracy.values()  # of one pair of runners, and one iteration
    return [name for name in names if not outputs[name]]


def shared_values(fault: Planted) -> list[str]:
    before = {name for node in onnx.load(fault.model).graph.node for name in node.output}
    return [name for node in onnx.load(fault.faulty).graph.node for name in node.output if name in before]


def opinion(named: Sequence[str], values: Sequence[str]) -> str:
    """Describe the result of a method: whether the node that it names first is right, and how many others it blames."""
    others = [name for name in named if name not in values]
    if not named:
        return "missed"
    if named[0] not in values:
        return f"**wrong**: {named[0]}" + f" (+{len(others) - 1})" * (len(others) > 1)
    return "right" + f" (+{len(others)})" * bool(others)


def faults_found(folder: Path, faults: Sequence[Fault], repeats: int) -> int:
    methods: dict[str, Callable[[Planted], list[str]]] = {
        "isolated": lambda x: blamed(x.case(), "isolated"),
        "accumulated": lambda x: blamed(x.case(), "accumulated"),
    }
    if find_spec("polygraphy"):
        methods["Polygraphy"] = layerwise
    seconds: dict[str, list[float]] = defaultdict(list)
    right: dict[str, int] = defaultdict(int)
    further: dict[str, int] = defaultdict(int)
    rows = []
    known = list(planted(folder, faults))
    for method in methods.values():
        method(known[0])  # imports
    for fault in known:
        named: dict[str, list[str]] = {}

        def name_node(name: str, fault: Planted = fault, named: dict[str, list[str]] = named) -> None:
            subject_for.cache_clear()
            program_for.cache_clear()
            named[name] = methods[name](fault)

        for name, x in kit.least({name: partial(name_node, name) for name in methods}, repeats).items():
            seconds[name].append(x.wall)
            right[name] += opinion(named[name], fault.values).startswith("right")
            further[name] += len([value for value in named[name] if value not in fault.values])
        planted_fault = (fault.fault.what, f"{fault.fault.model}, {fault.fault.level}", fault.values[0])
        rows.append((*planted_fault, *(opinion(named[name], fault.values) for name in methods)))
    medians = {name: statistics.median(x) for name, x in seconds.items()}
    rows += [
        (f"right, of {len(known)}", "", "", *(right[x] for x in methods)),
        ("further values blamed", "", "", *(further[x] for x in methods)),
        ("seconds a file, median", "", "", *(f"{medians[x]:.2f}" for x in methods)),
        ("of the isolated trace's", "", "", *(f"{medians[x] / medians['isolated']:.1f}" for x in methods)),
    ]
    print(kit.table(("fault", "model", "node", *methods), rows), "", sep="\n")
    return int(right["isolated"] < len(known) or further["isolated"] > 0)


class Worst(NamedTuple):
    used: float
    where: str


HF = {
    "hf:GPT2LMHeadModel": "n_layer=2 n_embd=64 n_head=4 vocab_size=512 n_positions=64",
    "hf:LlamaForCausalLM": "num_hidden_layers=2 hidden_size=64 intermediate_size=160 num_attention_heads=4 "
    "num_key_value_heads=2 vocab_size=512 max_position_embeddings=64",
    "hf:BertModel": "num_hidden_layers=2 hidden_size=64 intermediate_size=160 num_attention_heads=4 vocab_size=512",
}
OTHER_SIZES = {
    "gpt2": ("n_layer=4 batch=1 tokens=7", "n_embd=128 n_head=8 batch=3 tokens=32"),
    "llama": ("batch=1 tokens=1", "hidden_size=128 num_attention_heads=8 batch=3 tokens=32"),
    "resnet34": ("batch=1 image_size=96",),
    "mobilenet_v2": ("batch=3 image_size=96",),
}


def honest(*, quick: bool) -> int:
    worst: dict[str, dict[str, Worst]] = defaultdict(lambda: defaultdict(lambda: Worst(0.0, "")))
    counts: dict[str, int] = defaultdict(int)
    alarms: list[str] = []

    def check(case: TestCase, backend: str, variant: str) -> None:
        case = dataclasses.replace(case, attributes={**case.attributes, "backend": backend, "variant": variant})
        label = f"{backend} {variant}"
        outputs = with_part(case, "outputs", "outputs", values="\n".join(subject_of(case).graph.outputs))
        for value in (outputs, *traced(case, "isolated"), *traced(case, "accumulated")):
            part, verdict = value.attributes["part"], execute([value], ModelDriver()).verdicts[0]
            used = max((measure.worst_used or 0.0 for measure in verdict.measures), default=0.0)
            counts[label] += 1
            if used > worst[label][part].used:
                worst[label][part] = Worst(used, f"{value.name} ({value.where.partition(': ')[2].partition(',')[0]})")
            if verdict.status in BAD_STATUSES:
                alarms.append(f"{label}: {value.name}, {part}: {verdict.message}")

    levels = ("disabled", "basic", "extended", "all")

    def check_onnx(what: str, config: Sequence[str], preset: str | None, seed: int, *, openvino: bool = False) -> None:
        for case in exported(what, config, preset, seed):
            for level in levels:
                check(case, "onnxruntime", level)
            if openvino and "openvino" in backend_manager.names():
                check(case, "openvino", "f32")

    def check_torch(what: str, level: str, preset: str | None) -> None:
        for case in models_of({**OPTIONS, "what": what, "preset": preset, "backend": "torch", "variant": level}):
            check(case, "torch", level)

    preset = "balanced" if quick else None  # all presets
    for name in CONFIGS:
        check_onnx(name, (), preset, 0, openvino=not quick)
        check_torch(name, "aot_eager", preset)
    if not quick:
        check_torch("gpt2", "inductor", None)
        for name, sizes in OTHER_SIZES.items():
            for seed in (1, 2, 3):
                check_onnx(name, (), None, seed)
            for number, size in enumerate(sizes):
                check_onnx(name, size.split(), None, 4 + number)
        for name, size in HF.items():
            for seed in (0, 1):
                check_onnx(name, size.split(), None, seed)
        for path in sorted(Path(onnx.__file__).parent.glob("backend/test/data/light/*.onnx")):
            check_onnx(str(path), (), None, 0)
    modes, rows = ("outputs", "isolated", "accumulated"), []
    for label, parts in worst.items():
        rows.append((label, counts[label], *(f"{parts[x].used:.2f}" for x in modes), max(parts.values()).where))
    print(kit.table(("backend", "values", *modes, "worst"), rows))
    print(f"\n{len(alarms)} false alarms\n" + "".join(f"\n- {alarm}" for alarm in alarms))
    return int(bool(alarms))


def main() -> int:
    parser = kit.parser(__doc__, quick="fewer models and repeats")
    parser.add_argument("--part", nargs="+", choices=PARTS, default=PARTS, help="parts to measure [all]")
    options = parser.parse_args()
    bootstrap()
    print(f"{kit.machine()}\n", flush=True)
    with tempfile.TemporaryDirectory() as name:
        os.chdir(name)
        status = 0
        if "faults" in options.part:
            status |= faults_found(Path(name), FAULTS, 1 if options.quick else 3)
        if "honest" in options.part:
            status |= honest(quick=options.quick)
    return status


if __name__ == "__main__":
    sys.exit(main())
