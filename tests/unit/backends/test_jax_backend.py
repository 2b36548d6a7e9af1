"""JAX's functions under our names: variants, what is declared, what is a gap, and that a wrong call is found."""

from __future__ import annotations

import dataclasses
import io
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from handmade import case_of, spec
from texts import refusal, says_exactly

from optest.api.checking import check
from optest.backends import Fault, backend_manager
from optest.errors import Unavailable, UnknownName
from optest.numerics import dtype_of, numpy_dtype, round_to
from optest.operators import operators
from optest.operators.catalogue import DESCRIPTORS, LAYERS
from optest.spec import BackendTarget, Reason, Status, TestCase
from optest.spec import dtype as dtype_called

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

from optest.jax import backend as jax_backend  # noqa: E402
from optest.jax.backend import JaxBackend  # noqa: E402
from optest.jax.operators import JAX_OPERATORS, NOT_IN_JAX  # noqa: E402
from optest.jax.operators.calls import JaxCall  # noqa: E402

VARIANTS = JaxBackend.variants


class JaxVariant(JaxBackend):
    """The backend, with a variant for cases that name none."""

    def __init__(self, variant: str) -> None:
        super().__init__()
        self._variant = variant

    def _prepared_call(self, case: TestCase, inputs: Any) -> Any:
        target = BackendTarget(name="jax", variant=self._variant)
        return super()._prepared_call(dataclasses.replace(case, backend=target), inputs)


def case(name: str, *arrays: Any, kind: str = "float32", **attributes: Any) -> tuple[TestCase, list[Any]]:
    descriptor = operators.get(name)
    as_stated = dtype_called(kind)
    given = [each if isinstance(each, np.ndarray) else round_to(np.asarray(each, float), as_stated) for each in arrays]
    specs = [spec(dtype_of(each.dtype).name, *each.shape) for each in given]
    return case_of(descriptor, *specs, attributes=descriptor.bind(attributes)), given


def answer(driver: JaxBackend, name: str, *arrays: Any, **how: Any) -> list[Any]:
    return list(driver.run(*case(name, *arrays, **how)))


def gap(name: str, *arrays: Any, **how: Any) -> str:
    return JaxBackend().unsupported(case(name, *arrays, **how)[0]) or ""


def test_every_operator_has_a_call_or_a_reason() -> None:
    assert set(JAX_OPERATORS) | set(NOT_IN_JAX) == {each.name for each in DESCRIPTORS}
    assert not set(JAX_OPERATORS) & set(NOT_IN_JAX)
    assert JaxBackend().lacks(operators.get("matmul")) is None
    assert says_exactly(JaxBackend().lacks(operators.get("kthvalue")), "backends.not_in_jax_jnp")
    with pytest.raises(Fault, match="not in JAX") as caught:
        answer(JaxBackend(), "swiglu", [[1.0, 2.0]])
    assert caught.value.reason is Reason.UNSUPPORTED


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(
    "kind", ["float64", "int64", "float16", "bfloat16", "complex64", "uint4", "int4", "float8_e5m2", "bool"]
)
def test_every_dtype_stays_what_it_is(variant: str, kind: str) -> None:
    """A byte of a 4-bit integer has four bits that mean nothing."""
    given = np.arange(6, dtype=np.uint8).astype(numpy_dtype(dtype_called(kind))).reshape(2, 3)
    if kind in ("int4", "uint4"):
        given = (given.view(np.uint8) | 0xA0).view(given.dtype)
    (out,) = answer(JaxVariant(variant), "transpose", given.T, dim0=0, dim1=1)
    assert out.dtype == given.dtype
    assert out.astype(np.complex128).tolist() == given.astype(np.complex128).tolist()


def test_jit_compiles_once_in_own_precision() -> None:
    assert answer(JaxBackend(), "add", [1.0], [1e-12], kind="float64")[0][0] == 1 + 1e-12
    assert jnp.asarray(np.float64(1)).dtype == np.float32
    driver = JaxVariant("jit")
    jax_backend._compiled.cache_clear()
    answer(driver, "tanh", [1.0, 2.0])
    assert (driver.compile_s() or 0) > 0
    answer(driver, "tanh", [3.0, 4.0])
    assert driver.compile_s() == 0
    answer(driver, "tanh", [3.0, 4.0], kind="float64")
    assert (driver.compile_s() or 0) > 0
    assert jax_backend._compiled.cache_info().misses == 2
    one_by_one = JaxVariant("op_by_op")
    answer(one_by_one, "tanh", [1.0, 2.0])
    assert one_by_one.compile_s() is None


