"""Backend of JAX's functions, called one by one or compiled as a whole by ``jax.jit``."""

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
from optest.backends.arguments import in_signature_order, require_defined
from optest.jax.operators import JAX_OPERATORS, NOT_IN_JAX
from optest.jax.operators.calls import JaxCall
from optest.numerics import numpy_dtype
from optest.operators.arrays import spec_of
from optest.spec import Fault, Numerics, OperatorDescriptor, Reason, TensorSpec, TestCase, UnfitArguments

_OP_BY_OP, _JIT = "op_by_op", "jit"
# Keys are the status codes with which messages of XLA begin.
_REASONS = {"RESOURCE_EXHAUSTED": Reason.OUT_OF_MEMORY, "UNIMPLEMENTED": Reason.UNSUPPORTED}
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_COMPILED_AT_MOST = 256
# JAX caches an executable for each shape. An executable has several memory mappings, of which Linux allows a process
# 65,530: a check of the whole catalogue would need more.
_RUNS_BETWEEN_CLEARS = 1000


class JaxBackend(BackendDriver):
    """Backend that calls the JAX function of the operator on JAX's default device."""

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
        """Return the numerics of the default device, the same for all cases."""
        # JAX's default precision rounds float32 operands of contractions on GPUs (tf32) and TPUs (bfloat16).
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
        specs = in_signature_order(case, [argument.spec for argument in case.inputs])
        if case.expects_error is not None and (why := _not_refused(case)) is not None:
            return why
        if (lack := lacks_dimension(case)) is not None:
            return lack
        with _x64_types():  # without them JAX promotes to other dtypes
            return JAX_OPERATORS[case.descriptor.name].gap(specs, case.attributes)

    def run(self, case: TestCase, inputs: Sequence[Any]) -> Sequence[Any]:
        self._compile_s = None
        self._runs += 1
        if self._runs % _RUNS_BETWEEN_CLEARS == 0:
            jax.clear_caches()
        with _x64_types(), _faults_of_xla():
            return _numpy_outputs(self._prepared_call(case, inputs)())

    def infer_shapes(self, case: TestCase) -> Sequence[TensorSpec]:
        """Return the output specs by tracing the function, without compiling it."""
        return [spec_of(aval) for aval in self._traced(case).out_avals]

    def captured_program(self, case: TestCase, values: object) -> Program:  # noqa: ARG002 - inputs are abstract
        """Return the program that ``jit`` traces, before XLA optimises it; raise a Fault for variant op_by_op."""
        if case.backend.variant == _OP_BY_OP:
            raise Fault(Reason.UNSUPPORTED, "variant op_by_op captures no program; use variant jit")
        traced = self._traced(case)
        jaxpr = traced.jaxpr
        atoms = [*jaxpr.outvars, *(atom for equation in jaxpr.eqns for atom in equation.invars)]
        literals = {str(atom): atom.val for atom in atoms if hasattr(atom, "val")}
        return Program(
            nodes=[
                ProgramNode(
                    equation.primitive.name,
                    [*map(str, equation.invars)],
                    # JAX writes "_" for an output without readers, a Program "".
                    [str(var).removeprefix("_") for var in equation.outvars],
                    _ADDRESS.sub("", str(equation.params)),
                    bool(equation.effects),
                )
                for equation in jaxpr.eqns
            ],
            inputs={str(var): spec_of(var.aval) for var in jaxpr.invars},
            outputs=[(str(var), spec_of(var.aval)) for var in jaxpr.outvars],
            constants={**literals, **dict(zip(map(str, jaxpr.constvars), traced.consts, strict=True))},
        )

    def _traced(self, case: TestCase) -> Any:
        """Return the closed jaxpr of the case's function; raise as :meth:`_call`."""
        specs = [
            None if spec is None else jax.ShapeDtypeStruct(spec.shape, numpy_dtype(spec.dtype))
            for spec in in_signature_order(case, [argument.spec for argument in case.inputs])
        ]
        call = self._call(case)
        with _x64_types(), _faults_of_xla():
            return jax.make_jaxpr(lambda arrays: call.function(arrays, case.attributes))(specs)

    def _call(self, case: TestCase) -> JaxCall:
        """Return the operator's JAX call; raise a Fault UNSUPPORTED if JAX lacks it."""
        if (lack := self.lacks(case.descriptor)) is not None:
            raise Fault(Reason.UNSUPPORTED, lack)
        return JAX_OPERATORS[case.descriptor.name]

    def _prepared_call(self, case: TestCase, inputs: Sequence[Any]) -> Callable[[], Any]:
        """Return a call of the case's function on copies of ``inputs``, compiled for variant jit."""
        call = self._call(case)
        # Copied, since JAX on a CPU may share the aligned memory of a NumPy array.
        arrays = [None if array is None else jnp.array(array) for array in in_signature_order(case, inputs)]
        if case.backend.variant == _OP_BY_OP:
            return lambda: call.function(arrays, case.attributes)
        begin, hits = time.perf_counter(), _compiled.cache_info().hits
        specs = tuple(None if array is None else jax.ShapeDtypeStruct(array.shape, array.dtype) for array in arrays)
        compiled = _compiled(call, tuple(case.attributes.items()), specs)
        self._compile_s = time.perf_counter() - begin if _compiled.cache_info().hits == hits else 0.0
        return lambda: compiled(arrays)

    def compile_s(self) -> float | None:
        return self._compile_s

    @contextmanager
    def prepared(self, case: TestCase, inputs: Sequence[Any]) -> Iterator[PreparedCall]:
        """Yield a call on inputs that are already on the device."""
        with _x64_types(), _faults_of_xla():
            ready = self._prepared_call(case, inputs)
            latest: list[Any] = []

            def call() -> None:
                latest[:] = [ready()]

            wait = partial(jax.block_until_ready, latest)  # JAX returns before the computation is done
            yield PreparedCall(call=call, outputs=lambda: _numpy_outputs(ready()), synchronize=wait)

    def device(self) -> str | None:
        return str(jax.default_backend())

    def versions(self) -> Mapping[str, str]:
        return {"jax": jax.__version__, "jaxlib": jaxlib.__version__}

    def doctor(self) -> Sequence[str]:
        return (f"jax {jax.__version__}", *(f"device {device}" for device in jax.devices()))

    def expectations(self) -> str | None:
        return str(Path(__file__).with_name("expectations.yaml")) if jax.default_backend() == "cpu" else None


