// No label: runs where no hardware is.
#include <gtest/gtest.h>

#include "data_type.h"

TEST(DataType, ElementSize) {
    EXPECT_EQ(get_element_size(DataType::FLOAT32), 4u);
    EXPECT_EQ(get_element_size(DataType::FLOAT16), 2u);
    EXPECT_EQ(get_element_size(DataType::INT8), 1u);
    EXPECT_EQ(get_element_size(static_cast<DataType>(99)), 0u);
}

TEST(DataType, Name) {
    EXPECT_EQ(get_dtype_name(DataType::INT32), "INT32");
    EXPECT_EQ(get_dtype_name(static_cast<DataType>(99)), "UNKNOWN");
}
