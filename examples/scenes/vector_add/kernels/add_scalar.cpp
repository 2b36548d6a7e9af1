#include "optest_scene.h"

extern "C" void kernel_entry(const optest::Block& block, const optest::Arguments& args) {
    const float* from = args[0].as<float>();
    float* to = args[1].as<float>();
    const float addend = static_cast<float>(args.scalar(0));
    const int64_t total = args[0].elements;
    for (int64_t i = block.begin(total); i < block.end(total); ++i) to[i] = from[i] + addend;
}
