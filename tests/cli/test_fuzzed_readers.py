"""Mutants of every kind of file that optest reads are refused in a sentence or accepted: no traceback, hang or blow-up.

``FUZZ_MUTANTS=2000 FUZZ_SEED=7 pytest -n 2 tests/cli/test_fuzzed_readers.py`` looks further than the test.
"""

from __future__ import annotations

import io
import json
import os
import random
import re
import shutil
import sqlite3
import subprocess
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import warm_python
import yaml
from msgspec import msgpack
from user_shell import Ended, user_environment

from optest.reporting.from_journal import FORMATS

pytestmark = pytest.mark.heavy

MUTANTS = int(os.environ.get("FUZZ_MUTANTS", "45"))
SEED = int(os.environ.get("FUZZ_SEED", "38"))
ALLOWED = (0, 1, 2, 5)
TIMEOUT_S = 60
MEMORY_BYTES = 1500 << 20

Mutate = Callable[[random.Random, bytes], bytes]

# Mutations


def nasty_value(rng: random.Random) -> Any:
    values: list[Any] = [
        None, True, False, 0, -1, 3, 2**31, 2**63, 10**30, 1.5, 1e308, float("nan"), float("inf"), "", " ", "\0",
        "\x1b[2J", "a" * 5000, "float32", "../x", "$m", "{input0}", "\ud800", "=1", [], {}, [[]], [None], {"a": {}},
        {"": 1}, "x", [1, "a"], {"fill": "ones"}, ["2x3"], "2x3", "2026-13-45T99:00", "/dev/zero", "*", "(", "[0]",
    ]  # fmt: skip
    return rng.choice(values)


def places(node: Any) -> list[tuple[Any, Any]]:
    """Every container with a key or index of it."""
    items = list(node.items()) if isinstance(node, dict) else list(enumerate(node)) if isinstance(node, list) else []
    return [(node, key) for key, _ in items] + [each for _, value in items for each in places(value)]


def changed(rng: random.Random, data: Any, times: int = 0) -> Any:
    """Plain data with one to three changes of values, keys and entries."""
    data = json.loads(json.dumps(data))
    for _ in range(times or rng.choice((1, 1, 1, 2, 3))):
        every = places(data)
        if not every:
            return nasty_value(rng)
        node, key = rng.choice(every)
        match rng.randrange(8):
            case 0:
                del node[key]
            case 1:
                donor, other = rng.choice(every)
                node[key] = json.loads(json.dumps(donor.get(other) if isinstance(donor, dict) else other))
            case 2 if isinstance(node, dict):
                node[rng.choice(("", "x", str(key)[:-1], f"{key}s", "a" * 300))] = node.pop(key)
            case 3 if isinstance(node, list):
                node.insert(key, node[key])
            case 4 if isinstance(node, dict):
                node[rng.choice(("x", "version", "name", "shape", "<<"))] = nasty_value(rng)
            case _:
                node[key] = nasty_value(rng)
    return data


PIECES = (
    b"", b"[" * 5000, b"{" * 200, b"9" * 5000, b"&a [*a]", b"*a", b"<<: {}", b"? [a]", b"---\n",
    b"\0", b"\xff\xfe", b"\xed\xa0\x80", b"\"\\ud800\"", b"\t", b"'", b'"', b"#", b"a" * 70000, b"-1", b"1e999",
    b"!!python/object:os.system x", b"0x10", b"yes", b"NULL", b"\\", b"\r\n", b"(", b")" , b"/*", b"*/", b";", b",",
)  # fmt: skip


