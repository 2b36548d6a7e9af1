""".pt files: what they hold is told without torch, and whatever is more than tensors is refused, never run."""

from __future__ import annotations

import os
import pickle
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from model_kit import call_of, case_of, file_of, said
from texts import refusal

from optest.plan.values import Misfit
from optest.torch.model_cases.saved_tensors import SavedTensor, saved_tensor


def word(text: str) -> bytes:
    return b"X" + struct.pack("<I", len(text)) + text.encode()


def sizes(values: tuple[int, ...]) -> bytes:
    return b"(" + b"".join(b"J" + struct.pack("<i", value) for value in values) + b"t"


def tensor(storage: str, shape: tuple[int, ...], strides: tuple[int, ...]) -> bytes:
    """The pickle of a tensor as torch writes it, without its header and its end."""
    module, _, name = storage.rpartition(".")
    identity = (
        b"(" + word("storage") + f"c{module or 'torch'}\n{name}\n".encode() + word("0") + word("cpu") + b"K\x06tQ"
    )
    hooks = b"ccollections\nOrderedDict\n)R"
    layout = b"K\x00" + sizes(shape) + sizes(strides)
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + identity + layout + b"\x89" + hooks + b"tR"


HALF = tensor("HalfStorage", (2, 3), (3, 1))


def archive(path: Path, described: bytes, member: str = "archive/data.pkl") -> Path:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(member, described)
        file.writestr("archive/data/0", bytes(12))
    return path


def saved(folder: Path, inside: bytes) -> Path:
    return archive(folder / "x.pt", b"\x80\x02" + inside + b".")


def test_a_tensor_is_described(tmp_path: Path) -> None:
    assert saved_tensor(saved(tmp_path, HALF), "x.pt") == SavedTensor("float16", (2, 3), (3, 1))
    turned = tensor("BFloat16Storage", (3, 2), (1, 3))
    assert saved_tensor(saved(tmp_path, turned), "x.pt") == SavedTensor("bfloat16", (3, 2), (1, 3))


def test_a_dictionary_of_tensors(tmp_path: Path) -> None:
    one = saved(tmp_path, b"}" + word("a") + HALF + b"s")
    assert saved_tensor(one, "x.pt").shape == (2, 3)
    assert saved_tensor(one, "x.pt", "a").shape == (2, 3)
    two = saved(tmp_path, b"}(" + word("a") + HALF + word("b") + tensor("LongStorage", (4,), (1,)) + b"u")
    assert saved_tensor(two, "x.pt", "b") == SavedTensor("int64", (4,), (1,))
    for key, words in ((None, "key selects none"), ("c", "none is called 'c'")):
        with pytest.raises(Misfit, match=f"contains 2 tensors \\(a, b\\), of which {words}") as raised:
            saved_tensor(two, "x.pt", key)
        assert "key: NAME" in raised.value.hint
    with refusal(Misfit, "plan.holds_one_tensor_without"):
        saved_tensor(saved(tmp_path, HALF), "x.pt", "a")


class Evil:
    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.reduced = (function, arguments)

    def __reduce__(self) -> Any:
        return self.reduced


@pytest.mark.parametrize("protocol", range(2, 6))
def test_code_in_pickle_is_never_run(tmp_path: Path, protocol: int) -> None:
    flag = tmp_path / "ran"
    written = Evil(exec, f"import os; os.mkdir({str(flag)!r})")
    for evil in (Evil(os.mkdir, str(flag)), [Evil(os.mkdir, str(flag))], {"a": written}):
        path = archive(tmp_path / "x.pt", pickle.dumps(evil, protocol))
        with refusal(Misfit, "plan.holds_more_than_tensors") as raised:
            saved_tensor(path, "x.pt")
        assert raised.value.hint
    assert not flag.exists()


DAMAGED = [
    *(b"", b"K", b"\x86", b"h\x07", b"t", b"R", b"Q", b"K\x01K\x02R", b"K\x01K\x02K\x03s", b"}}K\x01s"),
    *(b"r\xff\xff\xff\x7f", b"ctorch._utils\n_rebuild_tensor_v2\n)R"),
    tensor("HalfStorage", (2, -3), (3, 1)),
    tensor("HalfStorage", (2,), (3, 1)),
    tensor("torch.storage.UntypedStorage", (2,), (1,)),
]


