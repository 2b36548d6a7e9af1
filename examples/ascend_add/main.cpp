// The host side: reads input/input_x.bin and input/input_y.bin, runs the operator, writes output/output_z.bin.
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <iterator>
#include <vector>

void add_custom(const uint16_t* x, const uint16_t* y, uint16_t* z, std::size_t length);

namespace {

bool ReadHalves(const char* path, std::vector<uint16_t>& values) {
    std::ifstream file(path, std::ios::binary | std::ios::ate);
    if (!file) {
        std::cerr << "cannot open " << path << '\n';
        return false;
    }
    values.resize(static_cast<std::size_t>(file.tellg()) / sizeof(uint16_t));
    file.seekg(0);
    file.read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(values.size() * sizeof(uint16_t)));
    return static_cast<bool>(file);
}

}  // namespace

int main() {
    std::vector<uint16_t> x, y;
    if (!ReadHalves("input/input_x.bin", x) || !ReadHalves("input/input_y.bin", y)) return 1;
    if (x.size() != y.size()) {
        std::cerr << "x has " << x.size() << " elements, y has " << y.size() << '\n';
        return 1;
    }
    std::vector<uint16_t> z(x.size());
    add_custom(x.data(), y.data(), z.data(), z.size());
    std::ofstream file("output/output_z.bin", std::ios::binary);
    file.write(reinterpret_cast<const char*>(z.data()), static_cast<std::streamsize>(z.size() * sizeof(uint16_t)));
    file.close();
    if (!file) {
        std::cerr << "cannot write output/output_z.bin\n";
        return 1;
    }
    std::cout << "add_custom: " << z.size() << " elements\n";
    return 0;
}
