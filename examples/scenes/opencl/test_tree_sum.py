"""The sum of a vector by halves, log2(size) tasks: an orchestration in Python enqueues one OpenCL kernel repeatedly."""

import numpy as np

from optest.scenes import ArgDirection as D
from optest.scenes import SceneTestCase, TaskArgsBuilder, Tensor, scene_test


def tree_sum(graph, args):
    left = graph.allocate(args.x)
    graph.copy(left, args.x)
    size = args.x.size
    while size > 1:
        middle = (size + 1) // 2
        graph.submit("add_upper_half", [left, middle, size], global_size=[middle])
        size = middle
    graph.submit("first", [left, args.total], global_size=[1])


@scene_test(level=2, runtime="opencl", platforms=["oclsim", "opencl"])
class TestTreeSum(SceneTestCase):
    CALLABLE = {
        "signature": [D.IN, D.OUT],
        "orchestration": tree_sum,
        "incores": [
            {"source": "kernels/tree_sum.cl", "function_name": "add_upper_half"},
            {"source": "kernels/tree_sum.cl", "function_name": "first"},
        ],
    }
    CASES = [{"name": str(size), "params": {"size": size}} for size in (1, 64, 1001)]

    def generate_args(self, params):
        return TaskArgsBuilder(
            Tensor("x", np.random.randint(-1000, 1000, params["size"], np.int32)),
            Tensor("total", np.full(1, np.iinfo(np.int32).min, np.int32)),  # which no sum is
        )

    def compute_golden(self, args, params):
        args.total[0] = args.x.sum()


if __name__ == "__main__":
    SceneTestCase.run_module(__name__)
