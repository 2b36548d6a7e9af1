"""What a user learns of a C library before its operators are run: missing, unreadable, drifted, covered."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from texts import says

from optest.clib.library_report import LibraryReport, as_text, inspect
from optest.clib.library_report import report_as_json as as_json
from optest.errors import UsageError

pytestmark = pytest.mark.cxx
Inspected = Callable[..., tuple[LibraryReport, str]]

HEADER = """
typedef enum { MY_SUCCESS = 0, MY_BAD = 1 } myStatus_t;
typedef enum { MY_F32 = 1, MY_F64 = 2 } myType_t;
typedef struct MyHandle *myHandle_t;
typedef struct MyTensor *myTensor_t;
typedef struct MyOp *myOp_t;
myStatus_t mySetDevice(int device, int id);
myStatus_t mySync(void);
myStatus_t myCreateHandle(myHandle_t *handle);
myStatus_t myDestroyHandle(myHandle_t handle);
myStatus_t myCreateTensor(myTensor_t *t, unsigned long n, const unsigned long *shape, const long *strides, myType_t e);
myStatus_t myDestroyTensor(myTensor_t t);
myStatus_t myCreateAddDescriptor(myHandle_t handle, myOp_t *op, myTensor_t c, myTensor_t a, myTensor_t b);
myStatus_t myGetAddWorkspaceSize(myOp_t op, unsigned long *size);
myStatus_t myAdd(myOp_t op, void *workspace, unsigned long size, void *c, const void *a, const void *b, void *stream);
myStatus_t myDestroyAddDescriptor(myOp_t op);
myStatus_t myCreateReluDescriptor(myHandle_t handle, myOp_t *op, myTensor_t y, myTensor_t x, float slope);
myStatus_t myGetReluWorkspaceSize(myOp_t op, unsigned long *size);
myStatus_t myRelu(myOp_t op, void *workspace, unsigned long size, void *y, const void *x, void *stream);
myStatus_t myDestroyReluDescriptor(myOp_t op);
myStatus_t myCreateTwistDescriptor(myHandle_t handle, myOp_t *op, myTensor_t y, myTensor_t x);
myStatus_t myGetTwistWorkspaceSize(myOp_t op, unsigned long *size);
myStatus_t myTwist(myOp_t op, void *workspace, unsigned long size, void *y, const void *x, void *stream);
myStatus_t myDestroyTwistDescriptor(myOp_t op);
myStatus_t myPromised(int count);
myStatus_t myPrint(const char *format, ...);
myStatus_t myOdd(unknown_t what);
"""

MAPPING = """
version: 1
name: mine
library: [mine]
status: myStatus_t
devices: {cpu: 0}
dtypes: {float32: MY_F32, float64: MY_F64}
set_device: {function: mySetDevice, arguments: [device, device_id]}
synchronize: {function: mySync, arguments: []}
handle: {create: {function: myCreateHandle, arguments: [slot]}, destroy: myDestroyHandle}
tensor:
  create: {function: myCreateTensor, arguments: [slot, ndim, shape, strides, dtype]}
  destroy: myDestroyTensor
protocol:
  create: "myCreate{name}Descriptor"
  workspace: "myGet{name}WorkspaceSize"
  run: "my{name}"
  destroy: "myDestroy{name}Descriptor"
operators:
  add:
    name: Add
    create: [handle, slot, output:out, input:input, input:other]
    run: [descriptor, workspace, workspace_size, output:out, input:input, input:other, stream]
"""
UNARY = """
  relu:
    name: Relu
    create: [handle, slot, output:out, input:input]
    run: [descriptor, workspace, workspace_size, output:out, input:input, stream]
