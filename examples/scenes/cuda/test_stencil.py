"""A stencil of three points in CUDA: blocks of threads that share what they read."""

import numpy as np

from optest.scenes import ArgDirection as D
from optest.scenes import SceneTestCase, TaskArgsBuilder, Tensor, scene_test


@scene_test(level=2, runtime="cuda", platforms=["cuda"])
class TestStencil(SceneTestCase):
    CALLABLE = {
        "orchestration": {
            "source": "kernels/stencil.cu",
            "function_name": "run",
            "signature": [D.IN, D.OUT],
        },
    }
    CASES = [
        {"name": "whole_blocks", "params": {"size": 4096}},
        {"name": "ragged", "params": {"size": 1001}},
        {"name": "one", "params": {"size": 1}},
    ]

    def generate_args(self, params):
        size = params["size"]
        return TaskArgsBuilder(
            Tensor("x", np.random.standard_normal(size).astype(np.float32)),
            Tensor("y", np.zeros(size, np.float32)),
        )

    def compute_golden(self, args, params):
        x = np.pad(args.x.astype(np.float64), 1)
        args.y[:] = 0.25 * x[:-2] + 0.5 * x[1:-1] + 0.25 * x[2:]


if __name__ == "__main__":
    SceneTestCase.run_module(__name__)