def changed_text(rng: random.Random, raw: bytes) -> bytes:
    """Text or bytes with changes of lines, words or single bytes."""
    for _ in range(rng.choice((1, 1, 2, 4))):
        kind = rng.randrange(7)
        lines = raw.split(b"\n")
        at = rng.randrange(len(raw) + 1)
        line = rng.randrange(len(lines))
        if kind == 0:
            raw = b"\n".join(lines[:line] + lines[line + 1 :])
        elif kind == 1:
            raw = b"\n".join(lines[: line + 1] + lines[line:])
        elif kind == 2:
            raw = raw[:at] + rng.choice(PIECES) + raw[at:]
        elif kind == 3:
            words = list(re.finditer(rb"[\w.+-]+", raw)) or [re.match(rb"", raw)]
            word = rng.choice(words)
            assert word is not None
            raw = raw[: word.start()] + rng.choice((*PIECES, rng.choice(words)[0])) + raw[word.end() :]  # type: ignore[index]
        elif kind == 4:
            raw = raw[:at]
        elif raw:
            at = min(at, len(raw) - 1)
            raw = raw[:at] + bytes([rng.choice((0, 255, raw[at] ^ 1 << rng.randrange(8)))]) + raw[at + 1 :]
    return raw


def changed_yaml(rng: random.Random, raw: bytes) -> bytes:
    if rng.random() < 0.3:
        return changed_text(rng, raw)
    data = changed(rng, yaml.safe_load(raw))
    return json.dumps(data, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")


def changed_command(rng: random.Random, raw: bytes) -> bytes:
    """A plan with another section of its backend; the rest would be refused before that is read."""
    data = yaml.safe_load(raw)
    config = data["cases"][0]["backend_config"]
    config["command"] = changed(rng, config["command"])
    return json.dumps(data).encode()


def changed_journal(rng: random.Random, raw: bytes) -> bytes:
    """Lines with other content and right checksums, or other lines."""
    if rng.random() < 0.2:
        return changed_text(rng, raw)
    lines = raw.splitlines()
    at = rng.randrange(len(lines))
    data = json.loads(lines[at])
    del data["crc32"]
    body = next(key for key in ("info", "result", "summary") if key in data)
    data[body] = changed(rng, data[body])
    text = json.dumps(data).encode("utf-8", "surrogatepass")[:-1]
    lines[at] = text + b',"crc32":%d}' % zlib.crc32(text)
    return b"\n".join(lines) + b"\n"


def changed_history(rng: random.Random, raw: bytes) -> bytes:
    if rng.random() < 0.3:
        return changed_text(rng, raw)
    path = Path("mutant.sqlite")
    path.write_bytes(raw)
    database = sqlite3.connect(path)
    ((results,),) = database.execute("SELECT results FROM runs LIMIT 1")
    if rng.random() < 0.7:
        data = json.dumps(changed(rng, msgpack.decode(zlib.decompress(results)))).replace(r"\ud800", "x")
        packed = msgpack.encode(json.loads(data.replace(str(10**30), str(2**63))))
        value: Any = zlib.compress(packed if rng.random() < 0.9 else changed_text(rng, packed))
        database.execute("UPDATE runs SET results = ?", (value,))
    else:
        value = rng.choice((None, 3, "text", b"", b"\x00\xff", 1.5))
        column = rng.choice(("run", "started_at", "target", "results"))
        database.execute(f"UPDATE runs SET {column} = ?", (value,))
    database.commit()
    database.close()
    return path.read_bytes()


def changed_archive(rng: random.Random, raw: bytes) -> bytes:
    """A ZIP file with right checksums and other members, or other bytes."""
    if rng.random() < 0.3:
        return changed_text(rng, raw)
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(raw)) as source, zipfile.ZipFile(out, "w") as target:
        names = source.namelist()
        chosen = rng.choice(names)
        for name in names:
            data = source.read(name)
            if name == chosen:
                data = changed_text(rng, data)
                name = rng.choice((name, name, name, "x", f"../{name}"))
            target.writestr(name, data)
    return out.getvalue()


def changed_npy(rng: random.Random, raw: bytes) -> bytes:
    """Another header of the right length."""
    if rng.random() < 0.3:
        return changed_text(rng, raw)
    header = changed_text(rng, raw[10:128].rstrip())[:60000]
    return raw[:8] + len(header).to_bytes(2, "little") + header + raw[128:]


