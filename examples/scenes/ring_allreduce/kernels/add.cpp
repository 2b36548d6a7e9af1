#include "optest_scene.h"

extern "C" void kernel_entry(const optest::Block& block, const optest::Arguments& args) {
    const float* received = args[0].as<float>();
    float* sum = args[1].as<float>();
    const int64_t total = args[0].elements;
    for (int64_t i = block.begin(total); i < block.end(total); ++i) sum[i] += received[i];
}
