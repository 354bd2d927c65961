// Which kernels this machine can run.
#pragma once
#include "kernels.hpp"

#include <string>

namespace granet {

const std::string &isa_names(int64_t bits); // that have numbers of so many bits, best first
const Kernels &kernels_named(int64_t bits, const char *name); // null: the best

} // namespace granet