def changed_safetensors(rng: random.Random, raw: bytes) -> bytes:
    if rng.random() < 0.3:
        return changed_text(rng, raw)
    length = int.from_bytes(raw[:8], "little")
    header = json.dumps(changed(rng, json.loads(raw[8 : 8 + length]))).encode("utf-8", "surrogatepass")
    return len(header).to_bytes(8, "little") + header + raw[8 + length :]


def changed_onnx(rng: random.Random, raw: bytes) -> bytes:
    """A model with another value of a few of its fields, or other bytes."""
    import onnx

    return changed_text(rng, raw) if rng.random() < 0.3 else changed_fields(rng, onnx.load_from_string(raw))


def changed_pb(rng: random.Random, raw: bytes) -> bytes:
    import onnx

    return changed_text(rng, raw) if rng.random() < 0.3 else changed_fields(rng, onnx.load_tensor_from_string(raw))


def changed_fields(rng: random.Random, model: Any) -> bytes:
    from google.protobuf.descriptor import FieldDescriptor

    def fields(message: Any) -> list[tuple[Any, Any]]:
        here = []
        for field, value in message.ListFields():
            here.append((message, field))
            for each in value if isinstance(value, (list, tuple)) or hasattr(value, "add") else [value]:
                if hasattr(each, "ListFields"):
                    here += fields(each)
        return here

    for _ in range(rng.choice((1, 1, 2))):
        message, field = rng.choice(fields(model))
        value = getattr(message, field.name)
        is_number = field.cpp_type in (FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_INT64)
        if hasattr(value, "__len__") and not isinstance(value, (str, bytes)) and len(value) and rng.random() < 0.6:
            del value[rng.randrange(len(value))]
        elif is_number and not hasattr(value, "append"):
            setattr(message, field.name, rng.choice((0, -1, 1, 2, 94, 2**31 - 1)))
        elif isinstance(value, (str, bytes)):
            texts = ("", "x", "out", value[:-1])
            chosen = rng.choice([t.encode() if isinstance(value, bytes) and isinstance(t, str) else t for t in texts])
            setattr(message, field.name, chosen)
        else:
            message.ClearField(field.name)
    return bytes(model.SerializeToString())


# Readers: a file that is accepted, the command that reads it, and how it is changed


@dataclass(frozen=True)
class Reader:
    """How a file is read: ``seed`` is its text or writes it, ``words`` the command line that reads it."""

    file: str
    seed: str | Callable[[Path], object]
    words: str | Callable[[random.Random], list[str]]
    mutate: Mutate
    kinds: int = 6
    """Different outcomes that the mutants have at least."""
    needs: str = ""
    names_file: bool = True
    """Whether each refusal names the file."""

    def write(self, path: Path) -> None:
        if isinstance(self.seed, str):
            path.write_text(self.seed)
        else:
            self.seed(path)

    def command(self, rng: random.Random) -> list[str]:
        return self.words.split() if isinstance(self.words, str) else self.words(rng)


