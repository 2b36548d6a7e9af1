"""Layers: references, parts, backends that lack a part, and wrong layers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from texts import says
from torch.nn import functional as F  # noqa: N812 - its usual name

from optest.api.checking import check_request, sample_cases
from optest.backends import BackendDriver, Capability, backend_manager
from optest.backends.arguments import require_defined
from optest.core.expected import make_inputs
from optest.core.runner import execute, why_not_run
from optest.errors import NothingSelected
from optest.operators import operators
from optest.operators.catalogue import LAYERS
from optest.registry import load_object
from optest.spec import Fault, Reason, Status, TestCase, Tier

NAMES = [each.name for each in LAYERS]
Tensors = dict[str, torch.Tensor]
Layer = Callable[[Tensors, dict[str, Any]], Sequence[torch.Tensor]]


def feed_forward(t: Tensors, a: dict[str, Any]) -> Sequence[torch.Tensor]:
    hidden = getattr(F, a["activation"])(F.linear(t["input"], t["up"], t.get("up_bias")))
    out = F.linear(hidden, t["down"], t.get("down_bias"))
    return (out, hidden) if a["states"] else (out,)


def gated_feed_forward(t: Tensors, a: dict[str, Any]) -> Sequence[torch.Tensor]:
    gate = getattr(F, a["activation"])(F.linear(t["input"], t["gate"], t.get("gate_bias")))
    hidden = gate * F.linear(t["input"], t["up"], t.get("up_bias"))
    out = F.linear(hidden, t["down"], t.get("down_bias"))
    return (out, hidden) if a["states"] else (out,)


def heads_of(t: Tensors, name: str, heads: int) -> torch.Tensor:
    rows = F.linear(t["input"], t[name], t.get(f"{name}_bias"))
    return rows.reshape(rows.shape[0], heads, -1).transpose(0, 1)


def multi_head_attention(t: Tensors, a: dict[str, Any]) -> Sequence[torch.Tensor]:
    shared = a["num_key_value_heads"] or a["num_heads"]
    query, key, value = heads_of(t, "query", a["num_heads"]), heads_of(t, "key", shared), heads_of(t, "value", shared)
    mixed = F.scaled_dot_product_attention(query, key, value, is_causal=a["is_causal"], enable_gqa=True)
    context = mixed.transpose(0, 1).reshape(t["input"].shape[0], -1)
    out = F.linear(context, t["output"], t.get("output_bias"))
    return (out, context, key, value) if a["states"] else (out,)


def gpt(t: Tensors, a: dict[str, Any]) -> Sequence[torch.Tensor]:
    """Compute all tokens at once with torch's functions."""
    length, size = t["tokens"].shape[0], t["embedding"].shape[1]
    hidden = F.embedding(t["tokens"], t["embedding"]) + t["positions"][:length]
    for layer in range(t["up"].shape[0]):
        norms, (query, key, value, output) = t["norms"][layer], t["attention"][layer]
        rows = F.layer_norm(hidden, [size], norms[0], norms[1])
        heads = [
            F.linear(rows, each).reshape(length, a["num_heads"], -1).transpose(0, 1) for each in (query, key, value)
        ]
        mixed = F.scaled_dot_product_attention(*heads, is_causal=True)
        hidden = hidden + F.linear(mixed.transpose(0, 1).reshape(length, size), output)
        rows = F.layer_norm(hidden, [size], norms[2], norms[3])
        hidden = hidden + F.linear(F.gelu(F.linear(rows, t["up"][layer])), t["down"][layer])
    return (F.linear(F.layer_norm(hidden, [size], *t["final_norm"]), t["embedding"]),)


def decoded(t: Tensors, a: dict[str, Any], **changed: Callable[[Tensors, int], torch.Tensor]) -> Sequence[torch.Tensor]:
    """Compute the logits of every step after the prefill from changed inputs."""
    logits = gpt(t, a)[0].clone()
    for step in range(a["prefill"] or len(logits), len(logits)):
        logits[step] = gpt(t | {name: change(t, step) for name, change in changed.items()}, a)[0][step]
    return (logits,)