@pytest.mark.parametrize(
    ("inside", "message"),
    [
        (b"cos\nsystem\n(" + word("true") + b"tR", "contains more than tensors: it calls os.system"),
        *((each, "contains no tensor") for each in (b"cposix\nsystem\n", b"K\x01", b"N")),
        (b"ctorch._utils\n_rebuild_sparse_tensor\n(K\x01tR", "it calls torch._utils._rebuild_sparse_tensor"),
        (b"ctorch._utils\n_rebuild_parameter\n(K\x01tR", "it calls torch._utils._rebuild_parameter"),
        (b"(" + word("storage") + b"cos\npath\n" + word("0") + word("cpu") + b"K\x06tQ", "a storage of type os.path"),
        (b"ccollections\nOrderedDict\n(K\x01tR", "it calls collections.OrderedDict"),
        (b"}", "contains 0 tensors \\(\\), of which key selects none"),
        (b"}]s", "it|is damaged"),
        (b"\x8d\xff\xff\xff\xff\xff\xff\xff\x00", "damaged|more than tensors"),
        (b"(" * 100_000, "contains no tensor"),
        *((inside, "is damaged") for inside in DAMAGED),
    ],
)
def test_what_is_no_tensor_is_refused(tmp_path: Path, inside: bytes, message: str) -> None:
    with pytest.raises(Misfit, match=message) as raised:
        saved_tensor(saved(tmp_path, inside), "x.pt")
    assert raised.value.message.startswith("x.pt ")
    assert raised.value.hint


@given(st.binary(max_size=60) | st.lists(st.sampled_from(list(HALF + b"}]sutRQ.)(NK")), max_size=80).map(bytes))
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_any_pickle_is_a_tensor_or_is_refused(tmp_path: Path, inside: bytes) -> None:
    try:
        found = saved_tensor(saved(tmp_path, inside), "x.pt")
    except Misfit:
        return
    assert isinstance(found, SavedTensor)


