"""Models are captured and their calls run back: the stored files are what capturing gives, and all of it passes."""

from __future__ import annotations

import re
from collections.abc import Set
from pathlib import Path

import pytest
import warm_python
from user_shell import user_environment

from optest.spec import CaseResult, Status
from optest.store import read_journal

pytest.importorskip("torch")
pytestmark = [pytest.mark.slow, pytest.mark.torch]


MODELS = Path(__file__).parents[2] / "examples" / "models"
NAMES = ("gpt2", "llama", "mixture", "mobilenet", "resnet", "speech")


def optest(folder: Path, *words: str, status: int = 0, **environment: str) -> str:
    """What the command prints."""
    ended = warm_python.run("optest", *words, cwd=folder, env=user_environment(OPTEST_ISOLATE="none", **environment))
    text = ended.stdout + ended.stderr
    assert ended.returncode == status, text
    assert "Traceback" not in text, text
    return text


def results_of(folder: Path) -> dict[str, CaseResult]:
    (journal,) = (folder / ".optest" / "runs").glob("*/journal.jsonl")
    return {result.id: result for result in read_journal(journal).results}


@pytest.mark.heavy
def test_capturing_again_gives_the_stored_bytes(tmp_path: Path) -> None:
    """In another process, with the seeds that the command sets."""
    lines = [f"capture({f'{MODELS / name}.py:forward'!r}, {f'{name}.yaml'!r})" for name in NAMES]
    (tmp_path / "again.py").write_text("\n".join(["from optest.torch.capture_command import capture", *lines]))
    done = warm_python.run("again", cwd=tmp_path, env=user_environment())
    assert done.returncode == 0, done.stderr
    for name in NAMES:
        assert (tmp_path / f"{name}.yaml").read_bytes() == (MODELS / f"{name}.yaml").read_bytes(), name


@pytest.mark.heavy
def test_all_captured_cases_pass_in_float64(tmp_path: Path) -> None:
    """The reference's own precision, in which both are one computation; examples/models/README.md runs their own."""
    texts = {}
    for name in NAMES:
        text = (MODELS / f"{name}.yaml").read_text()
        texts[name] = text.replace("defaults: {dtype: float32,", "defaults: {dtype: float64,")
        assert texts[name] != text
    write_all(tmp_path, texts)
    optest(tmp_path, "run", "--plan", "all.yaml")
    results = results_of(tmp_path)
    require_all_passed(results, set(texts))
    assert len(results) == 446


