// Label requires_hardware_a2a3, RESOURCE_GROUPS "2,npus:1": two groups of one slot, so two distinct devices.
#include <gtest/gtest.h>
#include <optest/ctest_devices.h>

#include <iostream>

TEST(Ring, HasTwoDevices) {
    const std::vector<int> devices = read_ctest_devices();
    ASSERT_EQ(devices.size(), 2u);
    EXPECT_NE(devices[0], devices[1]);
    std::cout << "devices " << devices[0] << " and " << devices[1] << '\n';
}