def lacks_dimension(case: TestCase) -> str | None:
    """Return why JAX does not run a case that names a dimension of a 0-d array; else None."""
    specs = in_signature_order(case, [argument.spec for argument in case.inputs])
    names_dims = any(case.attributes.get(name) not in (None, ()) for name in ("dim", "dims", "dim0"))
    if names_dims and specs and specs[0] is not None and not specs[0].rank:
        return "JAX accepts no dimension for a 0-d array; the operator accepts one"
    return None


def _x64_types(is_wide: bool = True) -> AbstractContextManager[Any]:
    """Switch JAX's 64-bit types on or off within the block."""
    # For this thread only: the process may use JAX itself. Older versions have the switch in jax.experimental.
    switch: Any = getattr(jax, "enable_x64", None)
    return switch(is_wide) if switch is not None else experimental.enable_x64(is_wide)  # type: ignore[no-any-return]


@lru_cache(maxsize=_COMPILED_AT_MOST)
def _compiled(call: JaxCall, attributes: tuple[tuple[str, Any], ...], specs: tuple[Any, ...]) -> Callable[[Any], Any]:
    """Return the call compiled for these attributes, shapes and dtypes."""
    values = dict(attributes)
    lowered = jax.jit(lambda arrays: call.function(arrays, values)).lower(list(specs))
    compiled: Callable[[Any], Any] = lowered.compile()
    return compiled


def call_with_arrays(
    function: Callable[..., Any], inputs: Sequence[Any], *, is_traced: bool = False, is_wide: bool = True
) -> Any:
    """Call a function with JAX arrays; return its output, or list or dict of outputs, as NumPy arrays.

    With ``is_traced``, return zeros of the shapes and dtypes that tracing finds; a function that needs the values of
    its inputs is executed all the same. Without ``is_wide``, 64-bit types are off, which is JAX's default.
    """
    with _x64_types(is_wide), _faults_of_xla():
        arrays = [jnp.array(array) for array in inputs]
        if is_traced:  # compiling would take a tenth of a second for each operator and shape
            with suppress(jax.errors.JAXTypeError, jax.errors.JAXIndexError):  # the values are needed
                return jax.tree.map(lambda spec: np.zeros(spec.shape, spec.dtype), jax.eval_shape(function, arrays))
        returned = jax.block_until_ready(function(arrays))
        return jax.tree.map(lambda leaf: np.array(leaf) if isinstance(leaf, jax.Array) else leaf, returned)


def _numpy_outputs(output: Any) -> list[Any]:
    arrays = jax.block_until_ready(output)
    return [np.array(array) for array in (arrays if isinstance(arrays, (tuple, list)) else [arrays])]


def _not_refused(case: TestCase) -> str | None:
    """Return why JAX accepts a call that the operator refuses; None if the shapes do not fit: JAX refuses those."""
    if not case.descriptor.supports([entry.name for entry in case.dtypes]):
        return "JAX promotes dtypes that the operator refuses"
    try:
        require_defined(case)
    except UnfitArguments:
        return None
    return "JAX refuses no values: an index beyond the dimension is dropped, filled or clamped"


@contextmanager
def _faults_of_xla() -> Iterator[None]:
    """Convert errors in the block that mean unsupported or out of memory to a Fault."""
    try:
        yield
    except NotImplementedError as error:
        raise Fault(Reason.UNSUPPORTED, f"jax: {error}") from error
    except RuntimeError as error:  # XLA's error class has had several names
        text = str(error)
        reason = _REASONS.get(text.partition(":")[0])
        if reason is None:
            raise
        raise Fault(reason, f"jax: {text.partition(chr(10))[0]}") from error
