"""What a call of torch may be named, which operator it is by each of its names, and what another name may mean."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

_NAME = re.compile(r"torch(\.[A-Za-z_]\w*)+", re.ASCII)
_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
_SHORT = {
    "F": "torch.nn.functional", "functional": "torch.nn.functional", "aten": "torch.ops.aten",
    "prims": "torch.ops.prims", "th": "torch", "operator": "torch",
}  # fmt: skip
"""What models import parts of torch as; torch has Python's operators under its own name."""

_PARTS = ("Tensor", "_C", "_VF", "fft", "linalg", "masked", "nested", "nn", "ops", "signal", "sparse", "special")
_ALLOWED = (
    "a case is one call of torch: torch.add, torch.nn.functional.relu, torch.Tensor.view, torch.ops.aten.add.Tensor"
)


def is_dotted(name: str) -> bool:
    """Whether it is a dotted name at all, of whatever library."""
    return _DOTTED.fullmatch(name) is not None


def misnamed(name: str) -> tuple[str, str] | None:
    """Why it is no dotted name of torch's, and what was probably meant or what is allowed; None if it is one.

    Whether torch has it is for torch to say.
    """
    full, is_known = _in_full(name)
    if _NAME.fullmatch(full) and not is_known:
        return None
    if full.startswith("torch.nn.") and full.rpartition(".")[2][0].isupper():
        hint = "a module of torch.nn is no call: write the function of torch.nn.functional that it makes"
    else:
        hint = f"op: {full}" if is_known else _ALLOWED if is_dotted(name) else "op: torch.add"
    return f"op is {name!r}, but should be a dotted name of torch's", hint


def _in_full(op: str) -> tuple[str, bool]:
    """The name as torch has it, and whether it was written shorter, ``F.relu`` or ``torch.F.relu``."""
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
    """The operator that a dotted name stands for, in the word that torch's dispatcher has for it.

    ``torch.mul``, ``torch.Tensor.mul_``, ``torch.imul``, ``torch.Tensor.__rmul__``, ``torch.multiply`` and
    ``torch.ops.aten.mul.Tensor`` are all ``mul``; ``torch.linalg.svd`` is ``linalg_svd``, another one than ``svd``. An
    operator of a namespace that does not share its names with aten keeps the namespace: ``mylib::softmax``.
    """

    operator: str
    word: str
    """The last word as it was written, without an overload: ``imul``, ``mul_``."""

    is_in_place: bool = False
    """Whether the name says that the first operand is changed."""

    is_reflected: bool = False
    """Whether the operands are the other way round: ``torch.rsub``, ``torch.Tensor.__rpow__``."""

    is_foreign: bool = False
    """Whether somebody else's library registered it in ``torch.ops``."""


@lru_cache(maxsize=8192)
def canonical(name: str) -> CanonicalName:
    """Return the operator that a dotted name stands for; whether torch has it is for torch to say."""
    home, word = _home_and_word(name)
    if "::" in home:
        is_foreign = home.removesuffix("::") not in _SHIPPED
        return CanonicalName(operator=home + word, word=word, is_in_place=_is_marked(word), is_foreign=is_foreign)
    is_special = word.startswith("__") and word.endswith("__") and len(word) > len("____")
    bare = word[2:-2] if is_special else word
    if not home and (python_name := _of_python(word, bare)) is not None:
        return python_name
    is_in_place = not is_special and _is_marked(bare)
    operator = home + (bare[:-1] if is_in_place else bare)
    return CanonicalName(operator=_SYNONYMS.get(operator, operator), word=word, is_in_place=is_in_place)


def _home_and_word(name: str) -> tuple[str, str]:
    """What stands before a word in its operator's name, and the word, without an overload."""
    parts = name.split(".")
    if parts[:2] == ["torch", "ops"] and len(parts) > 3:
        return ("" if parts[2] in _OF_ATEN else f"{parts[2]}::"), parts[3]
    return "".join(f"{part}_" for part in parts[:-1] if part in _PREFIXED), parts[-1]


def _of_python(word: str, bare: str) -> CanonicalName | None:
    """What a name of Python's operators stands for: ``and_``, ``imul``, and between underscores ``rmul``."""
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
    return word.endswith("_") and not word.endswith("__")


_OF_ATEN = ("aten", "prims")
"""Namespaces of ``torch.ops`` in which one name is one operator."""

_SHIPPED = frozenset(
    """
    _c10d_functional _c10d_functional_autograd _dtensor _native _quantized _test c10d debug_mode_ops debugprims export
    inductor inductor_prims mkl mkldnn mkldnn_prepacked onednn profiler quantization quantized rngprims sparse
    static_runtime symm_mem
    """.split()  # noqa: SIM905 - words as in the other tables
)
"""Other namespaces that torch itself brings."""

_PREFIXED = ("linalg", "fft", "special", "masked")
"""Modules whose functions torch's dispatcher has under names that begin so."""

_BINARY = frozenset(("add sub mul truediv div floordiv mod pow matmul and or xor lshift rshift").split())  # noqa: SIM905
_PYTHONS = {
    **{name: name for name in ("add", "sub", "mul", "div", "pow", "matmul", "lshift", "rshift")},
    **{name: name for name in ("eq", "ne", "lt", "le", "gt", "ge", "neg", "abs", "contains", "getitem", "setitem")},
    "truediv": "div", "floordiv": "floor_divide", "mod": "remainder", "pos": "positive",
    "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor", "inv": "bitwise_not", "invert": "bitwise_not",
    "not": "not",
}  # fmt: skip
OPERATORS_OF_PYTHON = frozenset(_PYTHONS.values())
"""Operators that Python has a sign for: their operands have a place, and no name."""

_KEYWORDS = ("and_", "or_", "not_")
"""Where the underscore keeps a name apart from a keyword of Python's, and marks nothing as changed."""

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
"""Names that torch's documentation gives as another one's; those of ``torch.masked`` are so where no mask is given."""
