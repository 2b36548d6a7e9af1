#include "optest_scene.h"

extern "C" void kernel_entry(const optest::Block& block, const optest::Arguments& args) {
    float* x = args[0].as<float>();
    const int64_t total = args[0].elements;
    for (int64_t i = block.begin(total); i < block.end(total); ++i) x[i] /= 2;
}
