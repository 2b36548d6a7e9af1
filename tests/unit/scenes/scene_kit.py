"""The text of a scene of one case for the runtime `toy` of tests/plugins/toy_runtime.py."""

from __future__ import annotations

from textwrap import dedent, indent

SCENE = """
import numpy as np
from optest.scenes import ArgDirection as D
from optest.scenes import Scalar, SceneTestCase, TaskArgsBuilder, Tensor, scene_test


def kernel(args, options, worker):
{kernel}


@scene_test(level=2, runtime="toy", platforms=["cpusim"])
class TestToy(SceneTestCase):
    CALLABLE = {{"function": kernel{signature}}}
    CASES = [{{"name": "default", "params": {{"size": 64}}}}]
{attributes}

    def generate_args(self, params):
        return TaskArgsBuilder(
            Tensor("x", np.random.standard_normal(params["size"]).astype({dtype})),
            Tensor("y", np.zeros(params["size"], {dtype})),
            Scalar("factor", 2),
        )

    def compute_golden(self, args, params):
{golden}
"""
RIGHT = "args.y[:] = args.x * args.factor"


def scene_text(
    kernel: str = RIGHT,
    golden: str = RIGHT,
    signature: str = "[D.IN, D.OUT]",
    attributes: str = "",
    dtype: str = "np.float32",
) -> str:
    return SCENE.format(
        kernel=indent(dedent(kernel), "    "),
        golden=indent(golden, "        "),
        signature=f', "signature": {signature}' if signature else "",
        attributes=indent(attributes, "    "),
        dtype=dtype,
    )
