// Reads which devices CTest allocated to a test with RESOURCE_GROUPS from its environment:
// CTEST_RESOURCE_GROUP_COUNT, and CTEST_RESOURCE_GROUP_<n>_NPUS = "id:<id>,slots:<slots>;…".
#ifndef OPTEST_CTEST_DEVICES_H
#define OPTEST_CTEST_DEVICES_H

#include <cctype>
#include <cstdlib>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

// The device ids of all groups in order, none for groups of other resources than `type`.
// Throws std::runtime_error if CTest allocated nothing (it ran without a resource spec file, so any device may be in
// use by another test), and for text that CTest does not write.
inline std::vector<int> read_ctest_devices(const std::string &type = "npus") {
    const auto number = [](const std::string &name, const std::string &text) {
        if (text.empty() || text.size() > 9 || text.find_first_not_of("0123456789") != std::string::npos)
            throw std::runtime_error(name + " holds '" + text + "', expected a number");
        return std::stoi(text);
    };
    const std::string group = "CTEST_RESOURCE_GROUP_";
    const char *count = std::getenv((group + "COUNT").c_str());
    if (count == nullptr)
        throw std::runtime_error(group + "COUNT is not set: no device was allocated; run by `optest ctest`, or by "
                                 "`ctest --resource-spec-file`, a test that has RESOURCE_GROUPS");
    std::string suffix = "_";
    for (const char letter : type) suffix += static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
    std::vector<int> devices;
    for (int index = 0; index < number(group + "COUNT", count); ++index) {
        const std::string name = group + std::to_string(index) + suffix;
        const char *text = std::getenv(name.c_str());
        std::istringstream units(text == nullptr ? "" : text);
        for (std::string unit; std::getline(units, unit, ';');) {
            const auto comma = unit.find(",slots:");
            if (unit.rfind("id:", 0) != 0 || comma == std::string::npos)
                throw std::runtime_error(name + " holds '" + unit + "', expected id:<id>,slots:<slots>");
            devices.push_back(number(name, unit.substr(3, comma - 3)));
        }
    }
    return devices;
}

#endif
