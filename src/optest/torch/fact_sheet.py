"""Facts about torch functions, from torch's documentation or measured on the CPU, in one table by canonical name."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from optest.spec import RuleClass
from optest.spec.call_names import canonical
from optest.torch.facts import ArgumentPosition, ChangedInputs, Collisions, FactorKind, Facts


@lru_cache(maxsize=8192)
def facts_of(name: str) -> Facts:
    """Return the record of a function by any of its dotted names; the defaults if it has none."""
    return FACTS.get(canonical(name).operator, _UNKNOWN)


_UNKNOWN = Facts()

# Parts of names, not names: torch keeps adding functions to these families.
_OF_ORDERED_INTEGERS = (
    *("bucketize", "csc", "csr", "ctc_loss", "embedding_bag", "grouped_mm", "gru", "jagged", "ldl", "linalg_lu"),
    *("lstm", "lu_solve", "lu_unpack", "nested", "pack_padded", "packed", "rnn", "searchsorted", "segment_reduce"),
    *("sparse", "tensor_split", "varlen"),
)


def takes_ordered_integers(name: str) -> bool:
    """Return whether a function's integers are valid only in their order: offsets, lengths, pivots, edges."""
    return any(part in name for part in _OF_ORDERED_INTEGERS)


def is_known_by_schema(name: str) -> bool:
    """Return whether a function is of the ATen families that write into lists of tensors: foreach and fused."""
    return name.startswith(("_foreach_", "_fused_"))


_MOVEMENT, _EXACT, _ACCUMULATE = RuleClass.MOVEMENT, RuleClass.EXACT, RuleClass.ACCUMULATE


def _factors(family: str, outputs: int, threshold: float, promises: str, *, yields_v: bool = False) -> FactorKind:
    allowed = f"each within {threshold:g}·max(m, n)·ε, times |A|₁ if it is of A (LAPACK's own tests)"
    formula = f"0, or other factors: {promises}, {allowed}"
    return FactorKind(family=family, outputs=outputs, threshold=threshold, formula=formula, yields_v=yields_v)


_ORTHOGONAL_PRODUCT = "A = Q·R, QᴴQ = 1, R triangular"
_SVD_PROMISES = "A = U·S·Vᴴ, UᴴU = VᴴV = 1, S ≥ 0 and descending, S as in float64"
_SVD = _factors("svd", 3, 35.0, _SVD_PROMISES)
_EIGH = _factors("eigh", 2, 60.0, "A = V·L·Vᴴ, VᴴV = 1, L ascending, L as in float64")
_EIG = _factors("eig", 2, 20.0, "A·V = V·L, columns of V of length 1, L as in float64 in any order")
_EIGVALS = _factors("eigvals", 1, 20.0, "the smallest singular value of A - λ is 0, λ as in float64 in any order")
_QR = _factors("qr", 2, 30.0, _ORTHOGONAL_PRODUCT)
_GEQRF = _factors("geqrf", 2, 30.0, f"{_ORTHOGONAL_PRODUCT}, Q of its reflectors")

_IN_TRAINING = ChangedInputs("training", False, ("running_mean", "running_var"))
_STATISTICS_GIVEN = ChangedInputs("use_input_stats", True, ("running_mean", "running_var"))
_ALWAYS_TRAINED = ChangedInputs("", True, ("running_mean", "running_var"))
_CLIPPED = ChangedInputs("max_norm", None, ("weight",))

_SETTING = "computes nothing"
_ADDRESS = "returns an address, which differs from call to call"
_HANDS_OUT_MEMORY = "hands out the memory of a tensor and computes nothing"

_COMPUTES_NOTHING = "compute nothing"
_MEMORY_AS_IS = "return uninitialised memory"
_OF_DUALS = "join or split tensors and their derivatives in forward mode, which no case has"

_UNINITIALISED = "its result is uninitialised memory"
_UP_TO_SIGN = "its vectors are defined only up to sign or phase"
_ON_CUDA = "it runs only on CUDA, from source code"

_Rows = Iterable[tuple[str, Facts]]

