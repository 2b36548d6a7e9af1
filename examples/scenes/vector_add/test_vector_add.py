"""f = a + b + 1 in two tasks, each in blocks: pytest examples/scenes, or python test_vector_add.py -p cpusim."""

import numpy as np

from optest.scenes import ArgDirection as D
from optest.scenes import SceneTestCase, TaskArgsBuilder, Tensor, scene_test


@scene_test(level=2, runtime="cpp", platforms=["cpusim"])
class TestVectorAdd(SceneTestCase):
    CALLABLE = {
        "orchestration": {
            "source": "kernels/orchestration.cpp",
            "function_name": "vector_add",
            "signature": [D.IN, D.IN, D.OUT],
        },
        "incores": [
            {"func_id": 0, "source": "kernels/add.cpp", "core_type": "aiv"},
            {"func_id": 1, "source": "kernels/add_scalar.cpp", "core_type": "aiv"},
        ],
    }
    CASES = [
        {"name": "default", "config": {"block_dim": 3, "aicpu_thread_num": 2}, "params": {"size": 16384}},
        {"name": "ragged", "config": {"block_dim": 4}, "params": {"size": 1001}},
        {"name": "large", "config": {"block_dim": 8}, "params": {"size": 1 << 22}, "manual": True},
    ]

    def generate_args(self, params):
        size = params["size"]
        return TaskArgsBuilder(
            Tensor("a", np.random.standard_normal(size).astype(np.float32)),
            Tensor("b", np.random.standard_normal(size).astype(np.float32)),
            Tensor("f", np.zeros(size, np.float32)),
        )

    def compute_golden(self, args, params):
        args.f[:] = args.a + args.b + 1


if __name__ == "__main__":
    SceneTestCase.run_module(__name__)
