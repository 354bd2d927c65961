// The kernels, over any width of vectors. Compiled once for every instruction set, with GRANET_ISA for its name,
// GRANET_LANES floats in a vector and GRANET_REGISTERS vectors in registers.
#include "kernels.hpp"

#include <utility>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define GRANET_INLINE inline __attribute__((always_inline))
#define GRANET_JOIN_(a, b) a##b
#define GRANET_JOIN(a, b) GRANET_JOIN_(a, b)
#define GRANET_TEXT_(a) #a
#define GRANET_TEXT(a) GRANET_TEXT_(a)

namespace granet {
namespace {

constexpr int lanes = GRANET_LANES;
typedef float Vector __attribute__((vector_size(lanes * 4)));
typedef int32_t Mask __attribute__((vector_size(lanes * 4)));
typedef float Unaligned __attribute__((vector_size(lanes * 4), aligned(4), may_alias));
constexpr int bytes = sizeof(Vector);
constexpr int accumulators = GRANET_REGISTERS - (GRANET_REGISTERS > 16 ? 4 : 2);
constexpr int dense_vectors = GRANET_REGISTERS > 16 ? 6 : 3;

template <int... lane> GRANET_INLINE Vector splat(float value, std::integer_sequence<int, lane...>) {
  return Vector{(static_cast<void>(lane), value)...}; // a sum with zeros would really be added, for the sake of -0
}
GRANET_INLINE Vector splat(float value) { return splat(value, std::make_integer_sequence<int, lanes>{}); }
GRANET_INLINE Vector load(const void *at) { return *static_cast<const Vector *>(at); }
GRANET_INLINE Vector masked(Vector value, Mask mask) { return (Vector)((Mask)value & mask); }

GRANET_INLINE Vector relu(Vector value) { // NaN stays, as second operand
#if defined(__AVX512F__)
  return (Vector)_mm512_max_ps(_mm512_setzero_ps(), (__m512)value);
#elif defined(__AVX2__)
  return (Vector)_mm256_max_ps(_mm256_setzero_ps(), (__m256)value);
#elif defined(__SSE__)
  return (Vector)_mm_max_ps(_mm_setzero_ps(), (__m128)value);
#else
  return Vector{} > value ? Vector{} : value;
#endif
}

GRANET_INLINE Vector permuted(Vector value, Mask from) {
#if defined(__AVX512F__)
  return (Vector)_mm512_permutexvar_ps((__m512i)from, (__m512)value);
#elif defined(__AVX2__)
  return (Vector)_mm256_permutevar8x32_ps((__m256)value, (__m256i)from);
#else
  Vector moved;
  for (int lane = 0; lane < lanes; lane++) moved[lane] = value[from[lane]];
  return moved;
#endif
}

// Where the rows of a block begin. Compilers would keep the address of every single vector instead, in memory.
template <int tile_h> struct Lines {
  const char *at[tile_h];
  GRANET_INLINE Lines(const char *first, ptrdiff_t down) {
    for (int i = 0; i < tile_h; i++) {
      at[i] = first;
      asm("" : "+r"(at[i]));
      first = at[i] + down;
    }
  }
};

// A block of outputs, tile_h x tile_w vectors in each of `rows` channels, is held in registers while all entries are
// added to it; every entry is one load for each vector of the block, at a displacement that is known here.
template <int rows, int tile_h, int tile_w, int stride, int... at, int... chain, int... row>
GRANET_INLINE void convolve(const ConvArguments &a, std::integer_sequence<int, at...>,
                            std::integer_sequence<int, chain...>, std::integer_sequence<int, row...>) {
  constexpr int count = tile_h * tile_w, chained = sizeof...(chain);
  const auto *all = static_cast<const Entry<rows> *>(a.entries);
  const ptrdiff_t step = stride ? stride * bytes : a.input_step;
  const ptrdiff_t down = tile_h > 1 ? a.input_row : 0; // already times the stride
  for (size_t k = 0; k < a.row_count; k++) {
    const Row next = a.rows[k];
    const Entry<rows> *entry = all + next.start, *const end = entry + next.count; // whole chains
    char *const out = a.output + a.output_channel * next.channel;
    Vector sum[rows * chained * count];
    auto begin = [&](auto r) __attribute__((always_inline)) {
      constexpr int first = decltype(r)::value * chained * count;
      if (next.flags & row_begins) {
        const Vector bias = splat(a.bias[next.channel + decltype(r)::value]);
        ((sum[first + at] = bias), ...);
        if (a.residual) {
          const Lines<tile_h> from(a.residual + a.residual_channel * (next.channel + decltype(r)::value), a.residual_row);
          ((sum[first + at] += load(from.at[at / tile_w] + (at % tile_w) * bytes)), ...);
        }
      } else {
        const Lines<tile_h> from(out + a.output_channel * decltype(r)::value, a.output_row);
        ((sum[first + at] = load(from.at[at / tile_w] + (at % tile_w) * bytes)), ...);
      }
      if constexpr (chained > 1)
        for (int i = count; i < chained * count; i++) sum[first + i] = Vector{};
    };
    (begin(std::integral_constant<int, row>{}), ...);

    auto add = [&](auto c, const Entry<rows> &one) __attribute__((always_inline)) {
      constexpr int first = decltype(c)::value * count;
      const char *from = a.input + one.offset;
      if constexpr (rows == 1) {
        const Vector value = splat(one.value[0]);
        ((sum[first + at] += value * load(from + down * (at / tile_w) + (at % tile_w) * step)), ...);
      } else {
        const Vector read[count] = {load(from + down * (at / tile_w) + (at % tile_w) * step)...};
        auto add_row = [&](auto r) __attribute__((always_inline)) {
          const Vector value = splat(one.value[decltype(r)::value]);
          ((sum[decltype(r)::value * count + at] += value * read[at]), ...);
        };
        (add_row(std::integral_constant<int, row>{}), ...);
      }
    };
    for (; entry != end; entry += chained) (add(std::integral_constant<int, chain>{}, entry[chain]), ...);

    auto finish = [&](auto r) __attribute__((always_inline)) {
      constexpr int first = decltype(r)::value * chained * count;
      if constexpr (chained > 1)
        for (int c = 1; c < chained; c++) ((sum[first + at] += sum[first + c * count + at]), ...);
      if (a.relu && next.flags & row_ends) ((sum[first + at] = relu(sum[first + at])), ...);
      const Lines<tile_h> to(out + a.output_channel * decltype(r)::value, a.output_row);
      ((*reinterpret_cast<Vector *>(const_cast<char *>(to.at[at / tile_w]) + (at % tile_w) * bytes) = sum[first + at]),
       ...);
    };
    (finish(std::integral_constant<int, row>{}), ...);
  }
}

template <int rows, int tile_h, int tile_w, int stride> void conv(const ConvArguments &a) {
  constexpr int chained = rows == 1 ? chains(tile_h * tile_w) : 1;
  convolve<rows, tile_h, tile_w, stride>(a, std::make_integer_sequence<int, tile_h * tile_w>{},
                                         std::make_integer_sequence<int, chained>{},
                                         std::make_integer_sequence<int, rows>{});
}

// The widths of a table's row: those whose blocks fit into the registers.
constexpr int widest(int rows, int tile_h, int stride) {
  const int most = rows == 1 ? accumulators : dense_vectors;
  return (stride == 0 && most > 4 ? 4 : most) / tile_h;
}

template <int rows, int tile_h, int stride, int... below>
ConvKernel of_width(int tile_w, std::integer_sequence<int, below...>) {
  static constexpr ConvKernel table[] = {&conv<rows, tile_h, below + 1, stride>..., nullptr};
  return tile_w >= 1 && tile_w <= static_cast<int>(sizeof...(below)) ? table[tile_w - 1] : nullptr;
}

template <int rows, int tile_h> ConvKernel of_height(int tile_w, int stride) {
  if (stride == 1) return of_width<rows, tile_h, 1>(tile_w, std::make_integer_sequence<int, widest(rows, tile_h, 1)>{});
  if (stride == 2) return of_width<rows, tile_h, 2>(tile_w, std::make_integer_sequence<int, widest(rows, tile_h, 2)>{});
  return of_width<rows, tile_h, 0>(tile_w, std::make_integer_sequence<int, widest(rows, tile_h, 0)>{});
}

ConvKernel find_conv(int rows, int tile_h, int tile_w, int stride) {
  static_assert(tallest_tile == 4);
  if (rows == 1) switch (tile_h) {
    case 1: return of_height<1, 1>(tile_w, stride);
    case 2: return of_height<1, 2>(tile_w, stride);
    case 3: return of_height<1, 3>(tile_w, stride);
    case 4: return of_height<1, 4>(tile_w, stride);
    }
  if (rows == 4) switch (tile_h) {
    case 1: return of_height<4, 1>(tile_w, stride);
    case 2: return of_height<4, 2>(tile_w, stride);
    case 3: return of_height<4, 3>(tile_w, stride);
    case 4: return of_height<4, 4>(tile_w, stride);
    }
  return nullptr;
}

void patch(const PatchArguments &a) {
  const auto *moves = reinterpret_cast<const Mask *>(a.permutations), *masks = reinterpret_cast<const Mask *>(a.masks);
  for (size_t c = 0; c < a.channels; c++) {
    Vector *data = reinterpret_cast<Vector *>(a.data) + a.channel * static_cast<ptrdiff_t>(c);
    for (size_t i = 0; i < a.count; i++) {
      const Patch &p = a.patches[i];
      data[p.to] = masked(permuted(data[p.from], moves[p.moved]), masks[p.kept]);
    }
  }
}

void pool(const PoolArguments &a) {
  const auto *masks = reinterpret_cast<const Mask *>(a.masks);
  const Vector lowest = splat(-__builtin_inff());
  for (size_t c = 0; c < a.channels; c++) {
    const Vector *in = reinterpret_cast<const Vector *>(a.input) + a.input_channel * static_cast<ptrdiff_t>(c);
    Vector *out = reinterpret_cast<Vector *>(a.output) + a.output_channel * static_cast<ptrdiff_t>(c);
    const PoolTap *tap = a.taps;
    for (size_t i = 0; i < a.positions; i++) {
      if (a.scales) {
        Vector sum = Vector{};
        for (size_t k = 0; k < a.tap_count; k++, tap++)
          sum += tap->mask < 0 ? in[tap->from] : masked(in[tap->from], masks[tap->mask]);
        out[a.to[i]] = sum * load(a.scales + i * lanes);
      } else {
        Vector most = lowest;
        for (size_t k = 0; k < a.tap_count; k++, tap++) {
          Vector value = in[tap->from];
          if (tap->mask >= 0) value = masks[tap->mask] ? value : lowest;
          most = (most > value) | (most != most) ? most : value; // NaN is taken, and stays
        }
        out[a.to[i]] = most;
      }
    }
  }
}

void gather(const float *from, float *to, const int32_t *index, size_t count) {
  size_t i = 0;
#if defined(__AVX512F__)
  for (; i + 16 <= count; i += 16) {
    const __m512i at = _mm512_loadu_si512(index + i);
    const __mmask16 there = _mm512_cmpge_epi32_mask(at, _mm512_setzero_si512());
    _mm512_storeu_ps(to + i, _mm512_mask_i32gather_ps(_mm512_setzero_ps(), there, at, from, 4));
  }
#elif defined(__AVX2__)
  for (; i + 8 <= count; i += 8) {
    const __m256i at = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(index + i));
    const __m256 there = _mm256_castsi256_ps(_mm256_cmpgt_epi32(at, _mm256_set1_epi32(-1)));
    _mm256_storeu_ps(to + i, _mm256_mask_i32gather_ps(_mm256_setzero_ps(), from, at, there, 4));
  }
#endif
  for (; i < count; i++) to[i] = index[i] < 0 ? 0.0f : from[index[i]];
}

void add(const float *left, const float *right, float *out, size_t count, bool relu_too) {
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    Vector sum = *reinterpret_cast<const Unaligned *>(left + i);
    if (right) sum += *reinterpret_cast<const Unaligned *>(right + i);
    *reinterpret_cast<Unaligned *>(out + i) = relu_too ? relu(sum) : sum;
  }
  for (; i < count; i++) {
    const float sum = right ? left[i] + right[i] : left[i];
    out[i] = relu_too && sum < 0 ? 0.0f : sum;
  }
}

} // namespace

const Kernels &GRANET_JOIN(kernels_, GRANET_ISA)() {
  static constexpr Kernels kernels = {
      GRANET_TEXT(GRANET_ISA), lanes, accumulators, dense_vectors, find_conv, patch, pool, gather, add};
  return kernels;
}

} // namespace granet