"""
RELU, TANH = UNARY, UNARY.replace("relu", "tanh").replace("Relu", "Tanh")


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library that lacks one function of its header and has one that the header lacks."""
    folder = tmp_path_factory.mktemp("mine")
    (folder / "include").mkdir()
    (folder / "include" / "mine.h").write_text(HEADER)
    left_out = ("myPromised", "myOdd")
    names = [line.split("(")[0].split()[1] for line in HEADER.splitlines() if line.startswith("myStatus_t ")]
    code = "".join(f"int {name}() {{ return 0; }}\n" for name in names if name not in left_out)
    constructor = "#include <stdlib.h>\n__attribute__((constructor)) static void loaded(void) { exit(0); }\n"
    (folder / "mine.c").write_text(constructor + code + "int myHidden() { return 0; }\nint myData = 3;\n")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", "libmine.so", "mine.c"], cwd=folder, check=True)
    return folder


@pytest.fixture
def inspected(mine: Path, tmp_path: Path) -> Inspected:
    """The report about the library, with a mapping of this text, and its own text."""

    def make(text: str = "", headers: Path = mine / "include") -> tuple[LibraryReport, str]:
        (tmp_path / "mapping.yaml").write_text(text)
        report = inspect([str(mine / "libmine.so")], [str(headers)], str(tmp_path / "mapping.yaml") if text else "")
        return report, "\n".join(as_text(report))

    return make


def test_a_library_without_a_mapping(inspected: Inspected) -> None:
    """Its constructor calls exit(0), so this test would end with the process if the library were loaded."""
    report, text = inspected()
    assert report.exit_status == 1
    assert says(text, "api.functions_declared_can_be")
    assert "myPromised  (mine.h:25)" in text
    assert says(text, "api.mine_myprint_cannot_be")
    assert says(text, "api.type_unknown_is_not")
    assert "myHidden" in text
    assert "myData" not in text, "data is no function"
    assert says(text, "api.operators_by_the_names")
    assert "myStatus_t mySync(void)" not in text
    assert "  myStatus_t mySync(void)" in list(as_text(report, signatures=True))


def test_what_has_no_name_is_a_problem(inspected: Inspected, tmp_path: Path) -> None:
    (tmp_path / "odd.h").write_text("int mySync(void);\nint gone(frob *x);\nstruct Odd { frob x; };\n")
    report, _ = inspected(headers=tmp_path / "odd.h")
    assert (list(report.callable), report.missing, list(report.header.refused)) == (["mySync"], ("gone",), ["gone"])
    assert len(report.header.problems) == 1


def test_coverage_by_a_mapping(inspected: Inspected) -> None:
    report, text = inspected(MAPPING + TANH)
    assert report.exit_status == 0, "what the mapping needs is there"
    assert says(text, "api.mapping_mine_operators_can")
    assert says(text, "api.mapping_mine_are_not")
    assert says(text, "api.operators_of_the_library")
    assert text.index("operators can be called") < text.index("missing: declared")


def test_mapped_operators_precede_a_large_header(inspected: Inspected, tmp_path: Path) -> None:
    """Of a header with hundreds of functions that no operator needs, a few are shown."""
    large = HEADER + "".join(f"int my{place}(int);\nint myGone{place}(int);\n" for place in range(100))
    (tmp_path / "mine.h").write_text(large)
    lines = inspected(MAPPING, headers=tmp_path)[1].splitlines()
    assert lines.index("  add") < 8
    assert len(lines) < 30


def test_drift_names_the_argument(inspected: Inspected, tmp_path: Path) -> None:
    report, text = inspected(MAPPING + RELU)
    assert report.exit_status == 1
    (line,) = report.drift
    assert line.startswith(
        "mapping mine, operators.relu.create has 4 arguments, but myCreateReluDescriptor should have 5"
    )
    assert "float slope" in line
    assert says(text, "api.drift_the_mapping_is")
    line_of_create = (MAPPING + RELU).splitlines().index("    create: [handle, slot, output:out, input:input]") + 1
    assert f"in {tmp_path / 'mapping.yaml'}:{line_of_create}" in line
    assert says(text, "api.mapping_mine_operators_can")
    assert says(text, "api.mapping_mine_cannot_be")
    assert [(each.operator, each.can_be_called) for each in report.operators if each.operator] == [
        ("add", True),
        ("relu", False),
    ]
    found = json.loads(as_json(report))
    assert [each["drifted"] for each in found["operators"][:2]] == [[], ["myCreateReluDescriptor"]]


