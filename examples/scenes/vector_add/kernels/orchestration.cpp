#include "optest_scene.h"

extern "C" void vector_add(optest::Graph& graph, const optest::Arguments& args) {
    optest::Tensor sum = graph.allocate(0, args[0]);
    graph.submit(0, {args[0], args[1], sum});
    graph.submit(1, {sum, args[2]}, {.scalars = {1.0}});
}
