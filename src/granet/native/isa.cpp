#include "isa.hpp"

#include "refusal.hpp"

#include <cstring>
#include <vector>
#if defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace granet {
namespace {

using Names = std::vector<const Kernels *>;

#if defined(GRANET_NEONFP16)
bool has_halves() {
#if defined(__linux__)
  return (getauxval(AT_HWCAP) & HWCAP_ASIMDHP) != 0;
#else
  return true; // every Mac of this kind
#endif
}
#endif

Names found() {
  Names all;
#if defined(__x86_64__) || defined(__i386__)
  __builtin_cpu_init();
#if defined(GRANET_AVX512)
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw");
  if (avx512) all.push_back(&kernels_avx512());
#if defined(GRANET_AVX512FP16)
  if (avx512 && __builtin_cpu_supports("avx512fp16")) all.push_back(&kernels_avx512fp16());
#endif
#endif
#if defined(GRANET_AVX2)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) all.push_back(&kernels_avx2());
#endif
#endif
#if defined(GRANET_NEONFP16)
  if (has_halves()) all.push_back(&kernels_neonfp16());
#endif
  all.push_back(&kernels_baseline());
  return all;
}

const Names &runnable() {
  static const Names all = found();
  return all;
}

} // namespace

const std::string &isa_names(int64_t bits) {
  const auto names = [](int of) {
    std::string all;
    for (const Kernels *kernels : runnable())
      if (kernels->bytes == of) all += (all.empty() ? "" : " ") + std::string(kernels->name);
    return all;
  };
  static const std::string floats = names(4), halves = names(2), none;
  return bits == 32 ? floats : bits == 16 ? halves : none;
}

const Kernels &kernels_named(int64_t bits, const char *name) {
  require(bits == 16 || bits == 32, "bits is " + std::to_string(bits) + ", neither 16 nor 32");
#if defined(GRANET_EMULATED)
  // For tests, where no processor has halves: it is very slow, so nobody gets it who does not name it.
  if (bits == 16 && name && std::strcmp(name, kernels_emulated().name) == 0) return kernels_emulated();
#endif
  for (const Kernels *kernels : runnable())
    if (kernels->bytes * 8 == bits && (!name || std::strncmp(kernels->name, name, 16) == 0)) return *kernels;
  if (!name) throw Refusal(GRANET_UNSUPPORTED, "this processor has no arithmetic of " + std::to_string(bits) + " bits");
  throw Refusal(GRANET_INVALID, "isa is " + std::string(name, strnlen(name, 32)) + ", not one of " + isa_names(bits));
}

} // namespace granet
