// Element types of tensors: their size in bytes and their name.
#ifndef DATA_TYPE_H
#define DATA_TYPE_H

#include <cstddef>
#include <string>

enum class DataType { FLOAT32, FLOAT16, INT32, INT8 };

inline std::size_t get_element_size(DataType type) {
    switch (type) {
        case DataType::FLOAT32:
        case DataType::INT32: return 4;
        case DataType::FLOAT16: return 2;
        case DataType::INT8: return 1;
    }
    return 0;
}

inline std::string get_dtype_name(DataType type) {
    switch (type) {
        case DataType::FLOAT32: return "FLOAT32";
        case DataType::FLOAT16: return "FLOAT16";
        case DataType::INT32: return "INT32";
        case DataType::INT8: return "INT8";
    }
    return "UNKNOWN";
}

#endif
