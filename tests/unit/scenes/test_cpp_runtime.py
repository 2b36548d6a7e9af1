"""The simulated devices: order of tasks, whose memory a task may use, guard zones, dumps and spans."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from texts import says_exactly

from optest.scenes import ArgDirection as D
from optest.scenes import Scalar, TaskArgs, Tensor
from optest.scenes.runtimes import RunOptions, Span
from optest.scenes.runtimes.cpp.runtime import CppRuntime
from optest.spec import Fault, Reason

pytestmark = [pytest.mark.cxx, pytest.mark.usefixtures("compile_cache")]

KERNELS = """
#include <stdexcept>
#include "optest_scene.h"
using optest::Arguments;
using optest::Block;

extern "C" void add(const Block& block, const Arguments& args) {  // to = from + scalar
    const int64_t total = args[0].elements;
    for (int64_t i = block.begin(total); i < block.end(total); ++i)
        args[1].as<int>()[i] = args[0].as<int>()[i] + static_cast<int>(args.scalar(0));
}
extern "C" void beyond(const Block&, const Arguments& args) {
    args[0].as<int>()[static_cast<int>(args.scalar(0))] = 7;
}
extern "C" void raises(const Block& block, const Arguments&) {
    if (block.index == 1) throw std::runtime_error("no such tile");
}
extern "C" void count(const Block& block, const Arguments& args) { args[0].as<int>()[block.index] = block.count; }
"""
ORCHESTRATIONS = """
#include "optest_scene.h"
using optest::Arguments;
using optest::Graph;
using optest::Tensor;
enum Kernels { kAdd = 3, kBeyond = 5, kRaises = 7, kCount = 9 };

