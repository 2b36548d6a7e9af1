// Label requires_hardware_a2a3, RESOURCE_GROUPS "npus:1": on one device of a2a3.
#include <gtest/gtest.h>
#include <optest/ctest_devices.h>

TEST(Copy, HasOneDevice) { EXPECT_EQ(read_ctest_devices().size(), 1u); }