def yarn_rotary_embedding(t: Tensors, a: dict[str, Any]) -> Sequence[torch.Tensor]:
    """Rotate pairs as complex numbers."""
    size = a["rotary_embedding_dim"] or t["input"].shape[-1]
    places = [
        size * math.log(a["original_length"] / (2 * math.pi * beta)) / (2 * math.log(a["base"]))
        for beta in (a["beta_fast"], a["beta_slow"])
    ]
    low, high = max(math.floor(places[0]), 0), min(math.ceil(places[1]), size - 1)
    angles = []
    for place in range(size // 2):
        wave = a["base"] ** (-2 * place / size)
        kept = 1 - min(1.0, max(0.0, (place - low) / (high - low)))
        angles.append(t["positions"] * (wave * kept + wave / a["factor"] * (1 - kept)))
    growth = [0.1 * a[name] * math.log(a["factor"]) + 1 for name in ("mscale", "mscale_all_dim")]
    turn = torch.polar(torch.full_like(torch.stack(angles, -1), growth[0] / growth[1]), torch.stack(angles, -1))
    first, second = t["input"][..., : size // 2], t["input"][..., size // 2 : size]
    turned = torch.complex(first, second) * turn
    return (torch.cat([turned.real, turned.imag, t["input"][..., size:]], -1),)


def training_step(t: Tensors, a: dict[str, Any]) -> Sequence[torch.Tensor]:
    weight, bias = t["weight"].clone().requires_grad_(), t["bias"].clone().requires_grad_()
    loss = F.mse_loss(F.linear(t["input"], weight, bias), t["target"])
    loss.backward()
    assert weight.grad is not None
    assert bias.grad is not None
    moved = [(each - a["learning_rate"] * each.grad).detach() for each in (weight, bias)]
    return (*moved, loss.detach())


RIGHT: dict[str, Layer] = {
    each.__name__: each
    for each in (feed_forward, gated_feed_forward, multi_head_attention, gpt, yarn_rotary_embedding, training_step)
}


class OwnLayers(BackendDriver):
    """Backend that implements layers in torch."""

    name = "own_layers"

    def __init__(self, layers: dict[str, Layer]) -> None:
        self.layers = layers
        self.capabilities = {name: Capability(dtypes=("float32", "float64"), layouts=("dense",)) for name in layers}

    def run(self, case: TestCase, inputs: Sequence[Any]) -> Sequence[Any]:
        tensors = {argument.name: torch.tensor(each) for argument, each in zip(case.inputs, inputs, strict=True)}
        require_defined(case)
        return [each.numpy() for each in self.layers[case.descriptor.name](tensors, dict(case.attributes))]


def valid_cases(name: str) -> list[TestCase]:
    return [case for case in sample_cases(name) if case.expects_error is None]


def statuses(driver: BackendDriver, name: str) -> Iterator[Status]:
    """Yield the status of each float32 case."""
    for case in sample_cases(name):
        if case.inputs[0].spec.dtype.name == "float32" and why_not_run(case, driver) is None:
            yield execute([case], driver).verdicts[0].status


def in_signature_order(case: TestCase, inputs: Sequence[Any]) -> list[Any]:
    """Return the inputs in the signature's order, with None for those that are left out."""
    by_name = {argument.name: each for argument, each in zip(case.inputs, inputs, strict=True)}
    return [by_name.get(each.name) for each in case.descriptor.tensors.inputs]


@pytest.mark.parametrize("name", NAMES)
def test_layer_reference_equals_torch_in_float64(name: str) -> None:
    for case in valid_cases(name):
        inputs, _ = make_inputs(case)
        wide = {
            argument.name: torch.tensor(values if values.dtype.kind in "iu" else values.astype(np.float64))
            for argument, values in zip(case.inputs, inputs, strict=True)
        }
        expected = load_object(case.descriptor.reference)(in_signature_order(case, inputs), dict(case.attributes))
        for result, right in zip(expected, RIGHT[name](wide, dict(case.attributes)), strict=True):
            np.testing.assert_allclose(result, right.numpy(), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.heavy if name.endswith(("feed_forward", "attention")) else ())
        for name in NAMES
    ],
)
def test_correct_backend_layer_passes(name: str) -> None:
    assert set(statuses(OwnLayers(RIGHT), name)) == {Status.PASSED}


