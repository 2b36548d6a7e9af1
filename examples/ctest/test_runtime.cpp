// Label requires_hardware: runs on any platform that is hardware.
#include <gtest/gtest.h>

TEST(Runtime, Starts) { SUCCEED(); }
