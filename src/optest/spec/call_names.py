"""Names of PyTorch functions: their validation, and the operator that each of them calls."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

_NAME = re.compile(r"torch(\.[A-Za-z_]\w*)+", re.ASCII)
_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
# Usual import names of parts of torch. Python's `operator` module maps to `torch`, which has functions of these names.
_SHORT = {
    "F": "torch.nn.functional", "functional": "torch.nn.functional", "aten": "torch.ops.aten",
    "prims": "torch.ops.prims", "th": "torch", "operator": "torch",
}  # fmt: skip

_PARTS = ("Tensor", "_C", "_VF", "fft", "linalg", "masked", "nested", "nn", "ops", "signal", "sparse", "special")
_ALLOWED = (
    "a case is one call of torch: torch.add, torch.nn.functional.relu, torch.Tensor.view, torch.ops.aten.add.Tensor"
)


def is_dotted(name: str) -> bool:
    """Return whether ``name`` consists of identifiers joined by dots."""
    return _DOTTED.fullmatch(name) is not None


def misnamed(name: str) -> tuple[str, str] | None:
    """Return a message and a hint if ``name`` is no full dotted name such as ``torch.add``, else None.

    The name is not looked up in torch.
    """
    full, is_abbreviated = _expand_name(name)
    if _NAME.fullmatch(full) and not is_abbreviated:
        return None
    if full.startswith("torch.nn.") and full.rpartition(".")[2][0].isupper():
        hint = "torch.nn modules are not supported: write the function of torch.nn.functional that it calls"
    else:
        hint = f"op: {full}" if is_abbreviated else _ALLOWED if is_dotted(name) else "op: torch.add"
    return f"op is {name!r}, expected a dotted name of torch's", hint


def _expand_name(op: str) -> tuple[str, bool]:
    """Return the full dotted name, and whether ``op`` is abbreviated: ``F.relu``, ``torch.F.relu`` or ``relu``."""
    if not _DOTTED.fullmatch(op):
        return op, False
    head, _, rest = op.removeprefix("torch.").partition(".")
    if head in _SHORT and rest and (head != "functional" or op == f"functional.{rest}"):
        return f"{_SHORT[head]}.{rest}", True
    if op.startswith("torch."):
        return op, False
    if not rest:
        return (f"torch.{op}", True) if op != "torch" else (op, False)
    return (f"torch.{op}", True) if head in _PARTS else (op, False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CanonicalName:
    """Operator of a dotted name, in the spelling of torch's dispatcher.

    ``torch.mul``, ``torch.Tensor.mul_``, ``torch.imul``, ``torch.Tensor.__rmul__``, ``torch.multiply`` and
    ``torch.ops.aten.mul.Tensor`` are all ``mul``; ``torch.linalg.svd`` is ``linalg_svd``, a different operator than
    ``svd``. An operator of a namespace other than aten and prims keeps the namespace: ``mylib::softmax``.
    """

    operator: str
    # The last word of the name, without an overload: `imul`, `mul_`.
    word: str

    # The call changes its first operand, as its name says.
    is_in_place: bool = False

    # The operands are swapped: `torch.rsub`, `torch.Tensor.__rpow__`.
    is_reflected: bool = False

    # A library other than torch registered it in `torch.ops`.
    is_foreign: bool = False


@lru_cache(maxsize=8192)
def canonical(name: str) -> CanonicalName:
    """Return the operator of a dotted name of torch, from the name only: it is not looked up in torch."""
    prefix, word = _split_prefix(name)
    if "::" in prefix:
        is_foreign = prefix.removesuffix("::") not in _SHIPPED
        return CanonicalName(operator=prefix + word, word=word, is_in_place=_is_marked(word), is_foreign=is_foreign)
    is_special = word.startswith("__") and word.endswith("__") and len(word) > len("____")
    bare = word[2:-2] if is_special else word
    if not prefix and (python_name := _python_operator(word, bare)) is not None:
        return python_name
    is_in_place = not is_special and _is_marked(bare)
    operator = prefix + (bare[:-1] if is_in_place else bare)
    return CanonicalName(operator=_SYNONYMS.get(operator, operator), word=word, is_in_place=is_in_place)


def _split_prefix(name: str) -> tuple[str, str]:
    """Split a torch name into the prefix of the operator and the word: ``torch.linalg.norm`` → ("linalg_", "norm").

    The prefix of an operator of another namespace is ``mylib::``; an overload is dropped.
    """
    parts = name.split(".")
    if parts[:2] == ["torch", "ops"] and len(parts) > 3:
        return ("" if parts[2] in _OF_ATEN else f"{parts[2]}::"), parts[3]
    return "".join(f"{part}_" for part in parts[:-1] if part in _PREFIXED), parts[-1]


def _python_operator(word: str, bare: str) -> CanonicalName | None:
    """Return the operator if ``word`` is a name of Python's data model or ``operator`` module, else None.

    ``bare`` is the word without double underscores: ``and_``, ``imul``, and ``rmul`` for ``__rmul__``.
    """
    key = bare.removesuffix("_") if bare in _KEYWORDS else bare
    if key in _PYTHONS:
        return CanonicalName(operator=_PYTHONS[key], word=word, is_in_place=key == "setitem")
    form, base = key[:1], key[1:]
    if base in _BINARY and form == "i":
        return CanonicalName(operator=_PYTHONS[base], word=word, is_in_place=True)
    if base in _BINARY and form == "r" and (bare != word or base == "sub"):
        return CanonicalName(operator=_PYTHONS[base], word=word, is_reflected=True)
    return None


def _is_marked(word: str) -> bool:
    """Return whether ``word`` ends in exactly one underscore, torch's mark of in-place operators."""
    return word.endswith("_") and not word.endswith("__")


