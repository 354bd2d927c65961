// What is thrown where an argument is refused; the interface turns it into a code and a message.
#pragma once
#include "granet_native.h"

#include <cstdint>
#include <stdexcept>
#include <string>

namespace granet {

struct Refusal : std::runtime_error {
  int code;
  Refusal(int code, const std::string &message) : std::runtime_error(message), code(code) {}
};

inline void require(bool holds, const std::string &message, int code = GRANET_INVALID) {
  if (!holds) throw Refusal(code, message);
}

inline void require_between(const char *name, int64_t value, int64_t low, int64_t high, int code = GRANET_INVALID) {
  if (value < low || value > high)
    throw Refusal(code, std::string(name) + " is " + std::to_string(value) + ", not between " + std::to_string(low) +
                            " and " + std::to_string(high));
}

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

} // namespace granet
