"""JAX's functions as a backend: called one by one, or compiled by ``jax.jit`` as a whole.

64-bit types are switched on while a call runs and for its thread alone: a process may use JAX for itself.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jaxlib
import numpy as np
from jax import experimental

from optest.backends import BackendDriver, PreparedCall
from optest.backends.abilities import Program, ProgramNode
from optest.backends.arguments import at_their_places, refuse_unfit
from optest.jax.operators import JAX_OPERATORS, NOT_IN_JAX
from optest.jax.operators.calls import JaxCall
from optest.numerics import numpy_dtype
from optest.operators.arrays import spec_of
from optest.spec import Fault, Numerics, OperatorDescriptor, Reason, TensorSpec, TestCase, UnfitArguments

_OP_BY_OP, _JIT = "op_by_op", "jit"
_REASONS = {"RESOURCE_EXHAUSTED": Reason.OUT_OF_MEMORY, "UNIMPLEMENTED": Reason.UNSUPPORTED}
"""By the status code with which an error of XLA begins."""
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_COMPILED_AT_MOST = 256
_RUNS_BETWEEN_CLEARS = 1000
"""JAX keeps what it compiled for every shape, and every executable is several mappings of memory, of which Linux gives
a process 65,530: a check of the whole catalogue would need more."""


class JaxBackend(BackendDriver):
    """Runs the function that JAX has for the operator, on JAX's default device."""

    name = "jax"
    kind = "jax"
    reads_inputs = False
    variants = (_OP_BY_OP, _JIT)
    # XLA for CPUs reads subnormal operands as 0 and writes 0 for subnormal results, function by function.
    numerics = Numerics(denormals="flush", processor="cpu")

    def __init__(self) -> None:
        self._compile_s: float | None = None
        self._runs = 0

    def numerics_of(self, case: TestCase) -> Numerics:  # noqa: ARG002 - the same for all
        """JAX's default precision cuts float32 operands of contractions on GPUs (tf32) and TPUs (bfloat16)."""
        if (platform := jax.default_backend()) == "cpu":
            return self.numerics
        operands = {"tpu": "bfloat16", "gpu": "tf32"}.get(platform, "float32")
        return replace(self.numerics, processor="accelerator", operands=operands)

    def lacks(self, descriptor: OperatorDescriptor) -> str | None:
        why = NOT_IN_JAX.get(descriptor.name, "it is not an operator of the catalogue")
        return None if descriptor.name in JAX_OPERATORS else f"not in JAX: {why}"

    def unsupported(self, case: TestCase) -> str | None:
        if (lack := self.lacks(case.descriptor)) is not None:
            return lack
        specs = at_their_places(case, [argument.spec for argument in case.inputs])
        if case.expects_error is not None and (why := _not_refused(case)) is not None:
            return why
        if (lack := lacks_dimension(case)) is not None:
            return lack
        with _wide_types():  # JAX has other promotions without them
            return JAX_OPERATORS[case.descriptor.name].gap(specs, case.attributes)

    def run(self, case: TestCase, inputs: Sequence[Any]) -> Sequence[Any]:
        self._compile_s = None
        self._runs += 1
        if self._runs % _RUNS_BETWEEN_CLEARS == 0:
            jax.clear_caches()
        with _wide_types(), _faults_of_xla():
            return _received(self._ready(case, inputs)())

    def infer_shapes(self, case: TestCase) -> Sequence[TensorSpec]:
        """By abstract evaluation: the function is traced, and nothing is compiled."""
        return [spec_of(each) for each in self._traced(case).out_avals]

    def captured_program(self, case: TestCase, values: object) -> Program:  # noqa: ARG002 - inputs are abstract
        """What ``jit`` traces, before XLA optimises it."""
        if case.backend.variant == _OP_BY_OP:
            raise Fault(Reason.UNSUPPORTED, "op by op nothing is captured")
        traced = self._traced(case)
        jaxpr = traced.jaxpr
        atoms = [*jaxpr.outvars, *(each for equation in jaxpr.eqns for each in equation.invars)]
        literals = {str(each): each.val for each in atoms if hasattr(each, "val")}
        return Program(
            nodes=[_node(each) for each in jaxpr.eqns],
            inputs={str(each): spec_of(each.aval) for each in jaxpr.invars},
            outputs=[(str(each), spec_of(each.aval)) for each in jaxpr.outvars],
            constants={**literals, **dict(zip(map(str, jaxpr.constvars), traced.consts, strict=True))},
        )

    def _traced(self, case: TestCase) -> Any:
        """The function as a closed jaxpr."""
        specs = [
            None if each is None else jax.ShapeDtypeStruct(each.shape, numpy_dtype(each.dtype))
            for each in at_their_places(case, [argument.spec for argument in case.inputs])
        ]
        call = self._call(case)
        with _wide_types(), _faults_of_xla():
            return jax.make_jaxpr(lambda arrays: call.function(arrays, case.attributes))(specs)

    def _call(self, case: TestCase) -> JaxCall:
        """Raises ``Fault``: UNSUPPORTED for an operator that JAX lacks."""
        if (lack := self.lacks(case.descriptor)) is not None:
            raise Fault(Reason.UNSUPPORTED, lack)
        return JAX_OPERATORS[case.descriptor.name]

    def _ready(self, case: TestCase, inputs: Sequence[Any]) -> Callable[[], Any]:
        """The call on arrays of JAX's own, compiled if it is to be; raises as :meth:`_call`."""
        call = self._call(case)
        # A copy: on a CPU JAX may share aligned memory of NumPy's, which is not JAX's to keep.
        arrays = [None if each is None else jnp.array(each) for each in at_their_places(case, inputs)]
        if case.backend.variant == _OP_BY_OP:
            return lambda: call.function(arrays, case.attributes)
        begin, hits = time.perf_counter(), _compiled.cache_info().hits
        specs = tuple(None if each is None else jax.ShapeDtypeStruct(each.shape, each.dtype) for each in arrays)
        compiled = _compiled(call, tuple(case.attributes.items()), specs)
        self._compile_s = time.perf_counter() - begin if _compiled.cache_info().hits == hits else 0.0
        return lambda: compiled(arrays)

    def compile_s(self) -> float | None:
        return self._compile_s

    @contextmanager
    def prepared(self, case: TestCase, inputs: Sequence[Any]) -> Iterator[PreparedCall]:
        """The call on arrays that lie on the device; JAX returns before it is done, so that it is waited for."""
        with _wide_types(), _faults_of_xla():
            ready = self._ready(case, inputs)
            latest: list[Any] = []

            def call() -> None:
                latest[:] = [ready()]

            wait = partial(jax.block_until_ready, latest)
            yield PreparedCall(call=call, outputs=lambda: _received(ready()), synchronize=wait)

    def device(self) -> str | None:
        return str(jax.default_backend())

    def versions(self) -> Mapping[str, str]:
        return {"jax": jax.__version__, "jaxlib": jaxlib.__version__}

    def doctor(self) -> Sequence[str]:
        return (f"jax {jax.__version__}", *(f"device {each}" for each in jax.devices()))

    def expectations(self) -> str | None:
        return str(Path(__file__).with_name("expectations.yaml")) if jax.default_backend() == "cpu" else None


