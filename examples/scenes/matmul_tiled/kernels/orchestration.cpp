#include "optest_scene.h"

extern "C" void matmul(optest::Graph& graph, const optest::Arguments& args) {
    graph.submit(0, {args[0], args[1], args[2]});
}
