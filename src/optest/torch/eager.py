"""PyTorch's eager operators as a backend, on any device that torch or a vendor's module for it has."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch

from optest.backends import BackendDriver, FurtherAnswer, PreparedCall, Script, ScriptInput
from optest.backends.arguments import at_their_places
from optest.errors import did_you_mean
from optest.registry import load_object
from optest.spec import Check, Fault, Numerics, Reason, TensorSpec, TestCase, dtype
from optest.torch.calls.compiled import compiled, compiled_function, require_compiler
from optest.torch.calls.descriptors import CATEGORY
from optest.torch.calls.device_call import ReadyCall, answer, ready_call, why_no_operator
from optest.torch.calls.device_under_test import DeviceUnderTest
from optest.torch.calls.memory_needed import default_limit, why_too_large
from optest.torch.calls.names import declared_operators
from optest.torch.calls.recompiled_calls import require_values_followed
from optest.torch.calls.refusals import first_line, mixed_dtypes_refused
from optest.torch.cases import names_in
from optest.torch.devices import (
    OWN_DEVICES,
    VENDOR_MODULES,
    described,
    device_count,
    faults_of_torch,
    open_device,
    received,
    synchronize,
)
from optest.torch.operators import TORCH_OPERATORS
from optest.torch.operators.calls import TorchCall
from optest.torch.scripts import Unwritable, script_of
from optest.torch.shared_settings import settings_kept
from optest.torch.tensors import DTYPE_NAMES, Inexpressible, to_torch, torch_dtype

_NEEDS_VALUES = re.compile(r"meta tensor|'meta' backend|device type meta")


_OF_ANY_INTEGERS = frozenset({"elementwise", "comparison", "logic", "bitwise", "conversion", "reduction"})
"""Categories of operators whose integers are no indices or lengths."""


class TorchBackend(BackendDriver):
    """Runs the operator that torch has under the descriptor's name."""

    options = ("torch_device", "compile_backend", "max_bytes", "allow_fallback", "same_strides")
    name = "torch"
    kind = "torch"
    reads_inputs = False
    variants = ("inductor", "aot_eager", "eager")
    compares_variants = False  # a compiler takes seconds for each of more than twenty thousand calls

    def __init__(self) -> None:
        self._device = torch.device("cpu")
        self.compiler: str | None = None
        self._max_bytes = default_limit()
        self._may_fall_back: frozenset[str] = frozenset()
        self._same_strides = False
        self._target: DeviceUnderTest | None = None

    def configure(self, options: Mapping[str, Any]) -> None:
        """Take ``torch_device``: ``cpu``, ``cuda``, ``cuda:1``, ``npu`` …, and ``compile_backend``: ``inductor`` …

        What is not stated is as at first: a process may ask the driver more than once, each time for itself.

        Raises:
            UnknownName: for a device type that neither torch nor a known vendor module has.
            Unavailable: if this machine or this torch has no such device.
        """
        device = open_device(str(options.get("torch_device") or "cpu"))
        compiler = str(options.get("compile_backend") or "eager")
        if compiler != "eager":
            require_compiler(compiler)
        self._device = device
        self.compiler = None if compiler == "eager" else compiler
        self._max_bytes = options.get("max_bytes") or default_limit()
        self._may_fall_back = frozenset(names_in(options.get("allow_fallback") or ()))
        self._same_strides = bool(options.get("same_strides"))

    @property
    def numerics(self) -> Numerics:  # type: ignore[override]
        """Float32 operands may be cut to tf32 or bfloat16, as torch is set now; sums are kept in float32.

        Devices of vendors' modules may stop at the largest finite value, as Ascend's do in one of their modes.
        """
        return _numerics(_operand_precision(self._device.type), self._device.type)

    def run(self, case: TestCase, inputs: Sequence[Any]) -> Sequence[Any]:
        self._target = None
        if case.descriptor.category == CATEGORY:
            return self._call(case, inputs)
        operator = self._operator(case)
        with faults_of_torch():
            tensors = self._placed(case, inputs)
            with torch.no_grad():
                outputs = self._made(operator, case, tensors)
            self._synchronize()
            return [received(each, self._device) for each in outputs]

    def infer_shapes(self, case: TestCase) -> Sequence[TensorSpec]:
        """By tensors of the device ``meta``, which have no memory: shape functions answer in place of kernels."""
        call = _as_function(self._operator(case), case)
        with faults_of_torch(), torch.no_grad():
            specs = [each.spec for each in case.inputs]
            try:
                outputs = call(
                    *(torch.empty(each.shape, dtype=torch_dtype(each.dtype), device="meta") for each in specs)
                )
            except RuntimeError as error:
                if not _NEEDS_VALUES.search(str(error).lower()):
                    raise
                raise Fault(Reason.UNSUPPORTED, f"torch: without values: {first_line(error)}") from error
        return [TensorSpec(dtype=dtype(DTYPE_NAMES[each.dtype]), shape=tuple(each.shape)) for each in outputs]

    def _operator(self, case: TestCase) -> TorchCall:
        """Raises ``Fault``: UNSUPPORTED for an operator that torch lacks."""
        operator = TORCH_OPERATORS.get(case.descriptor.name)
        if operator is None:
            raise Fault(Reason.UNSUPPORTED, _no_such_operator(case.descriptor.name))
        return operator

    def _made(self, operator: TorchCall, case: TestCase, tensors: Sequence[torch.Tensor]) -> list[Any]:
        """Return what the operator makes of tensors, compiled if another variant or compiler than eager is asked."""
        call, name, target = _as_function(operator, case), case.descriptor.name, self._under_test(case)
        if target.compiler is None:
            return call(*tensors)
        self._target = target
        try:
            with settings_kept(f"what {target.compiler} compiled"):
                outputs = compiled(call, tensors, target, refuses=case.expects_error is not None)
                if case.expects_error is None:
                    reverses = case.descriptor.category in _OF_ANY_INTEGERS
                    require_values_followed(call, tensors, outputs, target, reverses=reverses)
                return outputs
        except Fault as fault:
            own = ("Unsupported", "data-dependent expression")  # what the call asks of values in Python
            if fault.reason is Reason.COMPILE and any(words in str(fault.details) for words in own):
                raise Fault(Reason.UNSUPPORTED, f"optest's call of torch for {name} is not one graph") from None
            raise

    def _placed(self, case: TestCase, inputs: Sequence[Any]) -> list[torch.Tensor]:
        """The inputs on the device, where they have the strides and offsets of the case."""
        return [self._on_device(case, index, array) for index, array in enumerate(inputs)]

    def _on_device(self, case: TestCase, index: int, array: Any) -> torch.Tensor:
        return to_torch(array, self._device, offset=case.inputs[index].spec.offset)

    def _call(self, case: TestCase, inputs: Sequence[Any]) -> Sequence[Any]:
        """Make a case that is a call of torch's own."""
        place = partial(self._on_device, case)
        self._target = self._under_test(case)
        compiler = self._target.compiler
        who = case.descriptor.name if compiler is None else f"what {compiler} compiled"
        if case.expects_error is not None:
            with settings_kept(who):
                return answer(case, inputs, place, self._target)
        with mixed_dtypes_refused(case, inputs), faults_of_torch(), settings_kept(who):
            return answer(case, inputs, place, self._target)

    def _under_test(self, case: TestCase) -> DeviceUnderTest:
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

    def further(self, case: TestCase) -> Sequence[FurtherAnswer]:  # noqa: ARG002 - of the case that was run last
        if self._target is None:
            return ()
        return tuple(
            FurtherAnswer(outputs=outputs, how=how, reason=Reason.NONDETERMINISTIC)
            for how, outputs in self._target.further
        )

    @contextmanager
    def prepared(self, case: TestCase, inputs: Sequence[Any]) -> Iterator[PreparedCall]:
        """The torch call on tensors that lie on the device already; like any call of torch it allocates its outputs.

        What a compiler is asked for is compiled by then.
        """
        tensors = self._placed(case, inputs)
        with torch.no_grad():
            ready = self._ready(case, inputs, tensors)

            def outputs() -> list[Any]:
                returned = ready.outputs()
                self._synchronize()
                return [received(each, self._device) for each in returned]

            yield PreparedCall(call=ready.call, outputs=outputs, synchronize=self._synchronize, what=ready.what)

    def _ready(self, case: TestCase, inputs: Sequence[Any], tensors: Sequence[torch.Tensor]) -> ReadyCall:
        if case.descriptor.category == CATEGORY:
            return ready_call(case, inputs, tensors, self._under_test(case))
        operator, attributes = TORCH_OPERATORS[case.descriptor.name], case.attributes
        placed, listed = at_their_places(case, tensors), _as_function(operator, case)
        target = self._target = self._under_test(case)
        if target.compiler is not None:
            function = compiled_function(listed, tensors, target, lambda function: function(*tensors))
            what = f"torch:{target.device} compiled by {target.compiler}"
            return ReadyCall(call=lambda: function(*tensors), outputs=lambda: list(function(*tensors)), what=what)
        return ReadyCall(call=lambda: operator(placed, attributes), outputs=lambda: listed(*tensors), what="")

    def script(self, case: TestCase, inputs: Sequence[ScriptInput], *, may_run: bool) -> Script | str:
        """The torch calls that this backend makes for the case, recorded while it makes them.

        Where nothing may run, they are made on tensors without values, which starts no kernel.
        """
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

    def unsupported(self, case: TestCase) -> str | None:
        if case.descriptor.category == CATEGORY:
            return why_no_operator(case) or why_too_large(case, self._max_bytes)
        if case.descriptor.name not in TORCH_OPERATORS:
            return _no_such_operator(case.descriptor.name)
        return None

    def device(self) -> str | None:
        return str(self._device)

    def versions(self) -> Mapping[str, str]:
        found = {"torch": str(torch.__version__)}  # a type of torch's own, which a journal holds otherwise
        if self._device.type == "cpu":
            # which of torch's kernels run here: AVX2, AVX512, or AVX512.amx where oneDNN has matrix units to use
            features: Mapping[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()  # torch 2.10
            amx = ".amx" if features.get("amx_tile") else ""
            found["torch_cpu"] = f"{torch.backends.cpu.get_cpu_capability()}{amx}"
        vendor = VENDOR_MODULES.get(self._device.type)
        if vendor is not None:
            found[vendor] = str(load_object(f"{vendor}:__version__"))
        if self._device.type == "cuda" and torch.version.cuda:
            found["cuda"] = torch.version.cuda
        return found

    def expectations(self) -> str | None:
        return str(Path(__file__).with_name("expectations.yaml")) if self._device.type == "cpu" else None

    def expectations_of_samples(self) -> str | None:
        is_plain = self._device.type == "cpu" and self.compiler is None
        return str(Path(__file__).with_name("call_expectations.yaml")) if is_plain else None

    def declares(self, operators: Sequence[str]) -> tuple[int, Sequence[str]]:
        return declared_operators(operators)

    def doctor(self) -> Sequence[str]:
        found = [f"torch {torch.__version__}", f"threads: {torch.get_num_threads()}", "device cpu"]
        for kind in OWN_DEVICES[1:]:
            found += [f"device {kind}:{index}{described(kind, index)}" for index in range(device_count(kind))]
        return found

    def _synchronize(self) -> None:
        synchronize(self._device)


def _as_function(operator: TorchCall, case: TestCase) -> Callable[..., list[Any]]:
    """The operator as a function of the case's tensors, which returns its outputs as a list."""
    places, attributes = at_their_places(case, range(len(case.inputs))), case.attributes

    def call(*given: torch.Tensor) -> list[Any]:
        output = operator([None if place is None else given[place] for place in places], attributes)
        return list(output) if isinstance(output, (tuple, list)) else [output]

    return call


@cache
def _numerics(operands: str, device: str) -> Numerics:
    overflow = "infinity" if device in OWN_DEVICES else "saturate"
    return Numerics(operands=operands, overflow=overflow, processor="cpu" if device == "cpu" else "accelerator")


def _operand_precision(kind: str) -> str:
    """What torch's switches allow to be done to float32 operands of a contraction."""
    backends = {"cuda": torch.backends.cuda.matmul, "cpu": torch.backends.mkldnn}
    switch = getattr(getattr(backends.get(kind), "matmul", backends.get(kind)), "fp32_precision", "none")
    if switch == "none":  # not stated there: the general switch decides, and it exists in every version
        switch = {"highest": "ieee", "high": "tf32", "medium": "bf16"}[torch.get_float32_matmul_precision()]
        if kind == "cpu" and switch == "tf32":
            return "float32"
    return {"tf32": "tf32", "bf16": "bfloat16"}.get(switch, "float32")


def _no_such_operator(name: str) -> str:
    hint = did_you_mean(name, TORCH_OPERATORS, text="; did you mean {!r}?")
    return f"the torch backend has no operator {name!r}{hint}"