_MOVED: _Rows = [
    (
        """
        adjoint alias alias_copy as_strided_scatter atleast_1d atleast_2d atleast_3d block_diag broadcast_tensors
        cartesian_prod channel_shuffle column_stack detach_copy diag diag_embed diagonal_copy dstack expand_copy fliplr
        flipud mH mT meshgrid native_channel_shuffle permute_copy pin_memory pixel_shuffle pixel_unshuffle ravel
        reshape_as rot90 select_copy slice_copy split_copy split_with_sizes_copy squeeze_copy t_copy tile transpose_copy
        unbind_copy unfold_copy unsafe_chunk unsafe_split unsafe_split_with_sizes unsqueeze_copy view_copy
        """,
        Facts(rule=_MOVEMENT),
    ),
    (
        """
        broadcast_to chunk diagonal dsplit expand_as hsplit movedim narrow split split_with_sizes t tensor_split unbind
        unflatten unfold view_as vsplit
        """,
        Facts(rule=_MOVEMENT, is_view=True),
    ),
    ("squeeze transpose unsqueeze view", Facts(rule=_MOVEMENT, is_view=True, size="given")),
    ("detach permute", Facts(rule=_MOVEMENT, is_view=True, size="given", has_exact_result=True)),
    ("expand slice", Facts(rule=_MOVEMENT, is_view=True, has_exact_result=True)),
    ("as_strided", Facts(rule=_MOVEMENT, is_view=True, is_given_strides=True)),
    ("as_strided_copy", Facts(rule=_MOVEMENT, is_given_strides=True)),
    ("contiguous", Facts(rule=_MOVEMENT, size="given", makes_contiguous=True)),
    ("flatten hstack reshape vstack", Facts(rule=_MOVEMENT, size="given")),
    ("cat clone flip roll stack tril triu", Facts(rule=_MOVEMENT, size="given", has_exact_result=True)),
    (
        "copysign diagonal_scatter repeat select_scatter slice_scatter where",
        Facts(rule=_MOVEMENT, has_exact_result=True),
    ),
    ("fill", Facts(rule=_MOVEMENT, has_exact_result=True, sets_one_value="always")),
    ("repeat_interleave", Facts(rule=_MOVEMENT, takes_counts=True)),
]

_INDEXED: _Rows = [
    (
        "getitem",
        Facts(
            rule=_MOVEMENT,
            is_view=True,
            positions="subscript",
            literal_positions="subscript",
            mask="subscript",
            mask_must_fit=True,
        ),
    ),
    (
        "setitem",
        Facts(
            rule=_MOVEMENT,
            positions="subscript",
            literal_positions="subscript",
            mask="subscript",
            mask_must_fit=True,
            sets_one_value="of a number",
            collisions=Collisions("subscript", ("input", "indices", "values")),
        ),
    ),
    (
        "index_put",
        Facts(
            rule=_MOVEMENT,
            has_exact_result=True,
            positions="dimensions",
            mask="subscript",
            mask_must_fit=True,
            collisions=Collisions("dimensions", ("input", "indices", "values", "accumulate")),
        ),
    ),
    ("index", Facts(has_exact_result=True, positions="dimensions", mask="subscript", mask_must_fit=True)),
    ("_unsafe_index _unsafe_index_put", Facts(has_exact_result=True, positions="dimensions", mask="subscript")),
    (
        "index_copy",
        Facts(
            rule=_MOVEMENT,
            size="given",
            positions="along",
            collisions=Collisions("slices", ("input", "dim", "index", "source")),
        ),
    ),
    (
        "scatter",
        Facts(
            rule=_MOVEMENT,
            has_exact_result=True,
            positions="along",
            collisions=Collisions("elements", ("input", "dim", "index", "src")),
        ),
    ),
    ("gather index_select", Facts(rule=_MOVEMENT, has_exact_result=True, positions="along")),
    ("index_add", Facts(positions="along", size="given")),
    ("index_reduce scatter_add scatter_reduce", Facts(positions="along")),
    ("index_fill", Facts(rule=_MOVEMENT, positions="along from either end")),
    ("select", Facts(rule=_MOVEMENT, is_view=True, literal_positions="index")),
    ("take", Facts(rule=_MOVEMENT, positions="all elements")),
    ("put", Facts(positions="all elements")),
    ("take_along_dim", Facts(rule=_MOVEMENT, positions="along or all")),
    ("masked_fill masked_select", Facts(rule=_MOVEMENT, has_exact_result=True, mask="argument")),
    ("masked_scatter", Facts(rule=_MOVEMENT, has_exact_result=True, mask="argument", mask_must_fit=True)),
    ("embedding", Facts(rule=_MOVEMENT, has_exact_result=True, positions="rows", size="rows", changed=_CLIPPED)),
    ("embedding_bag", Facts(positions="rows", changed=_CLIPPED)),
    ("embedding_dense_backward", Facts(positions="rows stated")),
    ("one_hot", Facts(positions="classes stated")),
    (
        "cross_entropy cross_entropy_loss nll_loss nll_loss2d nll_loss2d_forward nll_loss_forward nll_loss_nd",
        Facts(positions="classes"),
    ),
    ("nll_loss_backward nll_loss2d_backward", Facts(positions="classes of a gradient")),
    ("max_unpool1d max_unpool2d max_unpool3d", Facts(positions="plane of the result")),
    (
        """
        adaptive_max_pool2d_backward adaptive_max_pool3d_backward max_pool2d_with_indices_backward
        max_pool3d_with_indices_backward
        """,
        Facts(positions="plane of the input"),
    ),
]

