"""Backend ``torch``: PyTorch's operators, eager or compiled, on any device of torch or of a vendor's module."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch

from optest.backends import BackendDriver, ExtraOutput, PreparedCall, Script, ScriptInput
from optest.backends.arguments import in_signature_order
from optest.errors import did_you_mean
from optest.registry import load_object
from optest.spec import Check, Fault, Numerics, OperatorDescriptor, Reason, TensorSpec, TestCase, dtype
from optest.torch.calls.compiled import compiled_function, require_compiler, run_compiled
from optest.torch.calls.descriptors import CATEGORY
from optest.torch.calls.device_call import ReadyCall, prepare_timed_call, run_on_device, why_no_operator
from optest.torch.calls.device_under_test import DeviceUnderTest
from optest.torch.calls.memory_needed import default_limit, why_too_large
from optest.torch.calls.names import declared_operators
from optest.torch.calls.recompiled_calls import require_values_followed
from optest.torch.calls.refusals import causes_of, first_line, mixed_dtypes_refused
from optest.torch.cases import split_names
from optest.torch.devices import (
    OWN_DEVICES,
    VENDOR_MODULES,
    device_count,
    device_model,
    faults_of_torch,
    open_device,
    output_to_array,
    synchronize,
)
from optest.torch.operators import NOT_IN_TORCH, TORCH_OPERATORS
from optest.torch.operators.calls import TorchCall
from optest.torch.scripts import Unwritable, script_of
from optest.torch.shared_settings import keep_settings
from optest.torch.tensors import DTYPE_NAMES, Inexpressible, to_torch, torch_dtype

# torch's errors for kernels that read elements, which tensors of the device ``meta`` do not have.
_NEEDS_VALUES = re.compile(r"meta tensor|'meta' backend|device type meta")

# Categories of operators whose integers are no indices or lengths, so that they may be exchanged.
_ARBITRARY_INTEGERS = frozenset({"elementwise", "comparison", "logic", "bitwise", "conversion", "reduction"})


class TorchBackend(BackendDriver):
    """Backend that runs the torch function of an operator, or the torch call that a case is."""

    options = ("torch_device", "compile_backend", "max_bytes", "allow_fallback", "same_strides")
    name = "torch"
    kind = "torch"
    reads_inputs = False
    variants = ("inductor", "aot_eager", "eager")
    # A compiler takes seconds for each of more than twenty thousand calls.
    compares_variants = False

    def __init__(self) -> None:
        self._device = torch.device("cpu")
        self.compiler: str | None = None
        self._max_bytes = default_limit()
        self._may_fall_back: frozenset[str] = frozenset()
        self._same_strides = False
        self._target: DeviceUnderTest | None = None

    def configure(self, options: Mapping[str, Any]) -> None:
        """Apply the options or their defaults; errors are those of :func:`open_device` and :func:`require_compiler`."""
        device = open_device(str(options.get("torch_device") or "cpu"))
        compiler = str(options.get("compile_backend") or "eager")
        if compiler != "eager":
            require_compiler(compiler)
        self._device = device
        self.compiler = None if compiler == "eager" else compiler
        self._max_bytes = options.get("max_bytes") or default_limit()
        self._may_fall_back = frozenset(split_names(options.get("allow_fallback") or ()))
        self._same_strides = bool(options.get("same_strides"))

    @property
    def numerics(self) -> Numerics:  # type: ignore[override]
        """Precision of contractions as torch's switches are set now: operands may be cut to tf32 or bfloat16."""
        return _numerics(_operand_precision(self._device.type), self._device.type)

    def run(self, case: TestCase, inputs: Sequence[Any]) -> Sequence[Any]:
        self._target = None
        if case.descriptor.category == CATEGORY:
            return self._run_torch_call(case, inputs)
        operator = self._operator(case)
        with faults_of_torch():
            tensors = self._to_tensors(case, inputs)
            with torch.no_grad():
                outputs = self._run_operator(operator, case, tensors)
            self._synchronize()
            return [output_to_array(output, self._device) for output in outputs]

    def infer_shapes(self, case: TestCase) -> Sequence[TensorSpec]:
        """Return output specs by a call on ``meta`` tensors; raise ``Fault`` UNSUPPORTED if they depend on values."""
        call = _as_function(self._operator(case), case)
        with faults_of_torch(), torch.no_grad():
            specs = [tensor.spec for tensor in case.inputs]
            try:
                outputs = call(*(torch.empty(x.shape, dtype=torch_dtype(x.dtype), device="meta") for x in specs))
            except RuntimeError as error:
                if not _NEEDS_VALUES.search(str(error).lower()):
                    raise
                raise Fault(Reason.UNSUPPORTED, f"torch: without values: {first_line(error)}") from error
        return [TensorSpec(dtype=dtype(DTYPE_NAMES[x.dtype]), shape=tuple(x.shape)) for x in outputs]

    def _operator(self, case: TestCase) -> TorchCall:
        """Return the torch function of the case's operator; raise ``Fault`` UNSUPPORTED if torch lacks it."""
        if (lack := self.lacks(case.descriptor)) is not None:
            raise Fault(Reason.UNSUPPORTED, lack)
        return TORCH_OPERATORS[case.descriptor.name]

    def _run_operator(self, operator: TorchCall, case: TestCase, tensors: Sequence[torch.Tensor]) -> list[Any]:
        """Return the operator's outputs, compiled if the case or the options select a compiler.

        A compiled call that expects no error runs a second time with other values, which the outputs must follow.
        """
        call, name, target = _as_function(operator, case), case.descriptor.name, self._under_test(case)
        if target.compiler is None:
            return call(*tensors)
        self._target = target
        try:
            with keep_settings(f"code compiled by {target.compiler}"):
                outputs = run_compiled(call, tensors, target, refuses=case.expects_error is not None)
                if case.expects_error is None:
                    reverses = case.descriptor.category in _ARBITRARY_INTEGERS
                    require_values_followed(call, tensors, outputs, target, reverses=reverses)
                return outputs
        except Fault as fault:
            # The compiler is not to blame for Python code of this package that branches on values.
            untraceable = ("Unsupported", "GuardOnDataDependentSymNode")
            if fault.reason is Reason.COMPILE and any(type(x).__name__ in untraceable for x in causes_of(fault)):
                message = f"optest's torch code for {name} cannot be compiled to one graph"
                raise Fault(Reason.UNSUPPORTED, message) from None
            raise

    def _to_tensors(self, case: TestCase, inputs: Sequence[Any]) -> list[torch.Tensor]:
        return [self._to_tensor(case, index, array) for index, array in enumerate(inputs)]

    def _to_tensor(self, case: TestCase, index: int, array: Any) -> torch.Tensor:
        """Return an input on the device, with the strides and the offset of the case."""
        return to_torch(array, self._device, offset=case.inputs[index].spec.offset)

    def _run_torch_call(self, case: TestCase, inputs: Sequence[Any]) -> Sequence[Any]:
        """Run a case that is a torch call; torch's errors become faults unless the case expects an error."""
        to_tensor = partial(self._to_tensor, case)
        self._target = self._under_test(case)
        compiler = self._target.compiler
        culprit = case.descriptor.name if compiler is None else f"code compiled by {compiler}"
        if case.expects_error is not None:
            with keep_settings(culprit):
                return run_on_device(case, inputs, to_tensor, self._target)
        with mixed_dtypes_refused(case, inputs), faults_of_torch(), keep_settings(culprit):
            return run_on_device(case, inputs, to_tensor, self._target)

    def _under_test(self, case: TestCase) -> DeviceUnderTest:
        """Return the device and the compiler for a case; its variant overrides the option."""
        name, compiler = case.descriptor.name, case.backend.variant or self.compiler
        return DeviceUnderTest(
            name,
            self._device,
            None if compiler == "eager" else compiler,
            name in self._may_fall_back,
            self._synchronize,
            self._same_strides and case.descriptor.category == CATEGORY,
        )

    def compile_s(self) -> float | None:
        target = self._target
        return None if target is None or target.compiler is None else target.compilation.seconds

    def checks(self, case: TestCase) -> Sequence[Check]:  # noqa: ARG002 - of the case that was run last
        return () if self._target is None else self._target.checks()

    def further(self, case: TestCase) -> Sequence[ExtraOutput]:  # noqa: ARG002 - of the case that was run last
        if self._target is None:
            return ()
        return tuple(
            ExtraOutput(outputs=outputs, how=how, reason=Reason.NONDETERMINISTIC)
            for how, outputs in self._target.further
        )

    @contextmanager
    def prepared(self, case: TestCase, inputs: Sequence[Any]) -> Iterator[PreparedCall]:
        """Yield the call for timing: inputs are on the device, code is compiled; a call allocates its outputs."""
        tensors = self._to_tensors(case, inputs)
        with torch.no_grad():
            ready = self._ready(case, inputs, tensors)

            def outputs() -> list[Any]:
                results = ready.outputs()
                self._synchronize()
                return [output_to_array(result, self._device) for result in results]

            yield PreparedCall(call=ready.call, outputs=outputs, synchronize=self._synchronize, description=ready.what)

    def _ready(self, case: TestCase, inputs: Sequence[Any], tensors: Sequence[torch.Tensor]) -> ReadyCall:
        """Return the case's call on ``tensors``, compiled if a compiler is selected."""
        if case.descriptor.category == CATEGORY:
            return prepare_timed_call(case, inputs, tensors, self._under_test(case))
        operator, attributes = TORCH_OPERATORS[case.descriptor.name], case.attributes
        operands, listed = in_signature_order(case, tensors), _as_function(operator, case)
        target = self._target = self._under_test(case)
        if target.compiler is not None:
            function = compiled_function(listed, tensors, target, lambda function: function(*tensors))
            what = f"torch:{target.device} compiled by {target.compiler}"
            return ReadyCall(call=lambda: function(*tensors), outputs=lambda: list(function(*tensors)), what=what)
        return ReadyCall(call=lambda: operator(operands, attributes), outputs=lambda: listed(*tensors), what="")

    def script(self, case: TestCase, inputs: Sequence[ScriptInput], *, may_run: bool) -> Script | str:
        """Return a script of the case's torch calls, recorded without kernels unless ``may_run``, or a reason."""
        if reason := self.unsupported(case):
            return reason
        try:
            vendor = VENDOR_MODULES.get(self._device.type)
            modules = () if vendor is None else (vendor,)
            return script_of(case, inputs, self._under_test(case), may_run=may_run, modules=modules)
        except (Inexpressible, Unwritable) as error:
            return f"it cannot be written as torch calls: {error}"
        except Fault as fault:
            return fault.message

    def lacks(self, descriptor: OperatorDescriptor) -> str | None:
        name = descriptor.name
        if descriptor.category == CATEGORY or name in TORCH_OPERATORS:
            return None
        if name in NOT_IN_TORCH:
            return f"not in torch: {NOT_IN_TORCH[name]}"
        hint = did_you_mean(name, TORCH_OPERATORS, text="; did you mean {!r}?")
        return f"the torch backend has no operator {name!r}{hint}"

    def unsupported(self, case: TestCase) -> str | None:
        if case.descriptor.category == CATEGORY:
            return why_no_operator(case) or why_too_large(case, self._max_bytes)
        return self.lacks(case.descriptor)

    def device(self) -> str | None:
        return str(self._device)

    def versions(self) -> Mapping[str, str]:
        # ``__version__`` is a str subclass of torch, which a journal would write in another form.
        versions = {"torch": str(torch.__version__)}
        if self._device.type == "cpu":
            # Which of torch's kernels run here: AVX2, AVX512, or AVX512.amx if oneDNN can use matrix units.
            # get_capabilities exists since torch 2.10.
            features: Mapping[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
            amx = ".amx" if features.get("amx_tile") else ""
            versions["torch_cpu"] = f"{torch.backends.cpu.get_cpu_capability()}{amx}"
        vendor = VENDOR_MODULES.get(self._device.type)
        if vendor is not None:
            versions[vendor] = str(load_object(f"{vendor}:__version__"))
        if self._device.type == "cuda" and torch.version.cuda:
            versions["cuda"] = torch.version.cuda
        return versions

    def expectations(self) -> str | None:
        return str(Path(__file__).with_name("expectations.yaml")) if self._device.type == "cpu" else None

    def expectations_of_samples(self) -> str | None:
        is_plain = self._device.type == "cpu" and self.compiler is None
        return str(Path(__file__).with_name("call_expectations.yaml")) if is_plain else None

    def declares(self, operators: Sequence[str]) -> tuple[int, Sequence[str]]:
        return declared_operators(operators)

    def doctor(self) -> Sequence[str]:
        lines = [f"torch {torch.__version__}", f"threads: {torch.get_num_threads()}", "device cpu"]
        for kind in OWN_DEVICES[1:]:
            lines += [f"device {kind}:{index}{device_model(kind, index)}" for index in range(device_count(kind))]
        return lines

    def _synchronize(self) -> None:
        synchronize(self._device)


def _as_function(operator: TorchCall, case: TestCase) -> Callable[..., list[Any]]:
    """Return the operator as a function of the case's tensors, which returns the list of its outputs."""
    indices, attributes = in_signature_order(case, range(len(case.inputs))), case.attributes

    def call(*tensors: torch.Tensor) -> list[Any]:
        output = operator([None if index is None else tensors[index] for index in indices], attributes)
        return list(output) if isinstance(output, (tuple, list)) else [output]

    return call


@cache
def _numerics(operands: str, device: str) -> Numerics:
    # Devices of vendors' modules may stop at the largest finite value, as Ascend's do in one of their modes.
    overflow = "infinity" if device in OWN_DEVICES else "saturate"
    return Numerics(operands=operands, overflow=overflow, processor="cpu" if device == "cpu" else "accelerator")


def _operand_precision(kind: str) -> str:
    """Return the dtype to which torch's switches allow float32 operands of a contraction to be rounded."""
    backends = {"cuda": torch.backends.cuda.matmul, "cpu": torch.backends.mkldnn}
    switch = getattr(getattr(backends.get(kind), "matmul", backends.get(kind)), "fp32_precision", "none")
    # The device's switch is not set: the general one, which every version of torch has, decides.
    if switch == "none":
        switch = {"highest": "ieee", "high": "tf32", "medium": "bf16"}[torch.get_float32_matmul_precision()]
        if kind == "cpu" and switch == "tf32":
            return "float32"
    return {"tf32": "tf32", "bf16": "bfloat16"}.get(switch, "float32")