# Namespaces of `torch.ops` in which one name is one operator.
_OF_ATEN = ("aten", "prims")

# Other namespaces that belong to torch itself.
_SHIPPED = frozenset(
    """
    _c10d_functional _c10d_functional_autograd _dtensor _native _quantized _test c10d debug_mode_ops debugprims export
    inductor inductor_prims mkl mkldnn mkldnn_prepacked onednn profiler quantization quantized rngprims sparse
    static_runtime symm_mem
    """.split()  # noqa: SIM905 - words as in the other tables
)

# Modules whose name torch's dispatcher puts before that of the function: linalg_norm.
_PREFIXED = ("linalg", "fft", "special", "masked")

_BINARY = frozenset(("add sub mul truediv div floordiv mod pow matmul and or xor lshift rshift").split())  # noqa: SIM905
_PYTHONS = {
    **{name: name for name in ("add", "sub", "mul", "div", "pow", "matmul", "lshift", "rshift")},
    **{name: name for name in ("eq", "ne", "lt", "le", "gt", "ge", "neg", "abs", "contains", "getitem", "setitem")},
    "truediv": "div", "floordiv": "floor_divide", "mod": "remainder", "pos": "positive",
    "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor", "inv": "bitwise_not", "invert": "bitwise_not",
    "not": "not",
}  # fmt: skip
# Operators with a sign in Python: their operands are positional only.
OPERATORS_OF_PYTHON = frozenset(_PYTHONS.values())

# Names whose underscore avoids a Python keyword and does not mean "in place".
_KEYWORDS = ("and_", "or_", "not_")

# Aliases according to torch's documentation; functions of `torch.masked` are aliases if they get no mask.
_SYNONYMS = {
    "absolute": "abs", "arccos": "acos", "arccosh": "acosh", "arcsin": "asin", "arcsinh": "asinh", "arctan": "atan",
    "arctan2": "atan2", "arctanh": "atanh", "clip": "clamp", "concat": "cat", "concatenate": "cat", "divide": "div",
    "true_divide": "div", "fix": "trunc", "ger": "outer", "greater": "gt", "greater_equal": "ge", "less": "lt",
    "less_equal": "le", "multiply": "mul", "negative": "neg", "not_equal": "ne", "subtract": "sub",
    "moveaxis": "movedim", "row_stack": "vstack", "swapaxes": "transpose", "swapdims": "transpose",
    "trapz": "trapezoid", "det": "linalg_det", "slogdet": "linalg_slogdet", "inverse": "linalg_inv",
    "pinverse": "linalg_pinv", "orgqr": "linalg_householder_product", "matrix_exp": "linalg_matrix_exp",
    "matrix_power": "linalg_matrix_power", "linalg_diagonal": "diagonal", "linalg_matmul": "matmul",
    "special_digamma": "digamma", "special_erf": "erf", "special_erfc": "erfc", "special_erfinv": "erfinv",
    "special_exp2": "exp2", "special_expit": "sigmoid", "special_expm1": "expm1", "special_gammainc": "igamma",
    "special_gammaincc": "igammac", "special_gammaln": "lgamma", "special_i0": "i0", "special_log1p": "log1p",
    "special_log_softmax": "log_softmax", "special_logit": "logit", "special_logsumexp": "logsumexp",
    "special_multigammaln": "mvlgamma", "special_polygamma": "polygamma", "special_psi": "digamma",
    "special_round": "round", "special_sinc": "sinc", "special_softmax": "softmax", "special_xlogy": "xlogy",
    "grouped_mm": "_grouped_mm",
    **{f"masked_{name}": name for name in ("amax", "amin", "argmax", "argmin", "cumprod", "cumsum", "log_softmax")},
    **{f"masked_{name}": name for name in ("logsumexp", "mean", "prod", "softmax", "sum", "var")},
}  # fmt: skip