@pytest.mark.parametrize("name", NAMES)
def test_composition_calls_declared_parts(name: str) -> None:
    called = set()
    for case in valid_cases(name):
        inputs, _ = make_inputs(case)
        layer = load_object(case.descriptor.composition)

        class Calls:
            constant = staticmethod(np.asarray)

            def __call__(self, operator: str, *tensors: Any, **attributes: Any) -> Any:
                called.add(operator)
                descriptor = operators.get(operator)
                return np.asarray(load_object(descriptor.reference)(tensors, descriptor.bind(attributes))[0])

        layer(Calls(), in_signature_order(case, inputs), dict(case.attributes))
    assert called == set(parts_of(name))


def without(t: Tensors, *names: str) -> Tensors:
    return {name: each for name, each in t.items() if name not in names}


def interleaved_heads(t: Tensors, a: dict[str, Any]) -> Sequence[torch.Tensor]:
    """Pair head h of the query with head h modulo the number of shared ones."""
    shared = a["num_key_value_heads"] or a["num_heads"]
    query, key, value = heads_of(t, "query", a["num_heads"]), heads_of(t, "key", shared), heads_of(t, "value", shared)
    times = a["num_heads"] // shared
    mixed = F.scaled_dot_product_attention(
        query, key.repeat(times, 1, 1), value.repeat(times, 1, 1), is_causal=a["is_causal"]
    )
    context = mixed.transpose(0, 1).reshape(t["input"].shape[0], -1)
    out = F.linear(context, t["output"], t.get("output_bias"))
    return (out, context, key, value) if a["states"] else (out,)


def lost_cache(t: Tensors, a: dict[str, Any]) -> Sequence[torch.Tensor]:
    """Hide the last token of the prefill from later ones."""
    out = list(multi_head_attention(t, a))
    if 0 < a["prefill"] < t["input"].shape[0]:
        shorter = t | {"input": torch.cat([t["input"][: a["prefill"] - 1], t["input"][a["prefill"] :]])}
        out[0] = torch.cat([out[0][: a["prefill"]], multi_head_attention(shorter, a)[0][a["prefill"] - 1 :]])
    return out


def with_step(factor: float) -> Layer:
    def step(t: Tensors, a: dict[str, Any]) -> Sequence[torch.Tensor]:
        return training_step(t, a | {"learning_rate": a["learning_rate"] * factor})

    return step


