// The kernels, over any width of vectors, and over their numbers: floats, or halves. Compiled once for every instruction
// set, with GRANET_ISA for its name, GRANET_BITS of a number, GRANET_LANES numbers in a vector and GRANET_REGISTERS vectors
// in registers.
#include "kernels.hpp"

#include <utility>
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#define GRANET_INLINE inline __attribute__((always_inline))
#define GRANET_JOIN_(a, b) a##b
#define GRANET_JOIN(a, b) GRANET_JOIN_(a, b)
#define GRANET_TEXT_(a) #a
#define GRANET_TEXT(a) GRANET_TEXT_(a)

namespace granet {
namespace {

#if GRANET_BITS == 32
typedef float Number;
typedef int32_t Whole;
#elif defined(__aarch64__) && !defined(__clang__) && __GNUC__ < 13
typedef __fp16 Number; // what GCC had before _Float16
typedef int16_t Whole;
#else
typedef _Float16 Number;
typedef int16_t Whole;
#endif
constexpr int lanes = GRANET_LANES;
typedef Number Vector __attribute__((vector_size(lanes * sizeof(Number))));
typedef Whole Mask __attribute__((vector_size(lanes * sizeof(Number))));
typedef float Wide __attribute__((vector_size(lanes * sizeof(float)))); // what is summed up without rounding to halves
typedef float Loose __attribute__((vector_size(lanes * sizeof(float)), aligned(4), may_alias));
constexpr int bytes = sizeof(Vector);
constexpr int accumulators = GRANET_REGISTERS - (GRANET_REGISTERS > 16 ? 4 : 2);
constexpr int dense_vectors = GRANET_REGISTERS > 16 ? 6 : 3;

// An entry as it is kept: the less is read for a weight the better.
#if GRANET_BITS == 32
template <int rows> struct Kept {
  uint32_t offset; // in bytes
  float value[rows];
};
constexpr int64_t most_vectors = ((int64_t{1} << 32) - 1) / bytes;
template <int rows> GRANET_INLINE ptrdiff_t offset(const Kept<rows> &entry) { return entry.offset; }
GRANET_INLINE uint32_t place(uint32_t vector) { return vector * static_cast<uint32_t>(bytes); }
#else
template <int rows> struct Kept {
  uint16_t vector;
  Number value[rows];
};
constexpr int64_t most_vectors = 65536;
template <int rows> GRANET_INLINE ptrdiff_t offset(const Kept<rows> &entry) { return ptrdiff_t{entry.vector} * bytes; }
GRANET_INLINE uint16_t place(uint32_t vector) { return static_cast<uint16_t>(vector); }
#endif

template <int rows> void keep(const Entry<rows> *entries, size_t count, void *kept) {
  auto *to = static_cast<Kept<rows> *>(kept);
  for (size_t i = 0; i < count; i++) {
    Kept<rows> one{place(entries[i].vector), {}};
    for (int r = 0; r < rows; r++) one.value[r] = static_cast<Number>(entries[i].value[r]);
    to[i] = one;
  }
}

template <int... lane> GRANET_INLINE Vector splat(Number value, std::integer_sequence<int, lane...>) {
  return Vector{(static_cast<void>(lane), value)...}; // a sum with zeros would really be added, for the sake of -0
}
GRANET_INLINE Vector splat(Number value) { return splat(value, std::make_integer_sequence<int, lanes>{}); }
GRANET_INLINE Vector load(const void *at) { return *static_cast<const Vector *>(at); }
GRANET_INLINE Vector masked(Vector value, Mask mask) { return (Vector)((Mask)value & mask); }

#if GRANET_BITS == 16 && !defined(__AVX512FP16__) && !defined(__ARM_FEATURE_FP16_VECTOR_ARITHMETIC)
#define GRANET_EMULATED
#define GRANET_ARITHMETIC __attribute__((noinline)) // as little code as can be
#else
#define GRANET_ARITHMETIC GRANET_INLINE
#endif

GRANET_INLINE Wide widen(Vector value) {
#if GRANET_BITS == 32
  return value;
#elif defined(__AVX512FP16__)
  const __m512i all = (__m512i)value; // GCC 12 would convert lane by lane
  const __m512 halves[2] = {_mm512_cvtph_ps(_mm512_castsi512_si256(all)), _mm512_cvtph_ps(_mm512_extracti64x4_epi64(all, 1))};
  Wide wide;
  __builtin_memcpy(&wide, halves, sizeof wide);
  return wide;
#else
  return __builtin_convertvector(value, Wide);
#endif
}

GRANET_INLINE Vector narrow(Wide value) {
#if GRANET_BITS == 32
  return value;
#elif defined(__AVX512FP16__)
  __m512 halves[2];
  __builtin_memcpy(halves, &value, sizeof value);
  const __m512i low = _mm512_castsi256_si512(_mm512_cvtps_ph(halves[0], _MM_FROUND_TO_NEAREST_INT));
  return (Vector)_mm512_inserti64x4(low, _mm512_cvtps_ph(halves[1], _MM_FROUND_TO_NEAREST_INT), 1);
#else
  return __builtin_convertvector(value, Vector);
#endif
}

GRANET_ARITHMETIC Vector multiply_add(Vector left, Vector right, Vector sum) {
#if defined(GRANET_EMULATED)
  return narrow(widen(sum) + widen(left) * widen(right)); // rounded once, as processors do
#else
  return sum + left * right;
#endif
}

GRANET_ARITHMETIC Vector sum_of(Vector left, Vector right) { return left + right; }

GRANET_ARITHMETIC Vector relu(Vector value) { // NaN stays, as second operand
#if defined(__AVX512FP16__) && GRANET_BITS == 16
  return (Vector)_mm512_max_ph(_mm512_setzero_ph(), (__m512h)value);
#elif GRANET_BITS == 16
  return Vector{} > value ? Vector{} : value;
#elif defined(__AVX512F__)
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
#if defined(__AVX512FP16__) && GRANET_BITS == 16
  return (Vector)_mm512_permutexvar_epi16((__m512i)from, (__m512i)value);
#elif defined(__aarch64__)
  // The places of a lane's bytes: 0x03020100 + lane * 0x04040404, and likewise for halves.
  constexpr Whole first = sizeof(Whole) == 4 ? 0x03020100 : 0x0100, step = sizeof(Whole) == 4 ? 0x04040404 : 0x0202;
  return (Vector)vqtbl1q_u8((uint8x16_t)value, (uint8x16_t)(from * step + first));
#elif GRANET_BITS == 16
  Vector moved;
  for (int lane = 0; lane < lanes; lane++) moved[lane] = value[from[lane]];
  return moved;
#elif defined(__AVX512F__)
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
  const auto *all = static_cast<const Kept<rows> *>(a.entries);
  const ptrdiff_t step = stride ? stride * bytes : a.input_step;
  const ptrdiff_t down = tile_h > 1 ? a.input_row : 0; // already times the stride
  for (size_t k = 0; k < a.row_count; k++) {
    const Row next = a.rows[k];
    const Kept<rows> *entry = all + next.start, *const end = entry + next.count; // whole chains
    char *const out = a.output + a.output_channel * next.channel;
    Vector sum[rows * chained * count];
    for (Vector &one : sum) one = Vector{};

    auto add = [&](auto c, const Kept<rows> &one) __attribute__((always_inline)) {
      constexpr int first = decltype(c)::value * count;
      const char *from = a.input + offset(one);
      if constexpr (rows == 1) {
        const Vector value = splat(one.value[0]);
        ((sum[first + at] =
              multiply_add(value, load(from + down * (at / tile_w) + (at % tile_w) * step), sum[first + at])),
         ...);
      } else {
        const Vector read[count] = {load(from + down * (at / tile_w) + (at % tile_w) * step)...};
        auto add_row = [&](auto r) __attribute__((always_inline)) {
          const Vector value = splat(one.value[decltype(r)::value]);
          constexpr int first = decltype(r)::value * count;
          ((sum[first + at] = multiply_add(value, read[at], sum[first + at])), ...);
        };
        (add_row(std::integral_constant<int, row>{}), ...);
      }
    };
    for (; entry != end; entry += chained) (add(std::integral_constant<int, chain>{}, entry[chain]), ...);

    auto finish = [&](auto r) __attribute__((always_inline)) {
      constexpr int first = decltype(r)::value * chained * count;
      if constexpr (chained > 1)
        for (int c = 1; c < chained; c++) ((sum[first + at] = sum_of(sum[first + at], sum[first + c * count + at])), ...);
      // Only now, lest the many additions of a slice round what is larger than they are: halves are short.
      if (next.flags & row_begins) {
        const Vector bias = splat(static_cast<Number>(a.bias[next.channel + decltype(r)::value]));
        ((sum[first + at] = sum_of(sum[first + at], bias)), ...);
        if (a.residual) {
          const Lines<tile_h> from(a.residual + a.residual_channel * (next.channel + decltype(r)::value), a.residual_row);
          ((sum[first + at] = sum_of(sum[first + at], load(from.at[at / tile_w] + (at % tile_w) * bytes))), ...);
        }
      } else {
        const Lines<tile_h> from(out + a.output_channel * decltype(r)::value, a.output_row);
        ((sum[first + at] = sum_of(sum[first + at], load(from.at[at / tile_w] + (at % tile_w) * bytes))), ...);
      }
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

// Calls work(several, first) for all channels, several at a time: what is read from tables for one is read for all.
template <class Work> GRANET_INLINE void in_fours(size_t channels, Work work) {
  ptrdiff_t first = 0;
  for (const auto all = static_cast<ptrdiff_t>(channels); first < all;) {
    if (first + 4 <= all) {
      work(std::integral_constant<int, 4>{}, first);
      first += 4;
    } else {
      work(std::integral_constant<int, 1>{}, first);
      first += 1;
    }
  }
}

void move(const MoveArguments &a) {
  const auto *moved = static_cast<const Mask *>(a.permutations), *masks = static_cast<const Mask *>(a.masks);
  in_fours(a.channels, [&](auto several, ptrdiff_t first) __attribute__((always_inline)) {
    constexpr int together = decltype(several)::value;
    const Vector *from = static_cast<const Vector *>(a.from) + a.from_channel * first;
    Vector *to = static_cast<Vector *>(a.to) + a.to_channel * first;
    Mask made[together] = {};
    for (size_t i = 0; i < a.count; i++) {
      const Move &m = a.moves[i];
      const Mask places = moved[m.moved], kept = masks[m.kept];
      for (int c = 0; c < together; c++) {
        const Mask one = (Mask)permuted(from[a.from_channel * c + m.from], places) & kept;
        made[c] = m.more ? made[c] | one : one;
      }
      if (m.last)
        for (int c = 0; c < together; c++) to[a.to_channel * c + m.to] = (Vector)made[c];
    }
  });
}

// The larger one; NaN is taken, and stays.
template <class V> GRANET_INLINE V larger(V most, V value) {
  return ((most > value) | (most != most)) ? most : value;
}

void pool(const PoolArguments &a) {
  const auto *masks = static_cast<const Mask *>(a.masks);
  const Vector lowest = splat(static_cast<Number>(-__builtin_inff()));
  in_fours(a.channels, [&](auto several, ptrdiff_t first) __attribute__((always_inline)) {
    constexpr int together = decltype(several)::value;
    const Vector *in = static_cast<const Vector *>(a.input) + a.input_channel * first;
    Vector *out = static_cast<Vector *>(a.output) + a.output_channel * first;
    const PoolTap *tap = a.taps;
    for (size_t i = 0; i < a.positions; i++) {
      if (a.scales) {
        Wide sum[together] = {};
        for (size_t k = 0; k < a.tap_count; k++, tap++)
          for (int c = 0; c < together; c++) {
            const Vector value = in[a.input_channel * c + tap->from];
            sum[c] += widen(tap->mask < 0 ? value : masked(value, masks[tap->mask]));
          }
        const Wide scale = *reinterpret_cast<const Loose *>(a.scales + i * lanes);
        for (int c = 0; c < together; c++) out[a.output_channel * c + a.to[i]] = narrow(sum[c] * scale);
      } else {
        Vector most[together];
        for (Vector &one : most) one = lowest;
        for (size_t k = 0; k < a.tap_count; k++, tap++)
          for (int c = 0; c < together; c++) {
            const Vector value = in[a.input_channel * c + tap->from];
            most[c] = larger(most[c], tap->mask < 0 ? value : masks[tap->mask] ? value : lowest);
          }
        for (int c = 0; c < together; c++) out[a.output_channel * c + a.to[i]] = most[c];
      }
    }
  });
}

void reduce(const ReduceArguments &a) {
  const auto *masks = static_cast<const Mask *>(a.masks);
  const Vector lowest = splat(static_cast<Number>(-__builtin_inff()));
  for (size_t c = 0; c < a.channels; c++) {
    const Vector *in = static_cast<const Vector *>(a.input) + a.input_channel * static_cast<ptrdiff_t>(c);
    Wide all;
    if (a.scale != 0) {
      all = Wide{};
      for (size_t k = 0; k < a.tap_count; k++) {
        const PoolTap tap = a.taps[k];
        all += widen(tap.mask < 0 ? in[tap.from] : masked(in[tap.from], masks[tap.mask]));
      }
      all *= a.scale;
    } else {
      Vector most = lowest;
      for (size_t k = 0; k < a.tap_count; k++) {
        const Vector value = in[a.taps[k].from];
        const int32_t mask = a.taps[k].mask;
        most = larger(most, mask < 0 ? value : masks[mask] ? value : lowest);
      }
      all = widen(most);
    }
    for (int image = 0; image < a.images; image++) {
      float of_image = all[image * a.tiles];
      for (int tile = 1; tile < a.tiles; tile++) {
        const float one = all[image * a.tiles + tile];
        if (a.scale != 0) of_image += one;
        else of_image = of_image > one || of_image != of_image ? of_image : one;
      }
      a.output[a.output_image * image + static_cast<ptrdiff_t>(c)] = of_image;
    }
  }
}

template <class From, class To> GRANET_INLINE void gather(const From *from, To *to, const int32_t *index, size_t count) {
  size_t i = 0;
#if defined(__AVX512F__)
  if constexpr (sizeof(From) == 4)
    for (; i + 16 <= count; i += 16) {
      const __m512i at = _mm512_loadu_si512(index + i);
      const __mmask16 there = _mm512_cmpge_epi32_mask(at, _mm512_setzero_si512());
      const __m512 found = _mm512_mask_i32gather_ps(_mm512_setzero_ps(), there, at, from, 4);
      if constexpr (sizeof(To) == 4) _mm512_storeu_ps(to + i, found);
      else _mm256_storeu_si256(reinterpret_cast<__m256i *>(to + i), _mm512_cvtps_ph(found, _MM_FROUND_TO_NEAREST_INT));
    }
#elif defined(__AVX2__)
  if constexpr (sizeof(From) == 4 && sizeof(To) == 4)
    for (; i + 8 <= count; i += 8) {
      const __m256i at = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(index + i));
      const __m256 there = _mm256_castsi256_ps(_mm256_cmpgt_epi32(at, _mm256_set1_epi32(-1)));
      _mm256_storeu_ps(to + i, _mm256_mask_i32gather_ps(_mm256_setzero_ps(), from, at, there, 4));
    }
#endif
  for (; i < count; i++) to[i] = index[i] < 0 ? To{} : static_cast<To>(from[index[i]]);
}

void take(const float *from, void *to, const int32_t *index, size_t count) {
  gather(from, static_cast<Number *>(to), index, count);
}

void give(const void *from, float *to, const int32_t *index, size_t count) {
  gather(static_cast<const Number *>(from), to, index, count);
}

#if defined(__AVX512F__)
constexpr int dot_rows = 16;
#elif defined(__AVX2__)
constexpr int dot_rows = 8;
#else
constexpr int dot_rows = 4; // one number at a time, in chains that do not wait for each other
#endif
static_assert(dot_rows <= most_dot_rows);
typedef float Rows __attribute__((vector_size(sizeof(float) * dot_rows)));

GRANET_INLINE Rows read_at(const uint32_t *columns, const float *vector) {
#if defined(__AVX512F__)
  return _mm512_i32gather_ps(_mm512_load_si512(columns), vector, 4);
#elif defined(__AVX2__)
  return _mm256_i32gather_ps(vector, _mm256_load_si256(reinterpret_cast<const __m256i *>(columns)), 4);
#else
  Rows read;
  for (int row = 0; row < dot_rows; row++) read[row] = vector[columns[row]];
  return read;
#endif
}

void dot(const float *vector, const uint32_t *columns, const float *values, size_t count, float *sums) {
  constexpr size_t ahead = 512; // numbers: matrices come from the last cache, whose latency the processor does not hide itself
  const auto with = [&](Rows sum, size_t i) __attribute__((always_inline)) {
    const size_t at = i * dot_rows;
    __builtin_prefetch(columns + at + ahead);
    __builtin_prefetch(values + at + ahead);
    return sum + *reinterpret_cast<const Rows *>(values + at) * read_at(columns + at, vector);
  };
  Rows even{}, odd{};
  size_t i = 0;
  for (; i + 2 <= count; i += 2) {
    even = with(even, i);
    odd = with(odd, i + 1);
  }
  if (i < count) even = with(even, i);
  even += odd;
  __builtin_memcpy(sums, &even, sizeof even);
}

void add(const void *left, const void *right, void *out, size_t vectors, bool relu_too) {
  const auto *one = static_cast<const Vector *>(left), *other = static_cast<const Vector *>(right);
  for (size_t i = 0; i < vectors; i++) {
    const Vector sum = other ? one[i] + other[i] : one[i];
    static_cast<Vector *>(out)[i] = relu_too ? relu(sum) : sum;
  }
}

} // namespace

const Kernels &GRANET_JOIN(kernels_, GRANET_ISA)() {
  static constexpr Kernels kernels = {
      GRANET_TEXT(GRANET_ISA), sizeof(Number), lanes, accumulators, dense_vectors, find_conv, most_vectors,
      sizeof(Kept<1>), sizeof(Kept<4>), keep<1>, keep<4>, move, pool, reduce, take, give, dot_rows, dot, add};
  return kernels;
}

} // namespace granet
