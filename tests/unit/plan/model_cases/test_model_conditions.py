"""``skip_if``: comparisons of what is known of the run, worked out here and never evaluated."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model_kit import TENSOR, case_of, cases_of, file_of, said

from optest.plan.dialects import Facts
from optest.torch.model_cases.conditions import BadCondition, is_true, names_of

FACTS = Facts(device="npu:1", compile_backend="inductor", environment={"CI": "1", "EMPTY": ""})
NAMES = names_of(FACTS, "fp16")


@pytest.mark.parametrize(
    "text",
    [
        "cfg.test_device.type == 'npu' and dtype_str == 'fp16'",
        "cfg.test_device == 'npu'",
        "cfg.test_device.index == 1",
        "cfg.ref_device.type == 'cpu'",
        "cfg.ref_device.index is None",
        "cfg.compile_backend == 'inductor'",
        "device == 'npu'",
        "device != 'cpu'",
        "device.type == 'npu' and device.index == 1",
        "cfg['test_device'] == 'npu'",
        "cfg['test_device'].type == device['type']",
        "dtype_str in ('fp16', 'bf16')",
        "dtype_str in ['fp16', 'bf16']",
        "dtype_str in {'fp16', 'bf16'}",
        "dtype_str not in ('fp32',)",
        "'p' in dtype_str",
        "env['CI'] == '1'",
        "env['CI']",
        "'CI' in env",
        "env['NOT_SET'] is None",
        "env['NOT_SET'] != '1'",
        "not env['EMPTY']",
        "not (device == 'cpu' or dtype_str == 'bf16')",
        "1 < 2 < 3",
        "not 1 < 3 < 2",
        "-1 < 0",
        "True",
        "  True  ",
        "cfg.test_device.index is not None and cfg.test_device.index > 0",
        "device == 'npu' or env['NOT_SET'] > '3'",
    ],
)
def test_what_holds(text: str) -> None:
    assert is_true(text, NAMES)
    assert not is_true(f"not ({text.strip()})", NAMES)


def test_incomparable_values_may_follow_decisive_ones() -> None:
    plain = names_of(Facts(), "float32")
    assert not is_true("cfg.test_device.index is not None and cfg.test_device.index > 0", plain)
    assert is_true("cfg.test_device.index is None or cfg.test_device.index > 0", plain)
    with pytest.raises(BadCondition, match=r"cfg.test_device.index > 0: '>' not supported"):
        is_true("cfg.test_device.index > 0", plain)
    with pytest.raises(BadCondition, match="not supported"):
        is_true("cfg.test_device.index > 0 or True", plain)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        *((each, "foo() is not allowed") for each in ("foo()", "1 == 2 == foo()", "device == 'cpu' and foo()")),
        ("env.get('CI')", "env.get('CI') is not allowed"),
        *((each, "is not allowed") for each in ("__import__('os').system('true')", "'a' * 99999999 == 'b'")),
        *((each, "is not allowed") for each in ("(x := 1)", "[x for x in (1, 2)]", "f'{device}' == 'a'")),
        *((each, "is not allowed") for each in ("1 if device else 2", "{1: 2} == env")),
        ("print", "print is not known, expected one of cfg, device, dtype_str, env"),
        ("torch.cuda.is_available", "torch is not known"),
        ("divice == 'npu'", "divice is not known"),
        ("cfg.nope == 1", "cfg has no nope, expected one of compile_backend, ref_device, test_device"),
        ("cfg.test_device.name == 'a'", "cfg.test_device has no name, expected one of index, type"),
        ("device.name == 'npu'", "device has no name, expected one of index, type"),
        ("device.__class__", "device has no __class__"),
        ("cfg['__class__']", "cfg has no __class__"),
        ("dtype_str.__class__", "dtype_str.__class__ is an attribute of a value without attributes"),
        ("cfg.__class__", "cfg has no __class__"),
        ("cfg.test_device.__dict__", "has no __dict__"),
        ("env.CI", "env.CI is an attribute of a value without attributes"),
        ("env[1] == '1'", "env[1] is not a subscript of cfg, env or device"),
        ("cfg[0]", "cfg[0] is not a subscript of cfg, env or device"),
        ("dtype_str[0] == 'f'", "is not a subscript of cfg, env or device"),
        ("9**9**9 > 1", "9 ** 9 ** 9 is not allowed"),
        ("lambda x: 1", "lambda x: 1 is not allowed"),
        ("(*env,)", "*env is not allowed"),
        ("1 < 'a'", "1 < 'a': '<' not supported"),
        ("1 in 2", "not iterable"),
        ("device == 'npu' or nope", "nope is not known"),
        *((each, "it is not a Python expression") for each in ("device = 'npu'", "device ==", "", "'\x00'")),
        ("not " * 499, "it is not a Python expression"),
        ("-" * 1900 + "1", ""),
        ("(" * 900 + ")" * 900, ""),
        ("cfg" + ".a" * 900, ""),
        ("device == '" + "a" * 2000 + "'", "it has 2012 characters, expected 2000 at most"),
    ],
)
def test_what_is_no_condition_is_refused(text: str, message: str) -> None:
    with pytest.raises(BadCondition) as raised:
        is_true(text, NAMES)
    assert message in str(raised.value)
    assert len(str(raised.value)) < 300


@given(
    st.lists(
        st.sampled_from(
            ["cfg", ".test_device", ".type", "env", "['CI']", "device", "dtype_str", "==", "<", " in ", " and ", " or ",
             " not ", "(", ")", "'npu'", "1", "-", "nope", "()", "**", ",", "None", " is ", "lambda:", "[", "]"]
        ),
        max_size=9,
    )
)  # fmt: skip
@settings(max_examples=200)
def test_any_words_are_a_condition_or_are_refused(words: list[str]) -> None:
    try:
        held = is_true("".join(words), NAMES)
    except BadCondition:
        return
    assert held in (True, False)


@pytest.mark.parametrize(
    ("stated", "reason"),
    [
        ("device == 'npu'", "skip_if: device == 'npu'"),
        ("{expr: device == 'npu', reason: no kernel yet}", "no kernel yet"),
        ("{expr: device == 'npu'}", "skip_if: device == 'npu'"),
        ("[device == 'cpu', device == 'npu']", "skip_if: device == 'npu'"),
        ("[{expr: device == 'cpu', reason: first}, {expr: device == 'npu', reason: second}]", "second"),
        ("[{expr: device == 'npu', reason: one}, {expr: 'True', reason: other}]", "one"),
    ],
)
def test_each_form_of_skip_if_skips(stated: str, reason: str) -> None:
    entry = f"op: torch.abs, inputs: [{TENSOR}], skip_if: {stated}"
    skip = case_of(entry, facts=FACTS).skip
    assert skip is not None
    assert skip.reason == reason
    assert case_of(entry.replace("'npu'", "'mlu'").replace("'True'", "'False'"), facts=FACTS).skip is None


def test_condition_sees_dtype_as_written() -> None:
    text = file_of(
        f"""
        - {{name: a, op: torch.abs, inputs: [{TENSOR}], skip_if: dtype_str == 'fp16'}}
        - {{name: b, op: torch.abs, dtype: fp32, inputs: [{TENSOR}], skip_if: dtype_str == 'fp16'}}
        """
    ).replace("model: m", "model: m\ndefault: {dtype: fp16}")
    one, other = cases_of(text)
    assert one.skip is not None
    assert other.skip is None


@pytest.mark.parametrize(
    ("stated", "message", "path"),
    [
        ("foo()", "skip_if is 'foo()': foo() is not allowed", "skip_if:"),
        ("nope == 1", "nope is not known", "skip_if:"),
        ("{expr: foo()}", "foo() is not allowed", "skip_if.expr:"),
        ("{expr: nope}", "nope is not known", "skip_if.expr:"),
        ("['True', foo()]", "foo() is not allowed", "skip_if[1]:"),
        ("[nope]", "nope is not known", "skip_if[0]:"),
        ("[{expr: 'False'}, {expr: nope}]", "nope is not known", "skip_if[1].expr:"),
        ("''", "skip_if is '', expected a word", "skip_if:"),
        ("3", "skip_if is 3, expected text", "skip_if:"),
        ("null", "skip_if is null, expected text", "skip_if:"),
        ("[3]", "item 0 is 3", "skip_if[0]:"),
        ("{reason: why}", "the key expr is missing", "skip_if.expr:"),
        ("{expr: 3}", "expr is 3, expected text", "skip_if.expr:"),
        ("{expr: 'True', reason: 3}", "reason is 3, expected text", "skip_if.reason:"),
        ("{expr: 'True', raeson: x}", "unknown key 'raeson' of skip_if\n    did you mean reason?", "skip_if.raeson:"),
        ("{expr: 'True', if: x}", "unknown key 'if' of skip_if", "skip_if.if:"),
    ],
)
def test_invalid_condition_names_path_and_remedy(stated: str, message: str, path: str) -> None:
    found = said(file_of(f"- {{name: a, op: torch.abs, inputs: [{TENSOR}], skip_if: {stated}}}"))
    assert found.startswith(f"m.yaml:3 $.cases[0].{path}")
    assert message in found