def test_shared_drift_blocks_all_operators(inspected: Inspected) -> None:
    _, text = inspected(MAPPING.replace("[slot, ndim, shape, strides, dtype]", "[slot, ndim, shape, dtype]"))
    assert "operators can be called" not in text
    assert "add: myCreateTensor" in text


@pytest.mark.parametrize(
    ("stated", "instead", "said"),
    [
        ("input:other, stream]", "input:other, workspace_size]", "argument 7 (stream) of myAdd is void * stream"),
        ("MY_F64", "MY_F65", "dtypes.float64: MY_F65 is declared in no header; did you mean MY_F64?"),
        ("status: myStatus_t", "status: myStatus", "status: unknown enum 'myStatus'; did you mean 'myStatus_t'?"),
        ("function: mySync", "function: mySink", "synchronize: mySink is declared in no header; did you mean mySync?"),
        ("destroy: myDestroyTensor", "destroy: myOdd", "tensor.destroy: myOdd cannot be called"),
        ("input:other]", "input:otter]", "operators.add: add has no input 'otter'; did you mean other?"),
        ("  add:", "  addd:", "operators.addd: unknown operator 'addd'; did you mean 'add'?"),
        ("myGet{name}WorkspaceSize", "myGot{name}WorkspaceSize", "operators.add.workspace: myGotAddWorkspaceSize is"),
    ],
)  # fmt: skip
def test_every_kind_of_drift(inspected: Inspected, stated: str, instead: str, said: str) -> None:
    assert stated in MAPPING
    report, text = inspected(MAPPING.replace(stated, instead))
    assert report.exit_status == 1
    assert any(said in line for line in report.drift), report.drift
    if stated == "MY_F64":  # a dtype that drifted leaves the others
        assert says(text, "api.mapping_mine_operators_can")


def test_json_holds_every_signature(inspected: Inspected) -> None:
    found = json.loads(as_json(inspected(MAPPING)[0]))
    assert found["functions"]["mySync"]["signature"] == "myStatus_t mySync(void)"
    assert found["missing"].keys() == {"myPromised", "myOdd"}
    assert found["refused"].keys() == {"myPrint", "myOdd"}
    assert found["undeclared"] == ["myHidden"]
    assert found["operators"][0] == {
        "operator": "add",
        "in_c": "Add",
        "functions": ["myCreateAddDescriptor", "myGetAddWorkspaceSize", "myAdd", "myDestroyAddDescriptor"],
        "missing": [],
        "is_here": True,
        "drifted": [],
    }


def test_what_cannot_be_inspected(mine: Path, tmp_path: Path) -> None:
    include, library = str(mine / "include"), str(mine / "libmine.so")
    (tmp_path / "libtext.so").write_text("no library")
    head = bytearray((mine / "libmine.so").read_bytes())
    head[18] = 40  # e_machine: arm
    (tmp_path / "libarm.so").write_bytes(bytes(head))
    for libraries, headers, mapping, said in (
        ([str(mine / "libmin.so")], [include], "", "did you mean"),
        ([str(tmp_path / "libtext.so")], [include], "", "it is not an ELF file"),
        ([str(tmp_path / "libarm.so")], [include], "", "it is built for arm"),
        ([library], [str(mine / "headers")], "", "does not exist"),
        ([library], [str(tmp_path)], "", "no header was found"),
        ([library], [include], "infinop", "did you mean infiniop?"),
        ([str(mine)], [include], "", "is a folder; name its shared objects"),
    ):
        with pytest.raises(UsageError, match=said):
            inspect(libraries, headers, mapping)