MANY_CALLS = """
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
X, Y = torch.randn(4, 6), torch.randn(4, 6)
AT = torch.tensor([2, 0, 1])
IMAGE = torch.randn(2, 4, 8, 8)
SEQ = torch.randn(2, 5, 8)
MHA = nn.MultiheadAttention(8, 2, batch_first=True).eval()
LSTM, GRU = nn.LSTM(8, 8, batch_first=True).eval(), nn.GRU(8, 4, bidirectional=True, batch_first=True).eval()
LAYER = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
Z = torch.randn(3, 4, dtype=torch.complex64)
BN = nn.BatchNorm2d(4)


@torch.no_grad()
def forward():
    x = X.clone(); x += 1; x -= Y; x *= 2; x /= 3; x //= 0.5; x %= 2; x **= 2; x[0] = 5; x[1:, ::2] = Y[1:, ::2]
    x[:, AT] = Y[:, AT]; x[x > 1] = 0.5; x[AT, AT] = torch.zeros(3); x[..., 0] += 1; x.view(-1)[3:5].add_(1)
    x.t().mul_(2); x.clamp_(-2, 2).abs_().sqrt_(); 1 + X; 1 - X; 2 * X; 2 / X.abs().add(1); 3 // X.abs().add(1)
    7 % X.abs().add(1); 2 ** X; X @ Y.T; Y.mT @ X; X.H; (X > 0) & (Y > 0); (X > 0) | (Y > 0); (X > 0) ^ (Y > 0)
    ~(X > 0); AT << 1; AT >> 1; AT & 1; -AT; AT // 2; AT % 2; AT ** 2; AT / 2; torch.where(X > 0, X, 0.0)
    torch.where(X > 0); X.nonzero(); X[X > 0]; X.masked_select(Y > 0); X.masked_fill(X > 0, 1.0)
    X.gather(1, torch.tensor([[0, 1], [2, 3], [4, 5], [0, 0]]))
    X.scatter(1, torch.tensor([[0], [1], [2], [3]]), 9.0); X.scatter_add(0, torch.tensor([[0, 1, 2, 0, 1, 2]]), Y)
    X.index_select(1, AT); X.index_add(1, AT, Y[:, :3]); X.index_copy(1, AT, Y[:, :3]); X.index_fill(1, AT, 3.0)
    X.take(AT); torch.take_along_dim(X, X.argsort(1), 1); X.index_put((AT, AT), torch.ones(3)); F.one_hot(AT, 5)
    F.one_hot(AT); X.sort(1); X.topk(2); X.kthvalue(2); X.median(); X.max(1); X.argmin(); X.cumsum(1); X.cumprod(0)
    X.logcumsumexp(1); X.flip(0); X.roll(1, 1); X.split([1, 2, 3], 1); X.chunk(3, 1); X.unbind()
    torch.tensor_split(X, 3, 1); X.unfold(1, 3, 2); X.unflatten(1, (2, 3)); X.tile(2, 1); X.repeat(1, 2)
    X.repeat_interleave(2, 0); X.repeat_interleave(torch.tensor([1, 2, 0, 1]), 0); torch.stack([X, Y])
    torch.cat((X, Y), 1); torch.hstack((X, Y)); torch.meshgrid(AT, AT, indexing="ij"); torch.cartesian_prod(AT, AT)
    torch.block_diag(X, Y); torch.einsum("ij,kj->ik", X, Y); torch.einsum("ij,kj->ik", [X, Y])
    torch.tensordot(X, Y, dims=([1], [1])); torch.baddbmm(SEQ[:, :, :5], SEQ, SEQ.mT)
    torch.addmm(X[:, :4], X, Y.T, beta=0.5, alpha=2); torch.outer(X[0], Y[0]); torch.kron(X, Y); torch.cdist(X, Y)
    X.std(1); X.var(0, unbiased=False); X.norm(); X.norm(dim=1, p=1); torch.linalg.norm(X, dim=1); X.logsumexp(1)
    X.prod(1); X.all(); X.any(1); X.count_nonzero(); X.mean((0, 1)); torch.std_mean(X, 1); X.amax(1); X.aminmax()
    F.softmax(X, -1); F.log_softmax(X, -1); F.gelu(X); F.silu(X); F.mish(X); F.elu(X); F.leaky_relu(X, 0.1)
    F.softplus(X); F.hardswish(X); F.hardsigmoid(X); F.prelu(X, torch.tensor([0.2])); F.glu(X); F.tanhshrink(X)
    F.celu(X); F.selu(X); F.logsigmoid(X); F.softsign(X); F.threshold(X, 0, 1); X.exp(); X.abs().log()
    X.abs().log1p(); X.sin(); X.tanh(); X.erf(); X.sigmoid(); X.abs().rsqrt(); X.reciprocal(); X.floor(); X.round()
    X.sign(); X.trunc(); X.frac(); X.expm1(); torch.atan2(X, Y); torch.hypot(X, Y); torch.lerp(X, Y, 0.3)
    torch.addcmul(X, X, Y, value=0.1); torch.addcdiv(X, X, Y.abs() + 1, value=0.1); X.clamp(min=Y)
    torch.maximum(X, Y); X.heaviside(Y); X.nan_to_num(); X.float().half().bfloat16().double().int().bool(); X.to(Y)
    X.type(torch.float64); X.type_as(AT); X.isnan(); torch.isclose(X, Y); torch.special.erfinv(X.tanh())
    torch.bucketize(X, torch.tensor([-1.0, 0.0, 1.0])); torch.searchsorted(torch.tensor([-1.0, 0.0, 1.0]), X)
    torch.bincount(AT); torch.histc(X, 4); X.tril(); X.triu(1); torch.diag(X[0]); X.diagonal(); torch.diag_embed(X)
    torch.eye(3); torch.linspace(0, 1, 5); torch.logspace(0, 1, 3); torch.zeros(2, 3); torch.ones_like(X)
    torch.full_like(X, 2.0); X.new_zeros(2, 2); X.new_tensor([1.0, 2.0]); torch.tensor([1, 2])
    torch.tril_indices(3, 3); torch.as_tensor([1.0]); torch.scalar_tensor(2.0)
    F.conv2d(IMAGE, torch.randn(6, 2, 3, 3), padding="same", groups=2)
    F.conv2d(IMAGE, torch.ones(6, 4, 3, 3), stride=2, dilation=2)
    F.conv_transpose2d(IMAGE, torch.ones(4, 3, 2, 2), stride=2); F.conv1d(SEQ.mT, torch.ones(3, 8, 3))
    F.conv3d(IMAGE[:, None], torch.ones(2, 1, 2, 2, 2)); F.max_pool2d(IMAGE, 2)
    F.max_pool2d(IMAGE, 2, return_indices=True); F.avg_pool2d(IMAGE, 3, 1, 1, count_include_pad=False)
    F.adaptive_avg_pool2d(IMAGE, (3, 3)); F.adaptive_max_pool2d(IMAGE, 2); F.interpolate(IMAGE, scale_factor=2.0)
    F.interpolate(IMAGE, size=5, mode="bicubic")
    F.interpolate(IMAGE, scale_factor=1.3, mode="bilinear", align_corners=True)
    F.pad(IMAGE, (1, 2, 3, 0), mode="reflect"); F.pad(IMAGE, (1, 1), value=3.0); F.pixel_shuffle(IMAGE, 2)
    F.unfold(IMAGE, 2); F.fold(F.unfold(IMAGE, 2), (8, 8), 2)
    F.grid_sample(IMAGE, torch.rand(2, 3, 3, 2), align_corners=False)
    F.affine_grid(torch.rand(2, 2, 3), (2, 4, 3, 3), align_corners=False); F.group_norm(IMAGE, 2)
    F.instance_norm(IMAGE); F.layer_norm(SEQ, (8,)); F.rms_norm(SEQ, (8,)); F.local_response_norm(IMAGE, 2)
    F.normalize(SEQ); BN(IMAGE); F.batch_norm(IMAGE, torch.zeros(4), torch.ones(4)); F.embedding(AT, X)
    F.embedding_bag(AT, X, torch.tensor([0, 2])); F.cross_entropy(X, torch.tensor([0, 1, 2, 3]))
    F.nll_loss(F.log_softmax(X, 1), torch.tensor([0, 1, 2, 3])); F.mse_loss(X, Y)
    F.l1_loss(X, Y, reduction="none"); F.smooth_l1_loss(X, Y); F.binary_cross_entropy(X.sigmoid(), (Y > 0).float())
    F.kl_div(X.log_softmax(1), Y.softmax(1), reduction="batchmean"); F.cosine_similarity(X, Y)
    F.pairwise_distance(X, Y); F.bilinear(X, Y, torch.ones(2, 6, 6)); F.linear(X, Y); MHA(SEQ, SEQ, SEQ)
    MHA(SEQ, SEQ, SEQ, need_weights=False, key_padding_mask=torch.tensor([[False] * 5, [False] * 3 + [True] * 2]))
    LSTM(SEQ); GRU(SEQ); LAYER(SEQ); F.scaled_dot_product_attention(SEQ, SEQ, SEQ, is_causal=True)
    F.scaled_dot_product_attention(SEQ, SEQ, SEQ, attn_mask=torch.ones(5, 5, dtype=torch.bool).tril(), scale=0.3)
    Z.abs(); Z.angle(); Z.real; torch.view_as_real(Z); torch.view_as_complex(torch.randn(3, 2))
    torch.polar(X.abs(), Y); torch.fft.rfft(X); torch.fft.irfft(torch.fft.rfft(X)); torch.fft.fft2(X)
    torch.stft(torch.randn(100), 16, 4, window=torch.hann_window(16), return_complex=True); torch.complex(X, Y)
    torch.linalg.inv(X[:, :4] + 5 * torch.eye(4)); torch.linalg.solve(X[:, :4] + 5 * torch.eye(4), Y)
    torch.linalg.det(X[:, :4]); torch.linalg.cholesky(X @ X.T + 5 * torch.eye(4)); torch.linalg.svdvals(X)
    torch.trace(X); torch.matrix_exp(X[:, :4] / 9); torch.linalg.multi_dot([X, Y.T, X])
    torch.matrix_power(X[:, :4], 3); X.squeeze(); X[None].squeeze(0); X.expand(2, 4, 6); X.broadcast_to(2, 4, 6)
    X.movedim(0, 1); X.reshape(3, -1); X.flatten(); X.contiguous(); X.narrow(1, 1, 3); X.select(0, 1)
    X.swapaxes(0, 1); torch.permute(X, (1, 0)); X.ravel(); X.as_strided((2, 2), (6, 1), 1); X.T.reshape(-1)
    X.view_as(Y); X.view(torch.int32); X.detach(); X.data; X.cpu(); X.unsqueeze(-1)[..., 0]; X[1]; X[-1, 2]
    X[None, ..., 1:3]; X[[0, 2]]; X[:, [True, False] * 3]; X[AT][:, AT]; X[AT[:, None], AT]; X.diff()
    torch.trapezoid(X); torch.gradient(X[0]); torch.cov(X); torch.corrcoef(X); torch.rot90(X); torch.vander(X[0])
    torch.combinations(AT); torch.unique(AT); torch.unique_consecutive(AT); torch.msort(X)
    torch.renorm(X, 2, 0, 1.0); torch.cross(X[:, :3], Y[:, :3], dim=1); torch.isin(AT, AT[:1])
    torch.allclose(X, Y); torch.equal(X, Y); torch.nn.utils.rnn.pad_sequence([X, Y[:2]])
"""