PLAN = """
version: 1
name: all
backend: numpy
seed: 3
report: {format: json, path: out.json}
defaults: {dtypes: float32, tolerance: {rtol: 0.001, atol: 0.001}, timeout: 20, attributes: {dim: -1}}
cases:
  - {op: relu, name: one, shapes: {input0: [2, 3]}, generator: {input0: {fill: uniform, low: -1, high: 1}}}
  - {op: add, shapes: {input0: 2x3, input1: [1, 3]}, dtypes: [float16, float16], xfail: known, priority: 2}
  - op: softmax
    shapes: {input0: [$m, 4]}
    product: {m: [1, 2, 3], dtypes: [float16, float32], seed: [0, 1]}
    exclude: [{m: 1, dtypes: float16}]
  - {op: matmul, shapes: {input0: {shape: [4, 4], strides: [1, 4]}, input1: [4, 4]}, invariants: [repeat]}
"""
EXPECTATIONS = """
version: 1
written_for: {torch: "2.0"}
expected:
  - {op: add, dtype: float32, reason: VALUE, why: "known"}
  - {op: [argmax, relu], dtype: [float16, bfloat16], where: {case_set: special, fill: data}, reason: NAN, why: "NaN"}
"""
COMMAND = """
backend: command
cases:
  - op: add
    dtypes: float32
    shapes: {input0: [2, 3], input1: [2, 3]}
    backend_config:
      command:
        workdir: .
        build: [["true"]]
        prepare: [["true"]]
        command: ["true", "{input0}", "{input1}", "{output0}", "{shape0}"]
        env: {A: b}
        inputs: [{tensor: input0, path: a.bin, dtype: float32}, {tensor: input1, path: b.bin}]
        outputs: [{tensor: output0, path: c.bin, dtype: float32}]
        promises: {dtypes: [float32], ranks: [1, 2], refuses: true}
"""
TOLERANCES = """
{"default": {"atol": 0.0005, "rtol": 0.0001},
 "rules": [{"backend": "numpy", "test": "relu*", "atol": 0.002}, {"test": "add*", "rtol": 0.1}]}
"""
HEADER = """
#include <stddef.h>
#ifndef A_H
#define A_H
#define N 3
typedef enum { OK = 0, BAD = N + 1 } status_t;
typedef struct pair { double a; int b[N]; struct pair *next; } pair_t;
typedef int (*callback)(const void *, size_t);
int memcpy(void *to, const void *from, size_t bytes);
void qsort(void *items, size_t count, size_t size, callback f);
int abs(int x);
#endif
"""
MAPPING = """
version: 1
name: memory
library: [libc.so.6]
headers: [a.h]
status: {type: int, success: [0]}
devices: {cpu: 0}
threads: {environment: [OMP_NUM_THREADS], callers: any}
operators:
  relu:
    dtypes: [int8]
    function: memcpy
    dims: {out: ["n..."], input: ["n..."]}
    call: ["output:out", "input:input", "elements:input"]
"""
SUITE = """
defaults: {backend: onnxruntime, seed: 1}
runs:
  - {model: small.onnx, workload: [validate, trace], config: {batch: 2}, variant: basic}
  - {model: small.onnx, workload: trace, mode: accumulated}
"""
CONFIG = """
jobs = 1
tolerances = "t.json"
isolate = "auto"
report = ["json"]
timeout = 20.0
no_color = true
"""
SCENE = """
import numpy as np
from optest.scenes import ArgDirection as D
from optest.scenes import SceneTestCase, TaskArgsBuilder, Tensor, scene_test


@scene_test(level=2, runtime="cpp", platforms=["cpusim"])
class TestAdd(SceneTestCase):
    CALLABLE = {
        "orchestration": {"source": "o.cpp", "function_name": "add", "signature": [D.IN, D.OUT]},
        "incores": [{"func_id": 0, "source": "a.cpp", "core_type": "aiv"}],
    }
    CASES = [{"name": "default", "config": {"block_dim": 3}, "params": {"size": 16}, "manual": False}]
    RTOL = 1e-3

    def generate_args(self, params):
        return TaskArgsBuilder(Tensor("a", np.zeros(params["size"])), Tensor("f", np.zeros(params["size"])))

    def compute_golden(self, args, params):
        args.f[:] = args.a + 1
"""
MODEL_CASES = """
model: template
default: {dtype: fp16, seed: 123, rtol: 1.0e-3, atol: 1.0e-3}
cases:
  - {name: add, op: torch.add, inputs: [{tensor: {shape: [4, 8], init: randn}}, {tensor: {shape: [4, 8], init: randn}}]}
  - name: integers
    op: torch.add
    inputs:
      - tensor: {shape: [11, 6], dtype: fp32, init: randn}
      - tensor: {shape: [11, 6], dtype: int64, init: randint, init_args: {high: 100}}
  - {name: view, op: torch.ops.aten.view, inputs: [{tensor: {shape: [1, 64]}}, {value: [2, 32]}]}
  - name: cat
    op: torch.cat
    attrs: {dim: -1}
    inputs: [{tensor_list: [{shape: [2, 3, 4], init: randn}, {shape: [2, 3, 5], init: randn}]}]
  - name: refused
    op: torch.view
    expects_error: {type: RuntimeError, match: view}
    inputs: [{tensor: {shape: [2, 3, 8], preset: noncontig_slice, preset_args: {dim: 1, step: 2}}}, {value: [2, 24]}]
"""
SUITE_CONFIG = """
test_suite_config:
  labels: [trunk]
  global:
    supported_dtypes: [{name: float16, precision: {atol: 0.005, rtol: 0.005}}, int64]
    input_config: {seed: 123}
  files:
    - path: ${TORCH_DEVICE_ROOT}/tests/test_model_ops.py
      unlisted_test_mode: skip
      tests:
        - names: ["TestModelOps::test_ops"]
          mode: xfail
          tags: [model__mine]
          edits:
            ops:
              include:
                - name: torch.eq
                  sample_inputs_func:
                    args:
                      - tensor: {shape: [1, 34], stride: [34, 1], storage_offset: 0, dtype: torch.int64, init: randint}
                      - value: 3
                - name: torch.getitem
                  sample_inputs_func: {args: [{tensor: {shape: [8]}}, {py: "(None, slice(None, 4))"}], kwargs: {}}
                  tags: [torch.getitem.1]
"""
CTEST = """
add_test([=[one]=] "true")
set_tests_properties([=[one]=] PROPERTIES LABELS "a;b" TIMEOUT "5" _BACKTRACE_TRIPLES "CMakeLists.txt;1;add_test;;")
add_test(two "true" "x")
set_tests_properties(two PROPERTIES RESOURCE_GROUPS "1,npus:1" SKIP_RETURN_CODE "77")
"""


