#pragma once

#include <cstdint>

constexpr int64_t kTile = 16;

inline int64_t tiles(int64_t size) { return (size + kTile - 1) / kTile; }
