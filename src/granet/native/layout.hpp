// How a value lies in memory: lanes of vectors are a grid of spatial tiles, and of images.
//
// A map is cut into grid_h x grid_w tiles of the same size, one for each lane; where tiles are small, lanes are images
// too. A channel is then (top + height + bottom) x (left + width + right) vectors, of which the borders (the halo) repeat
// what lies in neighbouring tiles. So every tap of a kernel, at any stride, reads whole aligned vectors.
// With one lane this is a plain array, as the caller's are.
#pragma once
#include "aligned.hpp"
#include "graph.hpp"
#include "kernels.hpp"

namespace granet {

struct Format {
  int lanes = 1, grid_n = 1, grid_h = 1, grid_w = 1;
  int bytes = 4; // of a number: floats, if it is not in tiles
  int along = 1; // images side by side in a tile, where a map is 1x1
  int64_t height = 1, width = 1;
  int64_t top = 0, left = 0, bottom = 0, right = 0;

  bool flat() const { return lanes == 1; }
  int images() const { return grid_n * along; }
  int64_t row() const { return left + width + right; }
  int64_t lines() const { return (top + height + bottom) * row(); }
  // Vectors from one channel to the next: an odd number, lest all channels share few sets of a cache.
  int64_t channel() const { return flat() ? lines() : lines() | 1; }
  int64_t line(int64_t y, int64_t x) const { return (y + top) * row() + x + left; }
  // The row and the column, within some tile, that a line is of, or, in the halo, repeats.
  int64_t row_of(int64_t line) const { return ((line / row() - top) % height + height) % height; }
  int64_t column_of(int64_t line) const { return ((line % row() - left) % width + width) % width; }
  int64_t vector_bytes() const { return int64_t{bytes} * lanes; }
  int64_t channel_bytes() const { return channel() * vector_bytes(); }
  // All channels of images() images: in whole cache lines, but without tiles as the caller's arrays are.
  int64_t block_bytes(const Shape &shape) const {
    return flat() ? shape.size() * bytes : ceil_div(shape.channels * channel_bytes(), 64) * 64;
  }
  bool same_tiles(const Format &o) const {
    return lanes == o.lanes && grid_n == o.grid_n && grid_h == o.grid_h && grid_w == o.grid_w && along == o.along &&
           height == o.height && width == o.width;
  }
  bool operator==(const Format &o) const {
    return same_tiles(o) && top == o.top && left == o.left && bottom == o.bottom && right == o.right;
  }
};

struct Place {
  int64_t image, y, x;
};

Format flat_format(const Shape &shape);

// The tiles whose outputs take the least work for each image, of at most `images` side by side.
Format tiles_for(const Kernels &kernels, const Shape &shape, int64_t images, bool alone);
// About how many multiplications a weight of that layer takes for each image, its own handling included.
double work(const Kernels &kernels, const Format &format, int64_t images);

// Where a lane of a tile's vector at (y, x), perhaps in the halo, lies in the map. False: nowhere.
bool find(const Format &format, const Shape &shape, int64_t y, int64_t x, int lane, Place &place);
// In numbers from where the channel of the block begins.
int64_t index_of(const Format &format, const Place &place);

// Lanes by vectors, found again if there: what permutations and masks are kept in.
class LaneTable {
public:
  explicit LaneTable(int lanes) : lanes_(lanes) {}
  uint32_t add(const std::vector<int32_t> &lanes);
  Aligned<char> kept(int bytes) const; // as whole numbers of that size

private:
  int lanes_;
  std::vector<int32_t> values_;
};

struct Moves {
  std::vector<Move> list;
  Aligned<char> permutations, masks;
  std::vector<size_t> parts = {}; // where the moves of each thread begin, and end, if they are divided
  // Of channels that begin there, in formats whose channels are so many vectors; all moves, or a thread's.
  void run(const Kernels &kernels, const char *from, int64_t from_channel, char *to, int64_t to_channel, int64_t channels,
           int part = -1) const;
  // Each thread has the moves from, or to, the rows from one cut to the next, and what repeats them in the halo.
  void divide(const Format &format, const std::vector<int64_t> &cuts, uint32_t Move::*of);
};

// What fills the halo after a layer, and clears what lies outside the map if `clear`.
Moves patches_for(const Format &format, const Shape &shape, bool clear);
// The same tiles without a halo, and what makes them and what makes the halo of them again.
Format bare(Format format);
Moves stripped(const Format &format);
Moves surrounded(const Format &format, const Shape &shape);

} // namespace granet
