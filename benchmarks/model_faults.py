"""Faults planted in optimised models: which node is named, by ``optest model trace`` and by Polygraphy 0.53?

    python benchmarks/model_faults.py [--quick] [--part faults reduce command memory honest]

A fault is an edit of what ONNX Runtime has made of a model. The edited file is compared with the model.

- faults: ``trace`` isolated and accumulated, and Polygraphy's layerwise comparison: all values that both files have are
  outputs of both, ``Comparator.run``, ``compare_accuracy`` with its default tolerances; the first output in order that
  fails is what it names. All in this process, in turns, each from the files on; Polygraphy's log is off.
- reduce: ``polygraphy debug reduce`` of three of these files, against the command ``optest model trace``.
- command: both commands for one file.
- memory: the peak of a trace, as the operating system has it, in a process that has loaded and run the same model with
  short inputs before, against the size of all values of the model.
- honest: the models as their runtimes optimise them, unedited: the largest error of any value, in parts of what is
  allowed. Exits with 1 if it is above 1 anywhere.

Needs onnxruntime and torch; Polygraphy where it is compared, OpenVINO and transformers where they are asked.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "plugins"))

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

PARTS = ("faults", "reduce", "command", "memory", "honest")
GIVEN: Mapping[str, Any] = {
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
    """Files of a model, of its inputs and of what a faulty optimiser has made of it; the values that are wrong."""

    fault: Fault
    model: Path
    inputs: Path
    faulty: Path
    values: tuple[str, ...]

    def case(self) -> TestCase:
        files = {"what": str(self.model), "inputs": str(self.inputs), "optimized": str(self.faulty), "preset": None}
        return next(models_of({**GIVEN, **files}))


def exported(
    what: str, config: Sequence[str] = (), preset: str | None = "balanced", seed: int = 0
) -> Iterator[TestCase]:
    return models_of({**GIVEN, "what": what, "config": [*config], "preset": preset, "seed": seed})


def planted(folder: Path, faults: Sequence[Fault] = FAULTS) -> Iterator[Planted]:
    runtime = backend_manager.get("onnxruntime")
    files = {
        name: next(exported(name, CONFIGS[name])).attributes for name in dict.fromkeys(each.model for each in faults)
    }
    for number, fault in enumerate(faults):
        path = Path(files[fault.model]["file"])
        content, _ = runtime.optimized(path.read_bytes(), fault.level)
        model = onnx.load_from_string(content)
        named = named_model({**GIVEN, "what": fault.model, "config": CONFIGS[fault.model]})
        values = fault.edit(model.graph, named.module.state_dict())
        faulty = folder / f"fault_{number}.onnx"
        onnx.save(model, faulty)
        yield Planted(
            fault, path.absolute(), path.with_name("inputs.safetensors").absolute(), faulty.absolute(), values
        )


def forget() -> None:
    subject_for.cache_clear()
    program_for.cache_clear()


def blamed(case: TestCase, mode: str) -> list[str]:
    """The values that ``optest model trace`` rejects, in its order; "watched" where looking changes the outputs."""
    cases = list(traced(case, mode))
    driver = ModelDriver()
    rejected = [each for each in cases if execute([each], driver).verdicts[0].status in BAD_STATUSES]
    return [each.attributes.get("values", "watched") for each in rejected]


def layerwise(given: Planted) -> list[str]:
    """The values that Polygraphy rejects, in the order of the faulty graph."""
    from polygraphy.backend.onnx import BytesFromOnnx, ModifyOutputs
    from polygraphy.backend.onnxrt import OnnxrtRunner, SessionFromOnnx
    from polygraphy.comparator import Comparator
    from polygraphy.comparator.compare import SimpleCompareFunc
    from polygraphy.logger import G_LOGGER

    G_LOGGER.module_severity = G_LOGGER.CRITICAL
    names = shared_values(given)
    feeds = read_tensors(given.inputs, [each.name for each in onnx.load(given.model).graph.input])
    runners = [
        OnnxrtRunner(SessionFromOnnx(BytesFromOnnx(ModifyOutputs(onnx.load(path), outputs=list(names)))), name=role)
        for role, path in (("right", given.model), ("faulty", given.faulty))
    ]
    results = Comparator.run(runners, data_loader=[feeds])
    compare = SimpleCompareFunc(infinities_compare_equal=True)  # else every masked score differs
    with np.errstate(all="ignore"):
        (accuracy,) = Comparator.compare_accuracy(results, compare_func=compare)
    ((outputs,),) = accuracy.values()  # of one pair of runners, and one iteration
    return [name for name in names if not outputs[name]]


def shared_values(given: Planted) -> list[str]:
    before = {name for node in onnx.load(given.model).graph.node for name in node.output}
    return [name for node in onnx.load(given.faulty).graph.node for name in node.output if name in before]


def opinion(named: Sequence[str], values: Sequence[str]) -> str:
    """What a method says of a fault: the node that it names first, and how many others it blames."""
    others = [each for each in named if each not in values]
    if not named:
        return "missed"
    if named[0] not in values:
        return f"**wrong**: {named[0]}" + f" (+{len(others) - 1})" * (len(others) > 1)
    return "right" + f" (+{len(others)})" * bool(others)


def faults_found(folder: Path, faults: Sequence[Fault], turns: int) -> int:
    methods: dict[str, Callable[[Planted], list[str]]] = {
        "isolated": lambda each: blamed(each.case(), "isolated"),
        "accumulated": lambda each: blamed(each.case(), "accumulated"),
    }
    if has_polygraphy():
        methods["Polygraphy"] = layerwise
    seconds: dict[str, list[float]] = defaultdict(list)
    right: dict[str, int] = defaultdict(int)
    further: dict[str, int] = defaultdict(int)
    rows = []
    known = list(planted(folder, faults))
    for method in methods.values():  # imports
        method(known[0])
    for given in known:
        opinions = []
        for name, method in methods.items():
            times = []
            for _ in range(turns):
                forget()
                began = time.perf_counter()
                named = method(given)
                times.append(time.perf_counter() - began)
            seconds[name].append(min(times))
            opinions.append(opinion(named, given.values))
            right[name] += opinions[-1].startswith("right")
            further[name] += len([each for each in named if each not in given.values])
        what, model, level, _ = given.fault
        rows.append(f"| {what} | {model}, {level} | {given.values[0]} | {' | '.join(opinions)} |")
    print(f"| fault | model | node | {' | '.join(methods)} |\n|---|---|---|{'---|' * len(methods)}")
    print("\n".join(rows))
    print(f"| right, of {len(known)} | | | {' | '.join(str(right[each]) for each in methods)} |")
    print(f"| further values blamed | | | {' | '.join(str(further[each]) for each in methods)} |")
    medians = {name: statistics.median(each) for name, each in seconds.items()}
    print(f"| seconds a file, median | | | {' | '.join(f'{each:.2f}' for each in medians.values())} |")
    of_isolated = " | ".join(f"{each / medians['isolated']:.1f}" for each in medians.values())
    print(f"| of the isolated trace's | | | {of_isolated} |\n")
    return int(right["isolated"] < len(known) or further["isolated"] > 0)


def has_polygraphy() -> bool:
    try:
        import polygraphy  # noqa: F401
    except ImportError:
        return False
    return True


def commanded(command: Sequence[str], folder: Path) -> tuple[float, str, int]:
    began = time.perf_counter()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=900)
    return time.perf_counter() - began, done.stdout + done.stderr, done.returncode


def trace_command(given: Planted) -> list[str]:
    words = ["model", "trace", given.model, "--optimized", given.faulty, "--input", given.inputs, "-q"]
    return [sys.executable, "-m", "optest", *map(str, words)]


def polygraphy(*words: object) -> list[str]:
    return [sys.executable, "-c", "import sys, polygraphy.tools; sys.exit(polygraphy.tools.main())", *map(str, words)]


def commands(folder: Path) -> int:
    """One file by each command."""
    from polygraphy.json import save_json

    (given,) = planted(folder, [FAULTS[6]])
    feeds = read_tensors(given.inputs, [each.name for each in onnx.load(given.model).graph.input])
    save_json([feeds], str(folder / "inputs.json"))
    names = shared_values(given)
    mark = ["--onnxrt", "--load-inputs", "inputs.json", "--onnx-outputs", *names]
    golden, _, _ = commanded(polygraphy("run", given.model, *mark, "--save-outputs", "golden.json"), folder)
    compared, text, _ = commanded(
        polygraphy("run", given.faulty, *mark, "--load-outputs", "golden.json", EQUAL), folder
    )
    ours, said, status = commanded(trace_command(given), folder)
    in_process = time.perf_counter()
    forget()
    blamed(given.case(), "isolated")
    in_process = time.perf_counter() - in_process
    nodes = len(onnx.load(given.faulty).graph.node)
    print(f"| command, one file of {nodes} nodes | seconds | of optest's |\n|---|---|---|")
    print(f"| optest model trace | {ours:.1f} | 1 |")
    theirs = golden + compared
    print(f"| polygraphy run, twice ({len(text.splitlines()):,} lines) | {theirs:.1f} | {theirs / ours:.1f} |")
    print(f"| (optest in process | {in_process:.2f} | {in_process / ours:.2f}) |\n")
    first = next((line for line in said.splitlines() if line.startswith("first mismatch")), said[-300:])
    print(f"optest: `{first}`\n")
    return int(status != 1 or given.values[0] not in first)


def reduced(folder: Path) -> int:
    """``polygraphy debug reduce`` by its own recipe: inputs and right values of all layers in files, bisection."""
    print("| fault | node | optest model trace | s | polygraphy debug reduce | s | of optest's |")
    print("|---|---|---|---|---|---|---|")
    for given in planted(folder, [FAULTS[0], FAULTS[6], FAULTS[18]]):
        write_layers(given, folder)
        layers, out = ("--load-inputs", "layers.json"), folder / "reduced.onnx"
        out.unlink(missing_ok=True)
        check = polygraphy("run", "polygraphy_debug.onnx", "--onnxrt", *layers, "--load-outputs", "golden.json", EQUAL)
        command = polygraphy("debug", "reduce", given.faulty, "-o", out, "--mode", "bisect", *layers, "--check", *check)
        theirs, text, _ = commanded(command, folder)
        kept = [name for node in onnx.load(out).graph.node for name in node.output] if out.exists() else []
        ours, said, _ = commanded(trace_command(given), folder)
        first = next((line for line in said.splitlines() if line.startswith("first mismatch")), "nothing")
        own = "right" if f"/{given.values[0]} " in first else f"**wrong**: {first}"
        other = "right" if {*given.values} & {*kept} else "**wrong**" if kept else f"**none**: {text[-100:]}"
        nodes = f"{other}, {len(kept)} nodes: {', '.join(kept[:3])}"
        ends = f"{own} | {ours:.1f} | {nodes} | {theirs:.0f} | {theirs / ours:.0f}"
        print(f"| {given.fault.what} | {given.values[0]} | {ends} |", flush=True)
    print()
    return 0


def write_layers(given: Planted, folder: Path) -> None:
    """The right values, as inputs of any part of the model and as its outputs."""
    from polygraphy.backend.onnx import BytesFromOnnx, ModifyOutputs
    from polygraphy.backend.onnxrt import OnnxrtRunner, SessionFromOnnx
    from polygraphy.comparator import RunResults
    from polygraphy.json import save_json
    from polygraphy.logger import G_LOGGER

    G_LOGGER.module_severity = G_LOGGER.CRITICAL
    model = ModifyOutputs(onnx.load(given.model), outputs=shared_values(given))
    feeds = read_tensors(given.inputs, [each.name for each in onnx.load(given.model).graph.input])
    with OnnxrtRunner(SessionFromOnnx(BytesFromOnnx(model))) as runner:
        right = {name: np.asarray(value) for name, value in runner.infer(feeds).items()}
    results = RunResults()
    results.add([right], runner_name="right")
    results.save(str(folder / "golden.json"))
    save_json([{**feeds, **right}], str(folder / "layers.json"))


EQUAL = "--infinities-compare-equal"
MEMORY = """\
import resource, sys
from model_faults import bootstrap, exported, blamed, forget, subject_of
bootstrap()
small, large, mode = sys.argv[1].split(), sys.argv[2].split(), sys.argv[3]
case = next(exported("gpt2", small))
blamed(case, mode)
case = next(exported("gpt2", large))
subject_of(case)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
blamed(case, mode)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
subject = subject_of(case)
values = subject.graph.stream(subject.graph.region([*subject.graph.makers], subject.feeds), subject.feeds)
print((peak - before) / 1024, sum(each.nbytes for _, each in values) / 2**20)
"""
LARGE = "n_layer=4 n_embd=128 n_head=8 n_positions=256 tokens=256 batch=8"


def memory(folder: Path) -> int:
    print(
        "| trace of GPT-2 ("
        + LARGE.replace("=", " ")
        + ") | values of the model, MiB | peak above the loaded model, MiB | ratio |\n|---|---|---|---|"
    )
    for mode in ("isolated", "accumulated"):
        command = [sys.executable, "-c", MEMORY, "n_layer=4 n_positions=256 n_embd=128 n_head=8 tokens=4", LARGE, mode]
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, env=environment, timeout=900, check=True
        )
        peak, values = map(float, done.stdout.split()[-2:])
        print(f"| {mode} | {values:.0f} | {peak:.0f} | {peak / values:.2f} |")
    print()
    return 0


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

    def ask(case: TestCase, backend: str, variant: str) -> None:
        case = dataclasses.replace(case, attributes={**case.attributes, "backend": backend, "variant": variant})
        label = f"{backend} {variant}"
        outputs = with_part(case, "outputs", "outputs", values="\n".join(subject_of(case).graph.outputs))
        for each in (outputs, *traced(case, "isolated"), *traced(case, "accumulated")):
            part, verdict = each.attributes["part"], execute([each], ModelDriver()).verdicts[0]
            used = max((measure.worst_used or 0.0 for measure in verdict.measures), default=0.0)
            counts[label] += 1
            if used > worst[label][part].used:
                worst[label][part] = Worst(used, f"{each.name} ({each.where.partition(': ')[2].partition(',')[0]})")
            if verdict.status in BAD_STATUSES:
                alarms.append(f"{label}: {each.name}, {part}: {verdict.message}")

    levels = ("disabled", "basic", "extended", "all")

    def ask_onnx(what: str, config: Sequence[str], preset: str | None, seed: int, *, openvino: bool = False) -> None:
        for case in exported(what, config, preset, seed):
            for level in levels:
                ask(case, "onnxruntime", level)
            if openvino and "openvino" in backend_manager.names():
                ask(case, "openvino", "f32")

    def ask_torch(what: str, level: str, preset: str | None) -> None:
        for case in models_of({**GIVEN, "what": what, "preset": preset, "backend": "torch", "variant": level}):
            ask(case, "torch", level)

    preset = "balanced" if quick else None  # each of them
    for name in CONFIGS:
        ask_onnx(name, (), preset, 0, openvino=not quick)
        ask_torch(name, "aot_eager", preset)
    if not quick:
        ask_torch("gpt2", "inductor", None)
        for name, sizes in OTHER_SIZES.items():
            for seed in (1, 2, 3):
                ask_onnx(name, (), None, seed)
            for number, size in enumerate(sizes):
                ask_onnx(name, size.split(), None, 4 + number)
        for name, size in HF.items():
            for seed in (0, 1):
                ask_onnx(name, size.split(), None, seed)
        for path in sorted(Path(onnx.__file__).parent.glob("backend/test/data/light/*.onnx")):
            ask_onnx(str(path), (), None, 0)
    print("| backend | values | outputs | isolated | accumulated | worst |\n|---|---|---|---|---|---|")
    for label, parts in worst.items():
        largest = max(parts.values())
        used = " | ".join(f"{parts[part].used:.2f}" for part in ("outputs", "isolated", "accumulated"))
        print(f"| {label} | {counts[label]:,} | {used} | {largest.where} |")
    print(f"\n{len(alarms)} false alarms\n" + "".join(f"\n- {each}" for each in alarms))
    return int(bool(alarms))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer models and turns, and no commands")
    parser.add_argument("--part", nargs="+", choices=PARTS, help="what is measured (all)")
    options = parser.parse_args()
    bootstrap()
    parts = options.part or (("faults", "honest") if options.quick else PARTS)
    print(f"load average {os.getloadavg()[0]:.1f} at the start, {len(os.sched_getaffinity(0))} cores\n", flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.chdir(folder)
        status = 0
        if "faults" in parts:
            status |= faults_found(folder, FAULTS, 1 if options.quick else 3)
        if "reduce" in parts and has_polygraphy():
            status |= reduced(folder)
        if "command" in parts and has_polygraphy():
            status |= commands(folder)
        if "memory" in parts:
            status |= memory(folder)
        if "honest" in parts:
            status |= honest(quick=options.quick)
    return status


if __name__ == "__main__":
    sys.exit(main())