COSTLY = ("a window", "hidden sizes in blocks", "one activation for all", "a cache that loses a token")
WRONG: dict[str, tuple[str, Layer]] = {
    "a bias forgotten": ("feed_forward", lambda t, a: feed_forward(without(t, "down_bias"), a)),
    "gelu by tanh": ("feed_forward", lambda t, a: feed_forward_by_tanh(t, a)),
    "an activation too many": ("feed_forward", lambda t, a: (feed_forward(t, a)[0].relu(), *feed_forward(t, a)[1:])),
    "operands in bfloat16": ("feed_forward", lambda t, a: feed_forward(rounded(t), a)),
    "gate and up exchanged": (
        "gated_feed_forward",
        lambda t, a: gated_feed_forward(t | {"gate": t["up"], "up": t["gate"]}, a),
    ),
    "no mask": ("multi_head_attention", lambda t, a: multi_head_attention(t, a | {"is_causal": False})),
    "heads of the wrong group": ("multi_head_attention", interleaved_heads),
    "a cache that loses a token": ("multi_head_attention", lost_cache),
    "one activation for all": ("feed_forward", lambda t, a: feed_forward(t, a | {"activation": "gelu"})),
    "hidden sizes in blocks": ("feed_forward", lambda t, a: feed_forward(cut(t, "up", "up_bias"), a)),
    "a cache of the first call": ("multi_head_attention", lambda t, a: kept(t, a)),
    "a window": ("multi_head_attention", lambda t, a: windowed(t, a)),
    "one weight of the growth for both": (
        "yarn_rotary_embedding",
        lambda t, a: yarn_rotary_embedding(t, a | {"mscale_all_dim": 0.0}),
    ),
    "decoded without a position": (
        "gpt",
        lambda t, a: decoded(t, a, positions=lambda t, step: t["positions"].roll(step, 0)),
    ),
    "decoded behind a lost token": (
        "gpt",
        lambda t, a: decoded(t, a, tokens=lambda t, _: torch.cat([t["tokens"][1:2], t["tokens"][1:]])),
    ),
    "norms exchanged": ("gpt", lambda t, a: gpt(t | {"norms": t["norms"].roll(2, 1)}, a)),
    "angles as they were": ("yarn_rotary_embedding", lambda t, a: yarn_rotary_embedding(t, a | {"factor": 1.0})),
    "positions off by one": (
        "yarn_rotary_embedding",
        lambda t, a: yarn_rotary_embedding(t | {"positions": t["positions"] + 1}, a),
    ),
    "no partial rotation": (
        "yarn_rotary_embedding",
        lambda t, a: yarn_rotary_embedding(t, a | {"rotary_embedding_dim": 0}),
    ),
    "parameters that stay": ("training_step", with_step(0.0)),
    "uphill": ("training_step", with_step(-1.0)),
    "half a gradient": ("training_step", with_step(0.5)),
    "a loss that is no mean": (
        "training_step",
        lambda t, a: (*training_step(t, a)[:2], training_step(t, a)[2] * t["target"].numel()),
    ),
}


def cut(t: Tensors, *names: str) -> Tensors:
    """Set all rows after the first 256 to zero."""
    kept_rows = {name: t[name].clone() for name in names if name in t}
    for each in kept_rows.values():
        each[256:] = 0
    return t | kept_rows


FIRST_RESULTS: dict[Any, Sequence[torch.Tensor]] = {}


def kept(t: Tensors, a: dict[str, Any]) -> Sequence[torch.Tensor]:
    """Return the result of the first call with these shapes."""
    key = (*((name, each.shape) for name, each in t.items()), *a.items(), t["input"].dtype)
    return FIRST_RESULTS.setdefault(key, multi_head_attention(t, a))


def windowed(t: Tensors, a: dict[str, Any]) -> Sequence[torch.Tensor]:
    """Hide the first token from those after the 16th."""
    out = list(multi_head_attention(t, a))
    if t["input"].shape[0] > 16 and a["is_causal"]:
        later = multi_head_attention(t | {"input": t["input"][1:]}, a | {"prefill": 0})[0]
        out[0] = torch.cat([out[0][:16], later[15:]])
    return out


def rounded(t: Tensors) -> Tensors:
    return {name: each.bfloat16().to(each.dtype) for name, each in t.items()}


def feed_forward_by_tanh(t: Tensors, a: dict[str, Any]) -> Sequence[torch.Tensor]:
    rows = F.linear(t["input"], t["up"], t.get("up_bias"))
    hidden = F.gelu(rows, approximate="tanh") if a["activation"] == "gelu" else getattr(F, a["activation"])(rows)
    out = F.linear(hidden, t["down"], t.get("down_bias"))
    return (out, hidden) if a["states"] else (out,)


@pytest.mark.parametrize(
    "fault",
    [pytest.param(fault, marks=pytest.mark.heavy if fault in COSTLY else ()) for fault in WRONG],
)
def test_wrong_layer_fails(fault: str) -> None:
    name, layer = WRONG[fault]
    assert Status.FAILED in statuses(OwnLayers({name: layer}), name)


def parts_of(name: str) -> list[str]:
    return [each for part in operators.get(name).parts for each in part.split("|")]


