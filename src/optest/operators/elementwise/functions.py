"""Real functions of one number, from exp to digamma."""

from __future__ import annotations

from collections.abc import Iterator

from optest.operators.calls import EVERY_FLOAT, linspace_call, with_values
from optest.operators.describe import BOOL, MEASURED, NUMBERS, OPENCL, in_module, ulp
from optest.operators.elementwise.helpers import Samples, unary
from optest.operators.samples import exhaustive_samples, variations
from optest.spec import Interval, OperatorDescriptor, Sample


def _function_descriptor(
    name: str,
    ceiling: float,
    low: float,
    high: float,
    description: str,
    *,
    avoid: float = 0.0,
    aliases: tuple[str, ...] = (),
    source: str = OPENCL,
    cpu_ulp: float | None = None,
    more: str = "",
) -> OperatorDescriptor:
    """Return the descriptor of a function with a ceiling in ulp; random inputs are drawn from ``low`` to ``high``.

    ``cpu_ulp`` is the ceiling on CPUs; ``more`` describes what the function's error terms add to it.
    """
    # Ceilings above OpenCL's, and those for CPUs, hold for NumPy, torch, JAX, ONNX Runtime and OpenVINO as measured on
    # a CPU against 200-bit values: docs/verdicts.md has the figures.
    return OperatorDescriptor(
        name=name,
        aliases=aliases,
        dtype_variants=(*NUMBERS, *BOOL),
        infer="..shapes:infer_float",
        terms=f"{name}_terms" if more else None,
        rule=ulp(ceiling, source, more, cpu=cpu_ulp),
        domain={"input": Interval(low=low, high=high, avoid=avoid)},
        signed_zeros=True,  # C Annex F.10: f(±0) = ±0 where f is odd there, log(1) = +0, exp(-∞) = +0, 1/±∞ = ±0
        description=f"{description}; integers give float32.",
    )


DESCRIPTORS = in_module(
    __name__,
    # exp(11) is the last power below the overflow of float16, exp(-15) still one of its subnormals.
    _function_descriptor(
        "exp",
        3.0,
        -15.0,
        11.0,
        "Exponential",
        aliases=("Exp: input -> output",),
        more="|input|/16·|out| more, up to |input| = 88",
    ),
    # 3 in OpenCL C, but NumPy reaches 3.83 at 0.783 and ONNX Runtime 3.47 at 1.133.
    _function_descriptor(
        "log", 4.0, 2.0**-14, 65504.0, "Natural logarithm", aliases=("Log: input -> output",), source=MEASURED
    ),
    # 2 in OpenCL C, but JAX reaches 2.52 at 0.415.
    _function_descriptor(
        "log1p", 3.0, -0.9990234375, 65504.0, "log(1 + input), accurate where 1 + input rounds to 1", source=MEASURED
    ),
    _function_descriptor("expm1", 3.0, -15.0, 11.0, "exp(input) − 1, accurate where the subtraction cancels"),
    _function_descriptor(
        "sqrt",
        3.0,
        0.0,
        65504.0,
        "Square root; IEEE 754 rounds it correctly, fast hardware does not",
        aliases=("Sqrt: X -> Y",),
        cpu_ulp=1.0,
    ),
    _function_descriptor("rsqrt", 2.0, 2.0**-14, 65504.0, "Reciprocal of the square root"),
    _function_descriptor(
        "reciprocal", 2.5, -1024.0, 1024.0, "1 / input", avoid=2.0**-10, aliases=("Reciprocal: X -> Y",), cpu_ulp=1.0
    ),
    _function_descriptor(
        "sin", 4.0, -100.0, 100.0, "Sine of radians of any size", aliases=("Sin: input -> output",), cpu_ulp=3.0
    ),
    _function_descriptor(
        "cos", 4.0, -100.0, 100.0, "Cosine of radians of any size", aliases=("Cos: input -> output",), cpu_ulp=3.0
    ),
    # 5 in OpenCL C, but ONNX Runtime reaches 5.46 at 8.48 and JAX 4.90 at 5.13.
    _function_descriptor(
        "tanh", 6.0, -10.0, 10.0, "Hyperbolic tangent", aliases=("Tanh: input -> output",), source=MEASURED
    ),
    _function_descriptor("erf", 16.0, -6.0, 6.0, "Error function", aliases=("Erf: input -> output",), cpu_ulp=8.0),
    # torch reaches 0.6 in float32 and 1.3 in float64.
    _function_descriptor(
        "erfinv",
        4.0,
        -0.9990234375,
        0.9990234375,
        "Inverse of the error function; ±∞ at ±1, NaN beyond",
        source="twice the bound of erfinvf in the CUDA C++ Programming Guide",
    ),
    _function_descriptor(
        "digamma",
        4.0,
        2.0**-10,
        65504.0,
        "Derivative of the logarithm of Γ; NaN at −1, −2 …, -∞ at 0, +∞ at −0",
        source="twice the error measured in torch",
        more="4·(ln max(x, 10) + Σ 1/(x + i) below 10) more, and below 0 the error of the reflection",
    ),
    twin="functions_reference",
)


