"""The scenes of the examples pass, and each mistake in their sources is found as what it is."""

from __future__ import annotations

import io
import re
import shutil
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import pytest

from optest.api.running import run
from optest.spec import CaseResult, Reason

EXAMPLES = Path(__file__).parents[2] / "examples" / "scenes"

CPP = {
    "matmul, a tile that is always whole": ("matmul_tiled/kernels/matmul.cpp", "std::min(kTile, m - row)", "kTile"),
    "matmul, no tile for the rest": ("matmul_tiled/kernels/tile.h", "(size + kTile - 1)", "size"),
    "matmul, rows of another matrix": ("matmul_tiled/kernels/matmul.cpp", "a[(row + i) * k + p]", "a[i * k + p]"),
    "matmul, a changed input": (
        "matmul_tiled/kernels/matmul.cpp",
        "float sum[",
        "args[0].as<float>()[0] += 1;\n        float sum[",
    ),
    "matmul, an unknown name": ("matmul_tiled/kernels/matmul.cpp", "= sum[i][j]", "= sums[i][j]"),
    "matmul, an unknown function": (
        "matmul_tiled/kernels/orchestration.cpp",
        "void matmul(",
        "void multiply(",
    ),
    "matmul, an address that is none": (
        "matmul_tiled/kernels/matmul.cpp",
        "float sum[",
        "*reinterpret_cast<volatile float*>(8) = 0;\n        float sum[",
    ),
    "matmul, an exception": (
        "matmul_tiled/kernels/orchestration.cpp",
        "graph.submit(0",
        "graph.submit(static_cast<int>(args.scalar(0))",
    ),
    "ring, a copy before its chunk": (
        "ring_allreduce/kernels/ring.cpp",
        ".after = {before[d].last, before[to].last}",
        ".after = {before[to].last}",
    ),
    "ring, a neighbour that still reads": (
        "ring_allreduce/kernels/ring.cpp",
        ", .after = {before[d].last, before[(d + 1) % n].last}",
        "",
    ),
    "ring, the memory of another device": ("ring_allreduce/kernels/ring.cpp", "{.device = to});", "{.device = d});"),
    "ring, a step too few": ("ring_allreduce/kernels/ring.cpp", "step < 2 * (n - 1)", "step < 2 * (n - 1) - 1"),
    "ring, a row that nobody copied": (
        "ring_allreduce/kernels/ring.cpp",
        "graph.copy(device.row, from)",
        "graph.copy(device.received, from)",
    ),
    "ring, a write behind the end": ("ring_allreduce/kernels/add.cpp", "i < block.end", "i <= block.end"),
    "ring, an output that nobody wrote": (
        "ring_allreduce/kernels/ring.cpp",
        "d < n; ++d) graph.copy(args[1]",
        "d < 0; ++d) graph.copy(args[1]",
    ),
}
OPENCL = {
    "saxpy, no bound": ("opencl/kernels/saxpy.cl", "if (i < size) ", ""),
    "saxpy, a sum that is none": ("opencl/kernels/saxpy.cl", "y[i] +=", "y[i] ="),
    "saxpy, a changed input": ("opencl/kernels/saxpy.cl", "y[i] +=", "((__global float *)x)[i] = y[i] +="),
    "saxpy, an unknown name": ("opencl/kernels/saxpy.cl", "alpha * x", "beta * x"),
    "saxpy, an argument more": ("opencl/kernels/saxpy.cl", "int size)", "int size, int stride)"),
    "saxpy, an unknown kernel": ("opencl/test_saxpy.py", '"function_name": "saxpy"', '"function_name": "saxpi"'),
    "saxpy, an unknown argument": ("opencl/test_saxpy.py", '"local_size"', '"arguments": ["x", "z"], "local_size"'),
    "sum, a half too small": ("opencl/test_tree_sum.py", "(size + 1) // 2", "max(1, size // 2)"),
    "sum, a write behind an allocation": ("opencl/kernels/tree_sum.cl", "x[i] +=", "x[size + i] ="),
    "sum, an unknown kernel": ("opencl/test_tree_sum.py", 'submit("first"', 'submit("last"'),
    "sum, a number for memory": ("opencl/test_tree_sum.py", "[left, middle, size]", "[1, middle, size]"),
}  # fmt: skip
TRITON = {
    "softmax, a store without its mask": ("triton/kernels/softmax.py", "0), mask=at < columns)", "0))"),
    "softmax, no maximum": ("triton/kernels/softmax.py", "value - tl.max(value, axis=0)", "value"),
    "softmax, a row too few": ("triton/kernels/softmax.py", "[(rows,)]", "[(rows - 1,)]"),
    "softmax, a changed input": ("triton/kernels/softmax.py", "rows, columns =", "args.x += 1; rows, columns ="),
    "softmax, an unknown name": ("triton/kernels/softmax.py", "triton.language ", "triton.languages "),
    "softmax, an unknown function": ("triton/test_softmax.py", '"function_name": "softmax"', '"function_name": "soft"'),
}  # fmt: skip
REASONS = {
    "matmul, a tile that is always whole": Reason.OUT_OF_BOUNDS,
    "matmul, no tile for the rest": Reason.UNWRITTEN,
    "matmul, rows of another matrix": Reason.VALUE,
    "matmul, a changed input": Reason.INPUT_MUTATED,
    "matmul, an unknown name": Reason.COMPILE,
    "matmul, an unknown function": Reason.BAD_CASE,
    "matmul, an address that is none": Reason.SIGNAL,
    "matmul, an exception": Reason.RAISED,
    "ring, a copy before its chunk": Reason.NONDETERMINISTIC,
    "ring, a neighbour that still reads": Reason.NONDETERMINISTIC,
    "ring, the memory of another device": Reason.RAISED,
    "ring, a step too few": Reason.VALUE,
    "ring, a row that nobody copied": Reason.NAN,
    "ring, a write behind the end": Reason.OUT_OF_BOUNDS,
    "ring, an output that nobody wrote": Reason.UNWRITTEN,
    "saxpy, no bound": Reason.OUT_OF_BOUNDS,
    "saxpy, a sum that is none": Reason.VALUE,
    "saxpy, a changed input": Reason.INPUT_MUTATED,
    "saxpy, an unknown name": Reason.COMPILE,
    "saxpy, an argument more": Reason.BAD_CASE,
    "saxpy, an unknown kernel": Reason.BAD_CASE,
    "saxpy, an unknown argument": Reason.BAD_CASE,
    "sum, a half too small": Reason.VALUE,
    "sum, a write behind an allocation": Reason.OUT_OF_BOUNDS,
    "sum, an unknown kernel": Reason.BAD_CASE,
    "sum, a number for memory": Reason.BAD_CASE,
    "softmax, a store without its mask": Reason.OUT_OF_BOUNDS,
    "softmax, no maximum": Reason.NAN,
    "softmax, a row too few": Reason.VALUE,
    "softmax, a changed input": Reason.INPUT_MUTATED,
    "softmax, an unknown name": Reason.COMPILE,
    "softmax, an unknown function": Reason.BAD_CASE,
}