def lacks_dimension(case: TestCase) -> str | None:
    """Return why JAX does not run a case that names a dimension of a 0-d array; else None."""
    specs = at_their_places(case, [argument.spec for argument in case.inputs])
    names_dims = any(case.attributes.get(name) not in (None, ()) for name in ("dim", "dims", "dim0"))
    if names_dims and specs and specs[0] is not None and not specs[0].rank:
        return "a 0-d array has no dimension in JAX, and one in the catalogue"
    return None


def _wide_types(is_wide: bool = True) -> AbstractContextManager[Any]:
    """Where float64 and int64 are types of their own; newer versions have the switch at the top."""
    switch: Any = getattr(jax, "enable_x64", None)
    return switch(is_wide) if switch is not None else experimental.enable_x64(is_wide)  # type: ignore[no-any-return]


@lru_cache(maxsize=_COMPILED_AT_MOST)
def _compiled(call: JaxCall, attributes: tuple[tuple[str, Any], ...], specs: tuple[Any, ...]) -> Callable[[Any], Any]:
    """The call, compiled for these attributes, shapes and dtypes."""
    values = dict(attributes)
    lowered = jax.jit(lambda arrays: call.function(arrays, values)).lower(list(specs))
    compiled: Callable[[Any], Any] = lowered.compile()
    return compiled


def called_with_arrays(
    function: Callable[..., Any], inputs: Sequence[Any], *, is_traced: bool = False, is_wide: bool = True
) -> Any:
    """Call a function with arrays of JAX; return its output, or a list or dict of them, as NumPy arrays. Unless it
    ``is_wide``, the types of 64 bits are off, as in most programs.

    If ``is_traced``, they are zeros, unless the function needs the values of its inputs: it is traced without being
    compiled, which takes a tenth of a second for every operator and shape.
    """
    with _wide_types(is_wide), _faults_of_xla():
        if is_traced:
            with suppress(jax.errors.JAXTypeError, jax.errors.JAXIndexError):  # the values are needed
                made = jax.eval_shape(function, [jnp.array(each) for each in inputs])
                return jax.tree.map(lambda each: np.zeros(each.shape, each.dtype), made)
        returned = jax.block_until_ready(function([jnp.array(each) for each in inputs]))
        return jax.tree.map(lambda each: np.array(each) if isinstance(each, jax.Array) else each, returned)


def _received(output: Any) -> list[Any]:
    made = jax.block_until_ready(output)
    return [np.array(each) for each in (made if isinstance(made, (tuple, list)) else [made])]


def _node(equation: Any) -> ProgramNode:
    """Variables have their ids for names, literals their values, and ``_`` is what nobody uses."""
    outputs = [str(each).removeprefix("_") for each in equation.outvars]
    attributes, effects = _ADDRESS.sub("", str(equation.params)), bool(equation.effects)
    return ProgramNode(equation.primitive.name, [*map(str, equation.invars)], outputs, attributes, effects)


def _not_refused(case: TestCase) -> str | None:
    """Why JAX answers a call that the operator refuses; None where the shapes do not fit, which JAX refuses, too."""
    if not case.descriptor.admits([entry.name for entry in case.dtypes]):
        return "JAX promotes dtypes that the operator refuses"
    try:
        refuse_unfit(case)
    except UnfitArguments:
        return None
    return "JAX refuses no values: an index beyond the dimension is dropped, filled or clamped"


@contextmanager
def _faults_of_xla() -> Iterator[None]:
    try:
        yield
    except NotImplementedError as error:
        raise Fault(Reason.UNSUPPORTED, f"jax: {error}") from error
    except RuntimeError as error:  # of XLA, whose class has had several names
        text = str(error)
        reason = _REASONS.get(text.partition(":")[0])
        if reason is None:
            raise
        raise Fault(reason, f"jax: {text.partition(chr(10))[0]}") from error