def write_library(path: Path) -> None:
    (path.parent / "a.h").write_text(HEADER)
    path.write_text(MAPPING)


def write_suite(path: Path) -> None:
    from small_models import written

    written(path.parent / "small.onnx")
    path.write_text(SUITE)


def write_onnx(path: Path) -> None:
    from small_models import written

    written(path)


def write_input(path: Path) -> None:
    from onnx import numpy_helper

    write_onnx(path.parent / "m.onnx")
    x = np.ones((3, 8), np.float32)
    if path.suffix == ".npy":
        np.save(path, x)
    elif path.suffix == ".npz":
        np.savez(path, x=x)
    else:
        path.write_bytes(numpy_helper.from_array(x, "x").SerializeToString())


def write_dumps(path: Path) -> None:
    save_safetensors(path, np.ones(3, np.float32))
    save_safetensors(path.parent / "b.safetensors", np.ones(3, np.float32))


def write_config(path: Path) -> None:
    (path.parent / "t.json").write_text(TOLERANCES)
    header = "[tool.optest]" if path.name == "pyproject.toml" else ""
    path.write_text(header + CONFIG)


def write_run(path: Path) -> None:
    """A journal with passes, failures with pictures, crashes, and times."""
    (path.parent / "plan.yaml").write_text(PLAN)
    (path.parent / "runs.yaml").write_text(
        "backend: faulty\ncases:\n"
        + "".join(
            f"  - {{op: relu, shapes: {{input0: [3, 4]}}, seed: {n}, backend_config: {{faulty: {{fault: {fault}}}}}}}\n"
            for n, fault in enumerate(("none", "value", "nan", "refuse", "segfault"))
        )
    )
    environment = user_environment(OPTEST_PLUGINS="faulty_backend")
    ran = ["run", "--plan", "runs.yaml", "--runs-dir", "runs", "--bench"]
    assert warm_python.run("optest", *ran, cwd=path.parent, env=environment, further=()).returncode == 1
    (journal,) = (path.parent / "runs").glob("*/journal.jsonl")
    shutil.copy(journal, path)