@pytest.mark.parametrize("content", [b"", b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.", b"PK\x03\x04" + bytes(100)])
def test_what_is_no_archive_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.pt"
    path.write_bytes(content)
    with pytest.raises(Misfit, match=r"x\.pt is not an archive of torch.save"):
        saved_tensor(path, "x.pt")


def test_archives_of_others_and_damaged_ones(tmp_path: Path) -> None:
    with refusal(Misfit, "plan.not_one_that_torch"):
        saved_tensor(archive(tmp_path / "x.pt", HALF, "word/document.xml"), "x.pt")
    with refusal(Misfit, "plan.not_one_that_torch"):
        saved_tensor(archive(tmp_path / "x.pt", bytes(5 * 1024 * 1024)), "x.pt")
    path = saved(tmp_path, HALF)
    raw = bytearray(path.read_bytes())
    raw[raw.index(b"HalfStorage")] ^= 1
    path.write_bytes(raw)
    with refusal(Misfit, "plan.is_no_archive_that"):
        saved_tensor(path, "x.pt")
    with refusal(Misfit, "plan.cannot_be_read_no"):
        saved_tensor(tmp_path / "y.pt", "x.pt")


def test_a_file_input_is_what_the_file_says(tmp_path: Path) -> None:
    saved(tmp_path, tensor("HalfStorage", (3, 2), (1, 3)))
    file = str(tmp_path / "m.yaml")
    case = case_of("op: torch.f, inputs: [{file: x.pt}, {value: 2}]", file=file)
    (argument,) = case.inputs
    assert case.attributes["call"] == "torch.f(input0, 2)"
    assert (argument.spec.dtype.name, argument.spec.shape, argument.spec.strides) == ("float16", (3, 2), (1, 3))
    assert (argument.fill.kind, argument.fill.parameters, case.base_dir) == ("file", {"path": "x.pt"}, str(tmp_path))
    as_tensor = case_of("op: torch.f, inputs: [{tensor: {init: file, init_args: {path: x.pt}}}]", file=file)
    assert as_tensor.inputs == case.inputs
    assert call_of(f"op: torch.f, inputs: [{{file: '{tmp_path}/x.pt'}}]") == "torch.f(input0)"
    stated = "{shape: [3, 2], dtype: fp16, stride: [2, 1], init: file, init_args: {path: x.pt}}"
    assert case_of(f"op: torch.f, inputs: [{{tensor: {stated}}}]", file=file).inputs[0].spec.is_dense


PATH = "tensor: {init: file, init_args: {path: "


@pytest.mark.parametrize(
    ("argument", "place", "message"),
    [
        ("file: y.pt", "file", "there is no file 'y.pt'\n    relative paths start from the folder of this file"),
        (
            "file: '.'",
            "file",
            "file is ., expected a .pt file; others need shape and dtype\n    tensor: {shape: [2, 3]",
        ),
        ("file: x.npy", "file", "file is x.npy, expected a .pt file; others need shape and dtype"),
        ('file: "a\\0.pt"', "file", "file has a NUL character"),
        ("file: folder.pt", "file", "there is no file 'folder.pt'"),
        (PATH + "y.npy}, shape: [2]}", "tensor.init_args.path", "there is no file 'y.npy'"),
        (PATH + "y.txt}, shape: [2]}", "tensor.init_args.path", "y.txt ends in '.txt', expected"),
        (PATH + "z.npy}}", "tensor", "the tensor has no shape"),
        (PATH + "x.pt, key: a}}", "tensor.init_args.path", "key is 'a', expected none"),
        (PATH + "x.pt}, dtype: fp32}", "tensor.dtype", "dtype is fp32, expected float16"),
        (PATH + "x.pt}, shape: [3, 2]}", "tensor.shape", "shape is [3, 2], expected [2, 3]"),
        ("file: code.pt", "file", "code.pt contains more than tensors: it calls os.system"),
        ("file: old.pt", "file", "old.pt is not an archive of torch.save"),
    ],
)
def test_a_file_that_does_not_fit(tmp_path: Path, argument: str, place: str, message: str) -> None:
    saved(tmp_path, HALF)
    archive(tmp_path / "code.pt", b"\x80\x02cos\nsystem\n(" + word("true") + b"tR.")
    (tmp_path / "old.pt").write_bytes(b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.")
    (tmp_path / "z.npy").write_bytes(b"")
    (tmp_path / "folder.pt").mkdir()
    found = said(file_of(f"- {{name: a, op: torch.f, inputs: [{{{argument}}}]}}"), file=str(tmp_path / "m.yaml"))
    assert found.startswith(f"{tmp_path}/m.yaml:3 $.cases[0].inputs[0].{place}: ")
    assert message in found


def test_torch_and_numpy_stay_out(tmp_path: Path) -> None:
    saved(tmp_path, HALF)
    (tmp_path / "m.yaml").write_text(file_of("- {name: a, op: torch.f, inputs: [{file: x.pt}]}"))
    code = (
        "import sys\nfrom optest.plan import open_plan\n"
        f"assert not open_plan({str(tmp_path / 'm.yaml')!r}).problems\n"
        "assert not {'torch', 'numpy'} & set(sys.modules), sorted(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=600)


@pytest.mark.slow
@pytest.mark.torch
def test_what_torch_saves_is_described(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    path = tmp_path / "x.pt"
    names = "float64 float32 float16 bfloat16 int64 int32 int16 int8 uint8 bool complex64 complex128 float8_e5m2 uint16"
    for name in names.split():
        base = torch.zeros(2, 3, dtype=getattr(torch, name))
        for tensor in (base, base.t(), base[:, :1].expand(2, 3), base[0, 0], base.view(-1)[1::2], base[:0]):
            torch.save(tensor, path)
            assert saved_tensor(path, "x.pt") == SavedTensor(name, tuple(tensor.shape), tensor.stride())
            torch.save({"a": tensor, "b": 3}, path)
            assert saved_tensor(path, "x.pt", "a").dtype == name
    torch.save(torch.nn.Parameter(torch.zeros(4)), path)
    assert saved_tensor(path, "x.pt") == SavedTensor("float32", (4,), (1,))
    torch.save(torch.nn.Linear(2, 3).state_dict(), path)
    assert saved_tensor(path, "x.pt", "weight").shape == (3, 2)
    for more in (torch.nn.Linear(2, 3), torch.zeros(2, 2).to_sparse()):
        torch.save(more, path)
        with refusal(Misfit, "plan.holds_more_than_tensors"):
            saved_tensor(path, "x.pt")
    torch.save(torch.zeros(2), path, _use_new_zipfile_serialization=False)
    with pytest.raises(Misfit, match="is not an archive"):
        saved_tensor(path, "x.pt")