class Portable(BackendDriver):
    """Backend of operators in float32, one of which may be wrong or refused."""

    name = "portable"

    def __init__(self, has: Sequence[str], *, wrong: str = "", refused: str = "") -> None:
        self.has, self.wrong, self.refused = has, wrong, refused

    def lacks(self, descriptor: Any) -> str | None:
        return None if descriptor.name in self.has else "not in portable"

    def run(self, case: TestCase, inputs: Sequence[Any]) -> Sequence[Any]:
        if case.descriptor.name == self.refused:
            raise Fault(Reason.UNSUPPORTED, "not today")
        outputs = backend_manager.get("numpy").run(case, inputs)
        return [each * np.float32(1.01) if case.descriptor.name == self.wrong else each for each in outputs]


def first_case(name: str) -> TestCase:
    return next(case for case in sample_cases(name, Tier.SMOKE))


@pytest.mark.parametrize("name", NAMES)
def test_backend_of_operators_computes_layers(name: str) -> None:
    assert execute([first_case(name)], Portable(parts_of(name))).verdicts[0].status is Status.PASSED


def test_layer_failure_names_wrong_part() -> None:
    verdict = execute([first_case("feed_forward")], Portable(parts_of("feed_forward"), wrong="gelu")).verdicts[0]
    assert verdict.status is Status.FAILED
    (sentence,) = verdict.details["diagnosis"]
    assert "call 3, gelu[float32](4x10)" in sentence


def test_refused_part_skips_layer() -> None:
    verdict = execute([first_case("feed_forward")], Portable(("linear", "add", "gelu"), refused="gelu")).verdicts[0]
    assert (verdict.status, verdict.reason) == (Status.SKIPPED, Reason.UNSUPPORTED)
    assert says(verdict.message, "operators.call_of_the_layer")


class Promising(BackendDriver):
    name = "promising"

    def __init__(self) -> None:
        self.capabilities = {name: Capability() for name in ("linear", "add", "gelu")}

    def run(self, case: TestCase, inputs: Sequence[Any]) -> Sequence[Any]:
        raise Fault(Reason.UNSUPPORTED, "not today")


def test_refused_declared_part_is_an_error() -> None:
    verdict = execute([first_case("feed_forward")], Promising()).verdicts[0]
    assert (verdict.status, verdict.reason) == (Status.ERROR, Reason.RAISED)
    assert says(verdict.message, "operators.states_that_it_can")


@pytest.fixture
def registered() -> None:
    backend_manager.register(Portable(("linear", "add", "gelu", "relu", "silu")), replace=True)


@pytest.mark.usefixtures("registered")
def test_check_runs_layers_with_supported_parts() -> None:
    request = check_request({"backend": "portable", "tier": "smoke"})
    assert "feed_forward" in {case.descriptor.name for case in request.run.cases}
    assert any("made of mul, which" in each for each in request.unsupported)
    with pytest.raises(NothingSelected, match="made of mul"):
        check_request({"backend": "portable", "op": ("gated_feed_forward",)})


def test_unsupported_layers_are_reported_on_request_only() -> None:
    backend_manager.register(Portable(("relu",)), replace=True)
    assert not any("made of" in each for each in check_request({"backend": "portable", "tier": "smoke"}).unsupported)
    both = check_request({"backend": "portable", "tier": "smoke", "op": ("relu", "feed_forward")})
    assert any("feed_forward is made of" in each for each in both.unsupported)


def test_error_case_of_composed_layer_is_skipped() -> None:
    case = next(case for case in sample_cases("feed_forward") if case.expects_error is not None)
    verdict = why_not_run(case, Portable(("linear", "add", "gelu")))
    assert verdict is not None
    assert (verdict.status, verdict.reason) == (Status.SKIPPED, Reason.UNSUPPORTED)


def test_backend_with_one_activation_runs_its_layers() -> None:
    driver = Portable(("linear", "add", "relu"))
    by_activation = {case.attributes["activation"]: case for case in valid_cases("feed_forward")}
    statuses_by_activation = {name: execute([case], driver).verdicts[0].status for name, case in by_activation.items()}
    assert statuses_by_activation == {"gelu": Status.SKIPPED, "relu": Status.PASSED, "silu": Status.SKIPPED}