def write_history(path: Path) -> None:
    write_run(path.parent / "journal.jsonl")
    kept = ["history", "--keep", path.name, "--runs-dir", "runs"]
    assert warm_python.run("optest", *kept, cwd=path.parent, env=user_environment(), further=()).returncode == 0
    shutil.rmtree(path.parent / "runs")


def tensors(save: Callable[[Path, Any], object], key: str = "") -> Callable[[Path], object]:
    def write(path: Path) -> None:
        save(path, np.arange(6, dtype=np.float32).reshape(2, 3))
        named = f", key: {key}" if key else ""
        (path.parent / "plan.yaml").write_text(
            "cases: [{op: relu, dtypes: float32, shapes: {input0: [2, 3]},"
            f" generator: {{fill: file, path: {path.name}{named}}}}}]"
        )

    return write


def save_pt(path: Path, array: Any) -> None:
    import torch

    torch.save({"x": torch.from_numpy(array)}, path)


def save_safetensors(path: Path, array: Any) -> None:
    from safetensors.numpy import save_file

    save_file({"x": array}, path)


def report_words(rng: random.Random) -> list[str]:
    form = rng.choice(list(FORMATS))
    return ["report", "journal.jsonl", *(["-v"] if form == "terminal" else ["--format", form, "-o", "out"])]


_CO = "run --co --plan"
_RELU = "run --op relu --shape input0=4"
_TENSOR = "run --plan plan.yaml --isolate none"
_INSPECT = "ffi inspect libc.so.6 --headers a.h"
_VALIDATE = "model validate m.onnx --input"
_ONNX = "onnx onnxruntime"
_DIFF = "model diff a.safetensors b.safetensors"


def onnx_words(rng: random.Random) -> list[str]:
    return ["model", rng.choice(("validate", "trace")), "m.onnx"]


def write_npz(path: Path, array: Any) -> None:
    np.savez(path, x=array)


READERS = {
    "plan": Reader("plan.yaml", PLAN, f"{_CO} plan.yaml", changed_yaml, 20),
    "expectations": Reader("e.yaml", EXPECTATIONS, f"{_RELU} --expectations e.yaml", changed_yaml, 12),
    "command config": Reader("plan.yaml", COMMAND, f"{_CO} plan.yaml", changed_command, 15),
    "tolerances": Reader("t.json", TOLERANCES, f"{_RELU} --tolerances t.json", changed_yaml, 10),
    "mapping": Reader("m.yaml", write_library, f"{_INSPECT} --mapping m.yaml", changed_yaml, 15),
    "header": Reader("a.h", HEADER, f"{_INSPECT} --signatures", changed_text, 3, "gcc", names_file=False),
    "suite": Reader("s.yaml", write_suite, "model suite s.yaml", changed_yaml, 12, _ONNX, names_file=False),
    "onnx": Reader("m.onnx", write_onnx, onnx_words, changed_onnx, needs=_ONNX, names_file=False),
    "pb": Reader("x.pb", write_input, f"{_VALIDATE} x.pb", changed_pb, 4, _ONNX),
    "input npy": Reader("x.npy", write_input, f"{_VALIDATE} x.npy", changed_npy, 4, _ONNX),
    "input npz": Reader("x.npz", write_input, f"{_VALIDATE} x.npz", changed_archive, 4, _ONNX),
    "dump": Reader("a.safetensors", write_dumps, _DIFF, changed_safetensors, needs="safetensors"),
    "suite config": Reader("c.yaml", SUITE_CONFIG, f"{_CO} c.yaml", changed_yaml, 15, "torch"),
    "history": Reader("h.sqlite", write_history, "history --keep h.sqlite -v", changed_history),
    "journal": Reader("journal.jsonl", write_run, report_words, changed_journal, 8),
    "model cases": Reader("c.yaml", MODEL_CASES, f"{_CO} c.yaml", changed_yaml, 20, "torch"),
    "scene": Reader("test_add.py", SCENE, "run --co --source scene:test_add.py", changed_text),
    "ctest": Reader("CTestTestfile.cmake", CTEST, "ctest --test-dir .", changed_text, 3, "cmake", names_file=False),
    "optest.toml": Reader("optest.toml", write_config, _RELU, changed_text, names_file=False),
    "pyproject": Reader("pyproject.toml", write_config, _RELU, changed_text, names_file=False),
    "npy": Reader("x.npy", tensors(np.save), _TENSOR, changed_npy),
    "npz": Reader("x.npz", tensors(write_npz, "x"), _TENSOR, changed_archive),
    "pt": Reader("x.pt", tensors(save_pt, "x"), _TENSOR, changed_archive, needs="torch"),
    "safetensors": Reader(
        "x.safetensors", tensors(save_safetensors, "x"), _TENSOR, changed_safetensors, needs="safetensors"
    ),
}


