// What the rest of the library asks of the kernels, which are compiled once for every instruction set.
//
// Plain structures alone: a template of the standard library used on both sides would exist in several versions of which
// the linker keeps any one, perhaps one that this machine cannot run.
#pragma once
#include <cstddef>
#include <cstdint>

namespace granet {

// One weight, or one for each of `rows` output channels that read the same input: where it reads, in bytes from where
// the block of outputs begins, and by what it multiplies.
template <int rows> struct Entry {
  uint32_t offset;
  float value[rows];
};

// How many chains of additions a block of so many vectors has, lest each addition waits for the one before it. A row's
// number of entries must be a multiple of it.
constexpr int chains(int vectors) { return vectors >= 7 ? 1 : vectors >= 4 ? 2 : 4; }

enum RowFlag : uint32_t { row_begins = 1, row_ends = 2 };

// The entries of an output channel (of `rows` channels from this one on) in a slice of input channels. In the first
// slice that it has entries in it begins with bias and residual, else with what is in the output; in the last one ReLU
// follows.
struct Row {
  uint32_t channel, start, count, flags;
};

struct ConvArguments {
  const char *input;
  char *output;
  const char *residual; // or null
  const float *bias;
  const Row *rows;
  size_t row_count;
  const void *entries;
  ptrdiff_t input_row, output_row, residual_row;    // bytes to the next row of a tile
  ptrdiff_t output_channel, residual_channel;       // bytes to the next channel
  ptrdiff_t input_step;                             // bytes between inputs of neighbouring outputs, if stride is any
  bool relu;
};
using ConvKernel = void (*)(const ConvArguments &);

// A vector of a channel that is made from another one: lanes moved, and some of them zero.
struct Patch {
  uint32_t to, from; // in vectors
  uint32_t moved, kept; // which permutation, and which mask: in vectors of these tables
};

struct PatchArguments {
  float *data;
  size_t channels;
  ptrdiff_t channel; // in vectors
  const Patch *patches;
  size_t count;
  const int32_t *permutations, *masks;
};

struct PoolTap {
  uint32_t from; // in vectors
  int32_t mask;  // which, or -1: all lanes
};

struct PoolArguments {
  const float *input;
  float *output;
  size_t channels;
  ptrdiff_t input_channel, output_channel; // in vectors
  const uint32_t *to;                      // of every position
  const PoolTap *taps;                     // `tap_count` of every position
  size_t positions, tap_count;
  const int32_t *masks;
  const float *scales; // a vector of every position; null: maxima
};

struct Kernels {
  const char *name;
  int lanes;
  int accumulators; // of one block: tile_h * tile_w * rows may be as much
  int dense_vectors; // tile_h * tile_w of kernels with four rows
  // stride 0: any, by input_step. Null where there is none.
  ConvKernel (*conv)(int rows, int tile_h, int tile_w, int stride);
  void (*patch)(const PatchArguments &);
  void (*pool)(const PoolArguments &);
  // to[i] = from[index[i]], or zero where the index is negative
  void (*gather)(const float *from, float *to, const int32_t *index, size_t count);
  // out = relu?(left + right); right may be null
  void (*add)(const float *left, const float *right, float *out, size_t count, bool relu);
};

constexpr int tallest_tile = 4, tallest_rows = 4;

const Kernels &kernels_baseline();
#if defined(GRANET_AVX2)
const Kernels &kernels_avx2();
#endif
#if defined(GRANET_AVX512)
const Kernels &kernels_avx512();
#endif

} // namespace granet