_CONVERTED: _Rows = [
    ("bfloat16 bool double float half int long to", Facts(rule=_EXACT, size="given")),
    (
        "as_tensor byte char eye full nan_to_num new_ones ones scalar_tensor short tensor type type_as zeros",
        Facts(rule=_EXACT),
    ),
    ("_to_copy full_like new_full new_zeros", Facts(rule=_EXACT, has_exact_result=True)),
]

_CONTRACTIONS: _Rows = [
    (
        """
        _convolution addbmm addr chain_matmul conv_transpose1d conv_transpose2d conv_transpose3d convolution
        convolution_backward einsum tensordot
        """,
        Facts(rule=_ACCUMULATE),
    ),
    ("inner vdot", Facts(rule=_ACCUMULATE, terms="product")),
    ("dot mv", Facts(rule=_ACCUMULATE, terms="product", is_sum_of_products=True)),
    (
        "bmm mm",
        Facts(rule=_ACCUMULATE, terms="product", is_sum_of_products=True, operands_in_blocks=2, size="product"),
    ),
    (
        "matmul",
        Facts(rule=_ACCUMULATE, terms="product", operands_in_blocks=2, size="product", is_captured_as_function=True),
    ),
    ("linear", Facts(rule=_ACCUMULATE, terms="product", operands_in_blocks=3, size="product")),
    ("addmm addmv baddbmm", Facts(rule=_ACCUMULATE, terms="product added")),
    ("conv1d conv2d conv3d", Facts(rule=_ACCUMULATE, terms="convolution")),
    ("_grouped_mm", Facts(rule=_ACCUMULATE, terms="product of groups")),
]

_ARITHMETIC: _Rows = [
    (
        "add",
        Facts(ceiling_holds_for_complex=True, scalars="operands", commutes=True, is_captured_as_function=True),
    ),
    ("sub", Facts(ceiling_holds_for_complex=True, scalars="operands", is_captured_as_function=True)),
    ("mul", Facts(ceiling_holds_for_complex=True, scalars="float32", commutes=True, is_captured_as_function=True)),
    ("div", Facts(scalars="float32", may_multiply_by_reciprocal=True, is_captured_as_function=True)),
    ("addcdiv addcmul floor_divide lerp", Facts(scalars="float32")),
    ("pow", Facts(scalars="operands", is_captured_as_function=True, is_power=True)),
    ("float_power", Facts(is_power=True)),
    ("fmod", Facts(scalars="operands", has_exact_result=True)),
    ("remainder", Facts(scalars="operands", has_exact_result=True, is_captured_as_function=True)),
    ("abs neg", Facts(has_exact_result=True, is_captured_as_function=True)),
    ("bitwise_and bitwise_or", Facts(has_exact_result=True, commutes=True, is_captured_as_function=True)),
    ("bitwise_xor", Facts(commutes=True, is_captured_as_function=True)),
    ("eq ge gt le lt ne", Facts(is_comparison=True, is_captured_as_function=True)),
    ("equal isin", Facts(is_comparison=True)),
    ("bucketize", Facts(is_comparison=True, ascending=ArgumentPosition(1, "boundaries"))),
    ("searchsorted", Facts(is_comparison=True, ascending=ArgumentPosition(0, "sorted_sequence"))),
    ("zero", Facts(has_exact_result=True, sets_one_value="always")),
]

