// The operator: z = x + y on half precision numbers, tile by tile as a vector core would do it.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "half.h"

namespace {

constexpr std::size_t kTileLength = 2048;  // elements that fit into one queue buffer

class AddKernel {
  public:
    AddKernel(const uint16_t* x, const uint16_t* y, uint16_t* z, std::size_t length)
        : x_(x), y_(y), z_(z), length_(length) {}

    void Process() {
        for (std::size_t begin = 0; begin < length_; begin += kTileLength) {
            const std::size_t count = std::min(kTileLength, length_ - begin);
            CopyIn(begin, count);
            Compute(count);
            CopyOut(begin, count);
        }
    }

  private:
    void CopyIn(std::size_t begin, std::size_t count) {
        for (std::size_t i = 0; i < count; ++i) {
            x_local_[i] = half_to_float(x_[begin + i]);
            y_local_[i] = half_to_float(y_[begin + i]);
        }
    }

    void Compute(std::size_t count) {
        for (std::size_t i = 0; i < count; ++i) z_local_[i] = x_local_[i] + y_local_[i];
    }

    void CopyOut(std::size_t begin, std::size_t count) {
        for (std::size_t i = 0; i < count; ++i) z_[begin + i] = float_to_half(z_local_[i]);
    }

    const uint16_t* x_;
    const uint16_t* y_;
    uint16_t* z_;
    std::size_t length_;
    float x_local_[kTileLength];
    float y_local_[kTileLength];
    float z_local_[kTileLength];
};

}  // namespace

void add_custom(const uint16_t* x, const uint16_t* y, uint16_t* z, std::size_t length) {
    AddKernel(x, y, z, length).Process();
}