Results = Mapping[str, list[CaseResult]]


def unchanged_sources(scene: str, copy: Path, changed: Path, folder: Path) -> str:
    """The scene with the correct example's own files in place of copies, so that each is compiled once."""
    of_correct = folder / "correct" / copy.name
    return re.sub(
        r'"source": "([^"]+)"',
        lambda found: found[0] if copy / found[1] == changed else f'"source": "{of_correct / found[1]}"',
        scene,
    )


def results_of(folder: Path, mistakes: Mapping[str, tuple[str, str, str]], *correct: str) -> Results:
    """The results of one run over the correct examples and a copy with each mistake, by the name of its folder."""
    for name in correct:
        shutil.copytree(EXAMPLES / name, folder / "correct" / name)
    for number, (name, (file, text, instead)) in enumerate(mistakes.items()):
        copy = shutil.copytree(EXAMPLES / Path(file).parts[0], folder / name / Path(file).parts[0])
        changed = copy.parent / file
        before = changed.read_text()
        assert before.count(text) == 1, f"{name}: {text} is {before.count(text)} times in {file}"
        changed.write_text(before.replace(text, instead))
        for scene in copy.glob("test_*.py"):  # a run has no two classes of the same name
            renamed = re.sub(r"class (\w+)", rf"class \g<1>{number}", scene.read_text())
            scene.write_text(renamed if changed.suffix == ".h" else unchanged_sources(renamed, copy, changed, folder))
    options = {"source": (f"scene:{folder}",), "device": "0-3", "runs_dir": str(folder / "runs")}
    outcome = run(options, stream=io.StringIO())
    by_folder: dict[str, list[CaseResult]] = {}
    for each in outcome.results:
        by_folder.setdefault(Path(each.attributes["file"]).relative_to(folder).parts[0], []).append(each)
    return by_folder


@pytest.fixture(scope="module")
def cpp(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return results_of(tmp_path_factory.mktemp("cpp"), CPP, "vector_add", "matmul_tiled", "ring_allreduce")


@pytest.fixture(scope="module")
def opencl(tmp_path_factory: pytest.TempPathFactory) -> Results:
    cl = pytest.importorskip("pyopencl")
    try:
        cl.get_platforms()[0].get_devices(cl.device_type.CPU)
    except (cl.Error, IndexError):
        pytest.skip("there is no OpenCL of a CPU; Debian's pocl-opencl-icd is one")
    return results_of(tmp_path_factory.mktemp("opencl"), OPENCL, "opencl")


@pytest.fixture(scope="module")
def triton(tmp_path_factory: pytest.TempPathFactory) -> Results:
    if find_spec("triton") is None:
        pytest.skip("Triton is large and no part of the test requirements: pip install triton")
    return results_of(tmp_path_factory.mktemp("triton"), TRITON, "triton")


def require_passed(results: Results, count: int) -> None:
    passed = [each.status.value for each in results["correct"]]
    assert passed == ["passed"] * count, [(each.id, each.verdict.message) for each in results["correct"]]


def require_found(results: Results, mistake: str) -> None:
    reasons = {each.reason for each in results[mistake]} - {None}
    assert reasons == {REASONS[mistake]}, [(each.id, each.reason, each.verdict.message) for each in results[mistake]]


@pytest.mark.heavy
@pytest.mark.cxx
class TestCpp:
    def test_correct_scenes_pass(self, cpp: Results) -> None:
        require_passed(cpp, 8)

    @pytest.mark.parametrize("mistake", CPP)
    def test_a_mistake_has_its_reason(self, cpp: Results, mistake: str) -> None:
        require_found(cpp, mistake)


@pytest.mark.heavy
class TestOpenCl:
    def test_correct_scenes_pass(self, opencl: Results) -> None:
        require_passed(opencl, 5)

    @pytest.mark.parametrize("mistake", OPENCL)
    def test_a_mistake_has_its_reason(self, opencl: Results, mistake: str) -> None:
        require_found(opencl, mistake)


@pytest.mark.slow
class TestTriton:
    def test_correct_scenes_pass(self, triton: Results) -> None:
        require_passed(triton, 2)

    @pytest.mark.parametrize("mistake", TRITON)
    def test_a_mistake_has_its_reason(self, triton: Results, mistake: str) -> None:
        require_found(triton, mistake)
