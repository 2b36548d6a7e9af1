#include <algorithm>

#include "optest_scene.h"
#include "tile.h"

extern "C" void kernel_entry(const optest::Block& block, const optest::Arguments& args) {
    const float *a = args[0].as<float>(), *b = args[1].as<float>();
    float* c = args[2].as<float>();
    const int64_t m = args[0].size(0), k = args[0].size(1), n = args[1].size(1);
    const int64_t columns = tiles(n), total = tiles(m) * columns;

    for (int64_t tile = block.begin(total); tile < block.end(total); ++tile) {
        const int64_t row = tile / columns * kTile, column = tile % columns * kTile;
        const int64_t rows = std::min(kTile, m - row), width = std::min(kTile, n - column);
        float sum[kTile][kTile] = {};
        for (int64_t p = 0; p < k; ++p)
            for (int64_t i = 0; i < rows; ++i)
                for (int64_t j = 0; j < width; ++j) sum[i][j] += a[(row + i) * k + p] * b[p * n + column + j];
        for (int64_t i = 0; i < rows; ++i)
            for (int64_t j = 0; j < width; ++j) c[(row + i) * n + column + j] = sum[i][j];
    }
}