_FACTORISATIONS: _Rows = [
    ("svd", Facts(factors=_factors("svd", 3, 35.0, _SVD_PROMISES, yields_v=True))),
    # Names with a leading underscore are those of the same functions in torch's dispatcher.
    ("linalg_svd _linalg_svd", Facts(factors=_SVD)),
    ("linalg_eigh _linalg_eigh", Facts(factors=_EIGH)),
    ("linalg_eig", Facts(factors=_EIG)),
    ("linalg_eigvals _linalg_eigvals", Facts(factors=_EIGVALS)),
    ("qr", Facts(factors=_QR)),
    ("linalg_qr", Facts(factors=_QR, is_backward_stable=True)),
    ("geqrf", Facts(factors=_GEQRF, is_backward_stable=True)),
    ("lobpcg symeig", Facts(no_sample=_UP_TO_SIGN)),
    ("linalg_pinv", Facts(is_backward_stable=True, is_normwise=True)),
    (
        """
        _linalg_solve_ex linalg_inv_ex linalg_ldl_factor_ex linalg_ldl_solve linalg_lstsq linalg_lu linalg_lu_factor_ex
        lu_unpack
        """,
        Facts(is_backward_stable=True),
    ),
    (
        """
        cholesky_inverse cholesky_solve linalg_cholesky_ex linalg_householder_product linalg_lu_solve
        linalg_solve_triangular ormqr triangular_solve
        """,
        Facts(is_backward_stable=True, takes_structured_matrix=True),
    ),
    ("cholesky linalg_cholesky lu_solve", Facts(takes_structured_matrix=True)),
]

_OTHERS: _Rows = [
    (
        """
        _index_put_impl amax amin bitwise_not broadcast_in_dim ceil clamp clamp_max clamp_min complex conj
        constant_pad_nd convert_element_type copy copy_strided copy_to floor fmax fmin frac imag iota isfinite isinf
        isnan lift_fresh_copy max max_pool2d_with_indices max_pool3d_with_indices maximum min minimum ones_like real
        relu round select_backward sgn sign signbit slice_backward trunc unfold_backward view_as_complex view_as_real
        view_of zeros_like
        """,
        Facts(has_exact_result=True),
    ),
    ("sort topk", Facts(has_exact_result=True, size="given")),
    ("argsort cumprod cumsum dropout layer_norm log_softmax rms_norm softmax", Facts(size="given")),
    ("scaled_dot_product_attention", Facts(size="attention", attention_mask=ArgumentPosition(3, "attn_mask"))),
    (
        "batch_norm native_batch_norm _native_batch_norm_legit cudnn_batch_norm miopen_batch_norm",
        Facts(changed=_IN_TRAINING),
    ),
    ("_batch_norm_with_update", Facts(changed=_ALWAYS_TRAINED)),
    ("instance_norm", Facts(changed=_STATISTICS_GIVEN)),
    ("histogram", Facts(bins_follow_values=True)),
    ("_ctc_loss", Facts(rounds_at_every_step=True)),
    ("grid_sampler_2d_backward", Facts(gradients_of="grid_sampler_2d")),
    ("grid_sampler_3d_backward", Facts(gradients_of="grid_sampler_3d")),
    ("_upsample_bilinear2d_aa", Facts(is_normwise=True)),
]

_NO_CASES: _Rows = [
    (
        "empty empty_like empty_permuted empty_strided new_empty new_empty_strided",
        Facts(is_unwritten=True, no_sample=_UNINITIALISED),
    ),
    ("resize resize_as", Facts(no_case=_MEMORY_AS_IS, no_sample=_UNINITIALISED)),
    ("_fw_primal _make_dual _unpack_dual", Facts(no_case=_OF_DUALS)),
    (
        "backward deepcopy register_hook requires_grad retain_grad set share_memory",
        Facts(no_case=_COMPUTES_NOTHING),
    ),
    ("_log_api_usage_once _set_grad_enabled is_grad_enabled manual_seed set_grad_enabled", Facts(no_operator=_SETTING)),
    ("_cdata const_data_ptr data_ptr hash", Facts(no_operator=_ADDRESS)),
    ("_typed_storage array numpy storage typed_storage untyped_storage", Facts(no_operator=_HANDS_OUT_MEMORY)),
    (
        """
        jiterator_2inputs_2outputs jiterator_4inputs_with_extra_args jiterator_binary jiterator_binary_return_by_ref
        jiterator_unary
        """,
        Facts(no_sample=_ON_CUDA, no_refusal=_ON_CUDA),
    ),
]


def _by_name(*families: _Rows) -> dict[str, Facts]:
    """Return all records by function name; raise ValueError if a function has two."""
    records: dict[str, Facts] = {}
    for names, facts in (row for family in families for row in family):
        for name in names.split():
            if name in records:
                raise ValueError(f"{name} has two records")
            records[name] = facts
    return records


FACTS = _by_name(_MOVED, _INDEXED, _CONVERTED, _CONTRACTIONS, _ARITHMETIC, _FACTORISATIONS, _OTHERS, _NO_CASES)
