// What the rest of the library asks of the kernels, which are compiled once for every instruction set.
//
// Plain structures alone: a template of the standard library used on both sides would exist in several versions of which
// the linker keeps any one, perhaps one that this machine cannot run.
#pragma once
#include <cstddef>
#include <cstdint>

namespace granet {

// One weight, or one for each of `rows` output channels that read the same input: where it reads, in vectors from where
// the block of outputs begins, and by what it multiplies. Kernels keep entries in a form of their own.
template <int rows> struct Entry {
  uint32_t vector;
  float value[rows];
};

// How many chains of additions a block of so many vectors has, lest each addition waits for the one before it. A row's
// number of entries must be a multiple of it.
constexpr int chains(int vectors) { return vectors >= 7 ? 1 : vectors >= 4 ? 2 : 4; }

enum RowFlag : uint32_t { row_begins = 1, row_ends = 2 };

// The entries of an output channel (of `rows` channels from this one on) in a slice of input channels. To their sum the
// bias and the residual are added in the first slice that it has entries in, else what is in the output; in the last one
// ReLU follows.
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
struct Move {
  uint32_t to, from; // in vectors
  uint32_t moved, kept; // which permutation, and which mask: in vectors of these tables
  bool more, last; // whether others have made lanes of that vector before, which are zero here, or make some after
};

struct MoveArguments {
  const void *from;
  void *to; // may be the same: moves are done in their order
  size_t channels;
  ptrdiff_t from_channel, to_channel; // in vectors
  const Move *moves;
  size_t count;
  const void *permutations, *masks;
};

struct PoolTap {
  uint32_t from; // in vectors
  int32_t mask;  // which, or -1: all lanes
};

struct PoolArguments {
  const void *input;
  void *output;
  size_t channels;
  ptrdiff_t input_channel, output_channel; // in vectors
  const uint32_t *to;                      // of every position
  const PoolTap *taps;                     // `tap_count` of every position
  size_t positions, tap_count;
  const void *masks;
  const float *scales; // for every lane of every position; null: maxima
};

// Sums or maxima of a channel's lanes, `tiles` of which are one image.
struct ReduceArguments {
  const void *input;
  float *output;
  size_t channels;
  ptrdiff_t input_channel, output_image; // in vectors; in floats
  const PoolTap *taps;
  size_t tap_count;
  const void *masks;
  int images, tiles;
  float scale; // of sums; 0: maxima
};

// Of one instruction set, and on numbers of so many bytes: float, or halves of one. In these numbers are tiles; what is
// said to be of floats is so always.
struct Kernels {
  const char *name;
  int bytes;
  int lanes;
  int accumulators; // of one block: tile_h * tile_w * rows may be as much
  int dense_vectors; // tile_h * tile_w of kernels with four rows
  // stride 0: any, by input_step. Null where there is none.
  ConvKernel (*conv)(int rows, int tile_h, int tile_w, int stride);
  int64_t most_vectors; // that a slice of input channels may have
  size_t one_bytes, four_bytes; // of an entry as the kernels keep it
  void (*keep_one)(const Entry<1> *entries, size_t count, void *kept);
  void (*keep_four)(const Entry<4> *entries, size_t count, void *kept);
  void (*move)(const MoveArguments &);
  void (*pool)(const PoolArguments &);
  void (*reduce)(const ReduceArguments &);
  // to[i] = from[index[i]], or zero where the index is negative: of the caller's floats, and to them
  void (*take)(const float *from, void *to, const int32_t *index, size_t count);
  void (*give)(const void *from, float *to, const int32_t *index, size_t count);
  // sums[r] of `dot_rows` rows of a matrix by a vector, of floats always: entry i of row r is at i * dot_rows + r.
  int dot_rows;
  void (*dot)(const float *vector, const uint32_t *columns, const float *values, size_t count, float *sums);
  // out = relu?(left + right), in whole vectors; right may be null
  void (*add)(const void *left, const void *right, void *out, size_t vectors, bool relu);
};

constexpr int tallest_tile = 4, tallest_rows = 4, most_dot_rows = 16;

const Kernels &kernels_baseline();
const Kernels &kernels_avx2();
const Kernels &kernels_avx512();
const Kernels &kernels_avx512fp16();
const Kernels &kernels_neonfp16();
const Kernels &kernels_emulated();

} // namespace granet