extern "C" void chain(Graph& graph, const Arguments& args) {
    Tensor between = graph.allocate(0, args[0]);
    graph.submit(kAdd, {args[0], between}, {.scalars = {1}});
    graph.submit(kAdd, {between, args[1]}, {.scalars = {10}});
}
extern "C" void diamond(Graph& graph, const Arguments& args) {
    const int64_t half = args[0].elements / 2;
    Tensor first = graph.allocate(0, args[0]);
    int top = graph.copy(first, args[0]);
    int left = graph.submit(kAdd, {first.part(0, half), args[1].part(0, half)}, {.after = {top}, .scalars = {1}});
    Tensor to = args[1].part(half, half);
    int right = graph.submit(kAdd, {first.part(half, half), to}, {.after = {top}, .scalars = {2}});
    graph.copy(first, args[1], {.after = {left, right}});
}
extern "C" void unordered(Graph& graph, const Arguments& args) {
    Tensor first = graph.allocate(0, args[0]);
    int top = graph.copy(first, args[0]);
    graph.submit(kAdd, {first, args[1]}, {.after = {top}, .scalars = {1}});
    graph.copy(first, args[1], {.after = {top}});
}
extern "C" void unordered_neighbours(Graph& graph, const Arguments& args) {
    const int64_t half = args[0].elements / 2;
    int top = graph.copy(args[1], args[0]);
    graph.submit(kAdd, {args[0], args[1].part(0, half)}, {.after = {top}, .scalars = {0}});
    graph.copy(args[1].part(half, half), args[0].part(half, half), {.after = {top}});
}
extern "C" void around(Graph& graph, const Arguments& args) {  // from device to device, one more on each
    Tensor held{};
    int last = -1;
    for (int d = 0; d < graph.devices(); ++d) {
        Tensor received = graph.allocate(d, args[0]), sum = graph.allocate(d, args[0]);
        graph.copy(received, d ? held : args[0], {.after = d ? std::vector<int>{last} : std::vector<int>{}});
        last = graph.submit(kAdd, {received, sum}, {.device = d, .scalars = {1}});
        held = sum;
    }
    graph.copy(args[1], held, {.after = {last}});
}
extern "C" void of_the_host(Graph& graph, const Arguments& args) {
    graph.submit(kAdd, {args[0], args[1]}, {.scalars = {1}});
}
extern "C" void of_another_device(Graph& graph, const Arguments& args) {
    graph.submit(kAdd, {graph.allocate(1, args[0]), graph.allocate(0, args[0])}, {.scalars = {1}});
}
extern "C" void no_such_device(Graph& graph, const Arguments& args) { graph.allocate(graph.devices(), args[0]); }
extern "C" void no_such_kernel(Graph& graph, const Arguments&) { graph.submit(0, {}); }
extern "C" void after_a_later_task(Graph& graph, const Arguments& args) {
    graph.submit(kCount, {args[0]}, {.after = {0}});
}
extern "C" void copy_of_another_size(Graph& graph, const Arguments& args) { graph.copy(args[0].part(0, 1), args[1]); }
extern "C" void beyond(Graph& graph, const Arguments& args) {
    graph.submit(kBeyond, {graph.allocate(0, args[0])}, {.scalars = {args.scalar(0)}});
}
extern "C" void raises(Graph& graph, const Arguments& args) { graph.submit(kRaises, {args[0]}, {.blocks = 2}); }
extern "C" void count(Graph& graph, const Arguments& args) { graph.submit(kCount, {args[1]}); }
extern "C" void nothing(Graph&, const Arguments&) {}
extern "C" void unwritten(Graph& graph, const Arguments& args) { graph.copy(args[1], graph.allocate(0, args[0])); }
"""
FUNCTIONS = {3: "add", 5: "beyond", 7: "raises", 9: "count"}


class Recorded:
    """What a run writes down."""

    def __init__(self, *, profiles: bool = False, dumps: bool = False) -> None:
        self.profiles, self.dumps = profiles, dumps
        self.spans: list[Span] = []
        self.tensors: dict[tuple[str, str, int], Any] = {}

    def span(self, span: Span) -> None:
        self.spans.append(span)

    def tensor(self, task: str, when: str, place: int, array: Any) -> None:
        self.tensors[task, when, place] = array


class Ran(NamedTuple):
    x: Any
    y: Any
    recorded: Recorded


Run = Callable[..., Ran]


@pytest.fixture(scope="session")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sources")
    (folder / "kernels.cpp").write_text(KERNELS)
    (folder / "orchestrations.cpp").write_text(ORCHESTRATIONS)
    return folder


def callable_of(folder: Path, function: str) -> dict[str, Any]:
    """A CALLABLE: an orchestration of the sources with all their kernels."""
    kernels = [
        {
            "func_id": number,
            "source": str(folder / "kernels.cpp"),
            "function_name": name,
            "signature": [D.IN, D.OUT] if name == "add" else [D.INOUT],
        }
        for number, name in FUNCTIONS.items()
    ]
    orchestration = {"source": str(folder / "orchestrations.cpp"), "function_name": function}
    return {"orchestration": orchestration, "incores": kernels}


@pytest.fixture
def run(sources: Path) -> Run:
    def call(function: str, *, devices: int = 1, recorded: Any = None, scalar: Any = None, **more: Any) -> Ran:
        recorded = recorded or Recorded()
        options = RunOptions(**{"config": {}, "level": 2, "recording": recorded, **more})
        runtime = CppRuntime()
        program = runtime.build(callable_of(sources, function), "cpusim", level=options.level)
        x, y = np.arange(8, dtype=np.int32), np.full(8, -1, np.int32)
        scalars = [] if scalar is None else [Scalar("n", scalar)]
        worker = runtime.open("cpusim", range(10, 10 + devices))
        worker.run(program, TaskArgs(Tensor("x", x), Tensor("y", y), *scalars), options)
        return Ran(x, y, recorded)

    return call


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("blocks", [1, 3, 16])
def test_tasks_of_a_device_follow_each_other(run: Run, blocks: int, threads: int) -> None:
    assert run("chain", config={"block_dim": blocks, "aicpu_thread_num": threads}).y.tolist() == [*range(11, 19)]


def test_task_waits_for_all_its_predecessors(run: Run) -> None:
    recorded = run("diamond", recorded=Recorded(profiles=True), config={"aicpu_thread_num": 3}).recorded
    spans = {each.name.partition(" block")[0]: each for each in recorded.spans}
    top, left, right, last = (spans[name] for name in sorted(spans))
    assert top.ended_s <= min(left.began_s, right.began_s)
    assert last.began_s >= max(left.ended_s, right.ended_s)
    assert run("diamond").y.tolist() == [1, 2, 3, 4, 6, 7, 8, 9]


def test_a_run_of_no_task_ends(run: Run) -> None:
    assert run("nothing").y.tolist() == [-1] * 8


@pytest.mark.parametrize("blocks", [1, 5])
def test_blocks_are_those_of_the_config(run: Run, blocks: int) -> None:
    assert run("count", config={"block_dim": blocks}).y.tolist() == [blocks] * blocks + [-1] * (8 - blocks)


@pytest.mark.parametrize("devices", [1, 2, 4])
def test_copies_lead_from_device_to_device(run: Run, devices: int) -> None:
    assert run("around", level=3, devices=devices).y.tolist() == [*range(devices, devices + 8)]


def test_tasks_beside_each_other_need_no_order(run: Run) -> None:
    """They read the same tensor, and write different parts of another one."""
    assert run("unordered_neighbours").y.tolist()[4:] == [4, 5, 6, 7]


@pytest.mark.parametrize(
    ("function", "level", "message"),
    [
        ("of_the_host", 3, "task 0 runs on device 0, but its tensor 0 is in the memory of the host; copy it first"),
        ("of_another_device", 3, "tensor 0 is in the memory of device 1; copy it first"),
        ("of_another_device", 2, "tensor 0 is in the memory of device 1; copy it first"),
        ("no_such_device", 3, "allocate: there is no device 2 of 2"),
        ("no_such_kernel", 2, "submit: no kernel has func_id 0"),
        ("after_a_later_task", 2, "task 0 is after task 0, which is none before it"),
        ("copy_of_another_size", 2, "copy: 32 bytes into 4"),
        ("raises", 2, "task 0, kernel 7, block 1 on device 0: no such tile"),
    ],
)
def test_what_cannot_be_is_said(run: Run, function: str, level: int, message: str) -> None:
    with pytest.raises(Fault) as caught:
        run(function, level=level, devices=2)
    assert caught.value.reason is Reason.RAISED
    assert message in str(caught.value)


def test_unordered_copy_is_detected(run: Run) -> None:
    with pytest.raises(Fault) as caught:
        run("unordered")
    assert caught.value.reason is Reason.NONDETERMINISTIC
    assert says_exactly(str(caught.value), "scenes.task_copy_to_device")


def test_level_2_device_uses_host_memory(run: Run) -> None:
    assert run("of_the_host").y.tolist() == [*range(1, 9)]


@pytest.mark.parametrize(
    ("place", "message"),
    [
        (8, "memory was written 0 bytes behind the end of allocation 0 on device 0"),
        (-1, "memory was written 1 bytes before the start of allocation 0 on device 0"),
        (8 + 1000, "memory was written 4000 bytes behind the end"),
    ],
)
def test_writes_beyond_an_allocation_are_found(run: Run, place: int, message: str) -> None:
    with pytest.raises(Fault, match=message) as caught:
        run("beyond", scalar=place)
    assert caught.value.reason is Reason.OUT_OF_BOUNDS
    run("beyond", scalar=7)


def test_memory_that_nobody_wrote_is_no_number(run: Run) -> None:
    assert np.isnan(run("unwritten").y.view(np.float32)).all()


def test_a_dump_has_the_tensors_of_every_task(run: Run) -> None:
    x, y, recorded = run("chain", recorded=Recorded(dumps=True), config={"block_dim": 3})
    assert {name for name, _, _ in recorded.tensors} == {"task 0 kernel 3", "task 1 kernel 3"}
    assert recorded.tensors["task 0 kernel 3", "before", 0].tolist() == x.tolist()
    between = recorded.tensors["task 0 kernel 3", "after", 1]
    assert (between.dtype, between.tolist()) == (np.int32, [*range(1, 9)])
    assert recorded.tensors["task 1 kernel 3", "before", 1].tolist() == [-1] * 8
    assert recorded.tensors["task 1 kernel 3", "after", 1].tolist() == y.tolist()


def test_dumped_device_memory_has_its_tensors_dtype(run: Run) -> None:
    tensors = run("diamond", recorded=Recorded(dumps=True)).recorded.tensors
    part = tensors["task 2 kernel 3", "before", 0]
    assert (part.dtype, part.tolist()) == (np.int32, [4, 5, 6, 7])
    whole = tensors["task 3 copy", "after", 0]
    assert (whole.dtype, whole.shape) == (np.int32, (8,))


def test_a_timeline_has_every_block(run: Run) -> None:
    spans = run("around", level=3, devices=2, recorded=Recorded(profiles=True), config={"block_dim": 2}).recorded.spans
    copies, kernels = [f"task {task} copy block 0" for task in (0, 2, 4)], ("task 1 kernel 3", "task 3 kernel 3")
    blocks = [f"{kernel} block {block}" for kernel in kernels for block in (0, 1)]
    assert sorted(each.name for each in spans) == sorted([*copies, *blocks])
    assert {each.device for each in spans} == {10, 11}, "the ids of the devices, not their places"
    assert all(each.began_s <= each.ended_s for each in spans)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"incores": []}, "no kernel has func_id"),
        ({"incores": [{"source": "k.cpp"}]}, "func_id is None, expected int"),
        ({"incores": [{"func_id": 0, "source": "a"}] * 2}, "two kernels have the same func_id"),
        ({"orchestration": "o.cpp"}, "orchestration is 'o.cpp', expected Mapping"),
        ({"orchestration": {"source": "gone.cpp", "function_name": "f"}}, "source gone.cpp does not exist"),
        ({"function_name": "gone"}, 'the source has no function extern "C" gone'),
        ({"signature": ["sideways"]}, "'SIDEWAYS' is no direction"),
    ],
)
def test_a_wrong_callable_is_explained(sources: Path, changes: Mapping[str, Any], message: str) -> None:
    kernel = {"func_id": 9, "source": str(sources / "kernels.cpp"), "function_name": "count", **changes}
    callable_ = {**callable_of(sources, "count"), "incores": [kernel], **changes}
    args = TaskArgs(Tensor("x", np.zeros(1)), Tensor("y", np.zeros(1)))

    def build_and_run() -> None:
        runtime = CppRuntime()
        program = runtime.build(callable_, "cpusim", level=2)
        runtime.open("cpusim", [0]).run(program, args, RunOptions(config={}, level=2, recording=Recorded()))

    with pytest.raises(Fault) as caught:
        build_and_run()
    assert message in str(caught.value)
