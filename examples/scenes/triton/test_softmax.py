"""Softmax of rows in Triton, a program for each row: tritonsim is Triton's interpreter, cuda a GPU."""

import numpy as np

from optest.scenes import ArgDirection as D
from optest.scenes import SceneTestCase, TaskArgsBuilder, Tensor, scene_test


@scene_test(level=2, runtime="triton", platforms=["tritonsim", "cuda"])
class TestSoftmax(SceneTestCase):
    CALLABLE = {
        "orchestration": {
            "source": "kernels/softmax.py",
            "function_name": "softmax",
            "signature": [D.IN, D.OUT],
        },
    }
    CASES = [
        {"name": "whole_block", "params": {"rows": 3, "columns": 128}},
        {"name": "ragged", "params": {"rows": 5, "columns": 77}},
    ]

    def generate_args(self, params):
        shape = (params["rows"], params["columns"])
        return TaskArgsBuilder(
            Tensor("x", (100 * np.random.standard_normal(shape)).astype(np.float32)),
            Tensor("y", np.zeros(shape, np.float32)),
        )

    def compute_golden(self, args, params):
        x = args.x.astype(np.float64)
        e = np.exp(x - x.max(axis=1, keepdims=True))
        args.y[:] = e / e.sum(axis=1, keepdims=True)


if __name__ == "__main__":
    SceneTestCase.run_module(__name__)
