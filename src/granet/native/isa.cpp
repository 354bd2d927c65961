#include "isa.hpp"

#include "refusal.hpp"

#include <cstring>
#include <vector>

namespace granet {
namespace {

const std::vector<const Kernels *> &runnable() {
  static const std::vector<const Kernels *> found = [] {
    std::vector<const Kernels *> all;
#if defined(__x86_64__) || defined(__i386__)
    __builtin_cpu_init();
#if defined(GRANET_AVX512)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
      all.push_back(&kernels_avx512());
#endif
#if defined(GRANET_AVX2)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) all.push_back(&kernels_avx2());
#endif
#endif
    all.push_back(&kernels_baseline());
    return all;
  }();
  return found;
}

} // namespace

const std::string &isa_names() {
  static const std::string names = [] {
    std::string all;
    for (const Kernels *kernels : runnable()) all += (all.empty() ? "" : " ") + std::string(kernels->name);
    return all;
  }();
  return names;
}

const Kernels &kernels_named(const char *name) {
  if (!name) return *runnable().front();
  for (const Kernels *kernels : runnable())
    if (std::strncmp(kernels->name, name, 16) == 0) return *kernels;
  throw Refusal(GRANET_INVALID, "isa is " + std::string(name, strnlen(name, 32)) + ", not one of " + isa_names());
}

} // namespace granet