def _samples_of(
    *lines: tuple[float, float], far: tuple[float, float], beyond: tuple[float, float] | None = None
) -> Samples:
    """Return a function that yields samples of a real function: those of ``unary``, every value, and 1,021 per range.

    ``lines`` are ranges for every float dtype, ``far`` is one for dtypes with the exponents of float32 or more.
    ``beyond`` is a range in which the function has reached its limits at both ends; float16 gets narrower ones.
    """
    # Powers of two close to 0, where a formula such as log(1 + x) cancels.
    tiny = [sign * 2.0**-power for power in range(2, 14) for sign in (1.0, -1.0)]

    def samples() -> Iterator[Sample]:
        yield from unary((*NUMBERS, *BOOL))
        calls = [linspace_call(*ends) for ends in lines]
        yield from variations("range", [*calls, with_values(tiny)], dtypes=EVERY_FLOAT)
        wide = [linspace_call(*ends) for ends in (far, beyond) if ends is not None]
        yield from variations("range", wide, dtypes=("float32", "bfloat16", "float64"))
        if beyond is not None:
            yield from variations("range", [linspace_call(-6e4, 6e4), linspace_call(-60.0, 60.0)], dtypes=("float16",))
        yield from exhaustive_samples()

    return samples


exp_samples = _samples_of((-18.0, 12.0), (-0.01, 0.01), far=(-104.0, 89.0), beyond=(-1e4, 1e4))
expm1_samples = _samples_of((-18.0, 12.0), (-0.01, 0.01), far=(-104.0, 89.0), beyond=(-1e4, 1e4))
log_samples = _samples_of((2.0**-10, 4.0), (0.96, 1.04), (4.0, 6e4), far=(1e5, 3e38))
log1p_samples = _samples_of((-0.99, 3.0), (-0.01, 0.01), (4.0, 6e4), far=(1e5, 3e38))
sqrt_samples = _samples_of((2.0**-10, 4.0), (4.0, 6e4), far=(1e5, 3e38))
rsqrt_samples = _samples_of((2.0**-10, 4.0), (4.0, 6e4), far=(1e5, 3e38))
reciprocal_samples = _samples_of((2.0**-10, 4.0), (-6e4, -4.0), far=(1e5, 8e37))
sin_samples = _samples_of((-7.0, 7.0), (-0.01, 0.01), (80.0, 2000.0), far=(1e4, 1e6))
cos_samples = _samples_of((-7.0, 7.0), (1.55, 1.59), (80.0, 2000.0), far=(1e4, 1e6))
tanh_samples = _samples_of((-12.0, 12.0), (-0.01, 0.01), (-0.7, 0.7), far=(-100.0, 100.0), beyond=(-1e30, 1e30))
erf_samples = _samples_of((-8.0, 8.0), (-0.01, 0.01), (-1.0, 1.0), far=(-100.0, 100.0), beyond=(-1e30, 1e30))
_erfinv_ranges = _samples_of((-1.25, 1.25), (-0.01, 0.01), (0.9, 1.0), far=(0.9, 0.999))
_digamma_ranges = _samples_of((-7.9, 9.9), (-0.01, 0.01), (1.4, 1.5), (9.0, 6e4), far=(1e5, 3e38))


def erfinv_samples() -> Iterator[Sample]:
    yield from _erfinv_ranges()
    # Towards ±1, where the function grows without bound, and one value beyond.
    tail = [sign * (1.0 - 2.0**-power) for power in range(1, 25) for sign in (1.0, -1.0)]
    yield from variations("range", [with_values([*tail, 1.0 + 2.0**-23])], dtypes=("float32", "float64"))


def digamma_samples() -> Iterator[Sample]:
    yield from _digamma_ranges()
    poles = [-1.0, -2.0, -3.0, -64.0, -65536.0]
    near_poles = [pole + step for pole in poles[:3] for step in (2.0**-9, -(2.0**-9), 0.5)]
    yield from variations("range", [with_values([*poles, *near_poles, 0.0, -0.0])], dtypes=EVERY_FLOAT)