@pytest.mark.parametrize("variant", VARIANTS)
def test_inputs_are_copied(variant: str) -> None:
    inputs = np.zeros(4096, np.float32)
    (out,) = answer(JaxVariant(variant), "reshape", inputs, shape=(64, 64))
    out[:] = 1
    assert not inputs.any()


def test_a_case_says_its_variant() -> None:
    driver, (asked, inputs) = JaxBackend(), case("exp", [1.0])
    driver.run(dataclasses.replace(asked, backend=BackendTarget(name="jax", variant="op_by_op")), inputs)
    assert driver.compile_s() is None
    driver.run(asked, inputs)
    assert driver.compile_s() is not None
    with refusal(UnknownName, "backends.variant_of_backend_jax"):
        backend_manager.target(driver, variant="xla")


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_call_is_timed_on_the_device(variant: str) -> None:
    with JaxVariant(variant).prepared(*case("matmul", [[2.0]], [[3.0]])) as prepared:
        prepared.call()
        prepared.synchronize()
        assert prepared.outputs()[0].tolist() == [[6.0]]


@pytest.mark.parametrize(
    ("name", "arrays", "how", "why"),
    [
        ("add", ([1.0], [1.0]), {"alpha": 2.0}, "jnp.add has no alpha, which the case sets to 2.0"),
        ("exp", ([1],), {"kind": "int64"}, "JAX converts int64 to float64"),
        ("mul", (np.ones(2, np.float32), np.array(2.0)), {}, "JAX promotes float32 and float64 to float64"),
        ("mul", (np.ones(2, np.float32), np.ones(2)), {}, None),
        ("softmax", (1.0,), {}, "JAX accepts no dimension for a 0-d array"),
        ("sum", (1.0,), {}, None),
        ("linear", ([[1.0]], [[1.0]], [1.0]), {}, "lax.dot_general adds no bias"),
        ("linear", ([[1.0]], [[1.0]]), {}, None),
        ("div", ([1.0], [1.0]), {"rounding_mode": "trunc"}, "has no rounding_mode"),
        ("cast", ([-1.0],), {"dtype": "uint8"}, "the operator wraps them"),
    ],
)
def test_what_the_call_has_not_is_a_gap(name: str, arrays: Any, how: dict[str, Any], why: str | None) -> None:
    assert (why or "") in (found := gap(name, *arrays, **how))
    assert bool(found) == bool(why)


def test_errors_of_xla_have_their_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> Any:
        raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 1 bytes.\nmore")

    monkeypatch.setitem(JAX_OPERATORS, "exp", JaxCall(fails))
    with pytest.raises(Fault, match=r"^jax: RESOURCE_EXHAUSTED: Out of memory allocating 1 bytes\.$") as caught:
        answer(JaxVariant("op_by_op"), "exp", [1.0])
    assert caught.value.reason is Reason.OUT_OF_MEMORY


def test_without_jax_the_remedy_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in sys.modules if each.startswith("optest.jax")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "jax", None)
    manager = type(backend_manager)(())
    manager.register_path("jax", "optest.jax.backend:JaxBackend")
    manager._built_in.add("jax")
    with pytest.raises(Unavailable, match=r"pip install jax"):
        manager.get("jax")


@pytest.fixture
def here(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    yield
    jax.clear_caches()


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_wrong_call_is_found(here: None, monkeypatch: pytest.MonkeyPatch, variant: str) -> None:
    wrong = JaxCall(lambda tensors, attributes: jax.nn.softmax(tensors[0]))  # it forgets the axis
    monkeypatch.setitem(JAX_OPERATORS, "softmax", wrong)
    given = {"backend": "jax", "variant": variant, "op": ("softmax",), "dtype": ("float32",), "isolate": "none"}
    outcome = check({**given, "case_set": ("attributes",)}, stream=io.StringIO())
    assert outcome.exit_status == 1
    assert Reason.VALUE in {each.reason for each in outcome.results if each.status is Status.FAILED}


@pytest.mark.heavy
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_smoke_tier_passes(here: None, variant: str) -> None:
    out = io.StringIO()
    outcome = check({"backend": "jax", "variant": variant, "tier": "smoke", "isolate": "none"}, stream=out)
    assert outcome.exit_status == 0, out.getvalue()
    has = {*JAX_OPERATORS, *(each.name for each in LAYERS)}
    computed = [each for each in LAYERS if has.issuperset(part for parts in each.parts for part in parts.split("|"))]
    assert len(outcome.results) == len(JAX_OPERATORS) + len(computed)
    assert computed