def outcome(ended: Ended) -> str:
    """The kind of an outcome: the status and the first line without names, numbers and places."""
    line = ended.err.strip().partition("\n")[0]
    if ended.status == 1 and (error := re.search(r"\nERROR .*\n(.*)", ended.out)):
        line = f"error {error[1]}"
    elif ended.status != 2:
        return str(ended.status)
    return re.sub(r"'[^']*'|\"[^\"]*\"|\S*[/\\\[.$:]\S*|\d+", "#", line)[:70]


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.needs(each.needs) if each.needs else []) for name, each in READERS.items()],
)
def test_no_mutant_breaks_a_reader(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader, rng = READERS[name], random.Random(f"{SEED} {name}")
    monkeypatch.chdir(tmp_path)
    path = tmp_path / reader.file
    reader.write(path)
    raw = path.read_bytes()
    further = warm_python.TORCH if "torch" in reader.needs or "onnx" in reader.needs else ()

    def run(words: list[str]) -> Ended:
        env = user_environment(OMP_NUM_THREADS="1")
        ended = warm_python.run(
            "optest", *words, cwd=tmp_path, env=env, timeout=TIMEOUT_S, further=further, memory=MEMORY_BYTES
        )
        return Ended(ended.returncode, ended.stdout, ended.stderr)

    first = run(reader.command(rng))
    assert first.status == 0, f"the seed has to be accepted: {first.text}"
    broken: list[str] = []
    outcomes: Counter[str] = Counter()
    for number in range(MUTANTS):
        mutant, words = reader.mutate(rng, raw), reader.command(rng)
        path.write_bytes(mutant)
        try:
            ended = run(words)
        except subprocess.TimeoutExpired:
            ended = Ended(-1, "", f"no end in {TIMEOUT_S} s")
        outcomes[outcome(ended)] += 1
        unnamed = reader.names_file and ended.status == 2 and reader.file not in ended.text
        if ended.status not in ALLOWED or "Traceback (most" in ended.text or unnamed:
            kept = tmp_path / f"mutant-{number}{path.suffix}"
            kept.write_bytes(mutant)
            broken.append(f"{kept}: optest {' '.join(words)}: {ended.status}\n{ended.text[-1500:]}")
        shutil.rmtree(tmp_path / ".optest", ignore_errors=True)
    print(*outcomes.most_common(), sep="\n")
    assert not broken, f"{len(broken)} of {MUTANTS}:\n" + "\n".join(broken[:20])
    assert 0 < outcomes["0"] < MUTANTS, outcomes
    assert len(outcomes) >= reader.kinds, outcomes