def test_calls_of_all_kinds_are_captured_and_pass(tmp_path: Path) -> None:
    """Methods, operators, in place and through views, subscripts of all sorts, lists, keywords, modules of torch."""
    (tmp_path / "many.py").write_text(MANY_CALLS)
    said = optest(tmp_path, "capture", "many.py:forward", "-o", "many.yaml")
    (cases,) = re.findall(r"^many.yaml: (\d+) cases of ", said, re.M)
    assert int(cases) > 350, said
    optest(tmp_path, "run", "--plan", "many.yaml")
    require_all_passed(results_of(tmp_path), {"many"})


def write_all(folder: Path, texts: dict[str, str]) -> None:
    for name, text in texts.items():
        (folder / f"{name}.yaml").write_text(text)
    (folder / "all.yaml").write_text("include: [" + ", ".join(f"{name}.yaml" for name in texts) + "]\n")


def require_all_passed(results: dict[str, CaseResult], models: Set[str]) -> None:
    wrong = {name: result.verdict.message for name, result in results.items() if result.status is not Status.PASSED}
    assert not wrong
    assert {name.partition("::")[0] for name in results} == models


@pytest.mark.heavy
def test_smaller_sizes_and_the_dispatchers_level_pass_too(tmp_path: Path) -> None:
    words = {"small": ["--shrink-to", "16"], "level": ["--level", "aten"]}
    for model, more in words.items():
        optest(tmp_path, "capture", f"{MODELS / 'llama'}.py:forward", "-o", f"{model}.yaml", "--model", model, *more)
    (tmp_path / "all.yaml").write_text("include: [small.yaml, level.yaml]\n")
    optest(tmp_path, "run", "--plan", "all.yaml")
    require_all_passed(results_of(tmp_path), set(words))
    sizes = re.findall(r"shape: \[([^]]*)\]", (tmp_path / "small.yaml").read_text())
    large = {size for each in sizes for size in map(int, each.split(", ")) if size > 16}
    assert large == {64}  # of a view as 8 heads of 8, which no division of both leaves a view


def test_captured_file_detects_wrong_backend(tmp_path: Path) -> None:
    """Strides are part of a captured call: a device that loses them is found out by the calls that have some."""
    plan = str(MODELS / "gpt2.yaml")
    environment = {"PYTHONPATH": str(MODELS), "OPTEST_PLUGINS": "dense_device"}
    optest(tmp_path, "run", "--plan", plan, "--backend", "dense_device", status=1, **environment)
    wrong = [name for name, result in results_of(tmp_path).items() if result.status is not Status.PASSED]
    assert wrong == ["gpt2::matmul.1", "gpt2::matmul.2"]
