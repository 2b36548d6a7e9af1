"""Structs of headers as ctypes: the compiler's field offsets, and messages for fields of unknown offset."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import pytest

from optest.clib.ffi.headers import read_headers
from optest.clib.ffi.signatures import Header
from optest.clib.library.values import field_of, structure_of
from optest.errors import UsageError

pytestmark = pytest.mark.cxx

HEADER = """
#include <stddef.h>
#include <stdint.h>
#define RANK 4
enum kind { A, B };
typedef struct opaque opaque;
struct tensor { enum kind kind; int8_t small; int64_t sizes[RANK]; double *data; struct tensor *next; };
typedef struct { char on; struct { float eps; short bits; } norm; struct tensor whole; } params;
struct packed_bits { unsigned a : 3; unsigned b : 5; };
union either { int i; float f; };
struct nameless { int a; union { int b; float c; }; };
struct open_end { int count; int rest[]; };
"""


@pytest.fixture(scope="module")
def header(tmp_path_factory: pytest.TempPathFactory) -> Header:
    file = tmp_path_factory.mktemp("structs") / "s.h"
    file.write_text(HEADER)
    return read_headers([file])


def test_field_offsets_match_the_compiler(header: Header, tmp_path: Path) -> None:
    (tmp_path / "s.h").write_text(HEADER)
    fields = "sizeof(params), offsetof(params, norm.bits), offsetof(params, whole.sizes), offsetof(params, whole.next)"
    source = f'#include "s.h"\n#include <stdio.h>\nint main(void) {{ printf("%zu %zu %zu %zu", {fields}); }}'
    (tmp_path / "s.c").write_text(source)
    subprocess.run(["gcc", "-o", str(tmp_path / "s"), str(tmp_path / "s.c")], check=True)
    offsets = [int(word) for word in subprocess.run([tmp_path / "s"], check=True, capture_output=True).stdout.split()]
    params, tensor = structure_of(header, "params"), structure_of(header, "tensor")
    norm = {name: kind for name, kind, *_ in params._fields_}["norm"]
    whole = params.whole.offset
    assert offsets == [
        ctypes.sizeof(params),
        params.norm.offset + norm.bits.offset,
        whole + tensor.sizes.offset,
        whole + tensor.next.offset,
    ]


def test_field_is_looked_up_by_path(header: Header) -> None:
    assert field_of(header, "params", "norm.eps").type.spelling == "float"
    assert field_of(header, "struct tensor", "sizes").length == 4


@pytest.mark.parametrize("how", ["#pragma pack(1)", "typedef int other __attribute__((packed));"])
def test_packed_header_has_unknown_field_offsets(tmp_path: Path, how: str) -> None:
    (tmp_path / "p.h").write_text(f"{how}\nstruct close {{ char a; double b; }};\nint f(struct close *c);\n")
    packed = read_headers([tmp_path / "p.h"])
    assert packed.prototype("f"), "its address can be passed"
    with pytest.raises(UsageError, match=r"struct close cannot be filled in: p\.h has '.*pack.*', so the field"):
        structure_of(packed, "close")


@pytest.mark.parametrize(
    ("struct", "path", "message"),
    [
        ("tensor", "size", "struct tensor has no field 'size'; did you mean sizes? it has kind, small, sizes"),
        ("params", "norm.epsilon", "has no field 'epsilon'"),
        ("tensors", "a", "struct tensors is defined in no header; did you mean tensor?"),
        ("opaque", "a", "struct opaque is declared, but not defined"),
        ("packed_bits", "a", "struct packed_bits cannot be filled in: a is a bit-field"),
        ("either", "i", "either is a union"),
        ("nameless", "a", "it has an unnamed member"),
        ("open_end", "count", "rest is an array of unknown size"),
    ],
)
def test_unknown_field_offset_is_reported(header: Header, struct: str, path: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        (structure_of(header, struct), field_of(header, struct, path))
    assert message in str(caught.value)
