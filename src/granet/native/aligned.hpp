// Arrays that begin at a cache line, and large ones at a huge page.
#pragma once
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <vector>
#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace granet {

struct Free {
  void operator()(void *at) const { std::free(at); }
};
template <class T> using Aligned = std::unique_ptr<T[], Free>;

// Zeros. Past the end there is room for one more cache line.
template <class T> Aligned<T> aligned(size_t count) {
  constexpr size_t line = 64, huge = size_t{1} << 21;
  const size_t step = count * sizeof(T) >= huge ? huge : line;
  const size_t size = (count * sizeof(T) + line + step - 1) / step * step;
  void *at = std::aligned_alloc(step, size);
  if (!at) throw std::bad_alloc();
#if defined(__linux__)
  if (step == huge) madvise(at, size, MADV_HUGEPAGE);
#endif
  std::memset(at, 0, size);
  return Aligned<T>(static_cast<T *>(at));
}

template <class T> Aligned<T> aligned_copy(const std::vector<T> &values) {
  Aligned<T> made = aligned<T>(values.size());
  if (!values.empty()) std::memcpy(made.get(), values.data(), values.size() * sizeof(T));
  return made;
}

} // namespace granet
