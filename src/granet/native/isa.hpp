// Which kernels this machine can run.
#pragma once
#include "kernels.hpp"

#include <string>

namespace granet {

const std::string &isa_names();                 // best first
const Kernels &kernels_named(const char *name); // null: the best

} // namespace granet
