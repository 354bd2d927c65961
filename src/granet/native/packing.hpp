// Weights in the form that the kernels want. Where a weight lies in its layer, and what a kernel makes of it, are apart:
// any pass over the same entries (of gradients too) can be packed from a list of taps.
#pragma once
#include "aligned.hpp"
#include "layout.hpp"

namespace granet {

// A weight that is not zero: which output channel it adds to, and which input channel, how far away, it reads.
struct Tap {
  uint32_t out, in;
  int32_t y, x; // from stride * the output's place
  float value;
};

// How far taps reach from an output's place.
struct Reach {
  int64_t top = 0, left = 0, bottom = 0, right = 0;
};

// Taps that read padding alone are left out.
std::vector<Tap> taps_of(const Conv &conv, const Shape &input, const Shape &output);
Reach reach_of(const std::vector<Tap> &taps);

// The rows of one slice of input channels: those of four output channels, and of one.
struct Slice {
  ptrdiff_t input; // bytes to its first channel
  size_t four, four_count, one, one_count;
};

// The output channels of a thread, or, where threads divide rows, of all of them: slice by slice.
struct Group {
  std::vector<Slice> slices;
};

struct Packed {
  std::vector<Group> groups;
  std::vector<Row> four, one;
  Aligned<char> of_four, of_one; // entries as the kernels keep them
  int64_t bytes = 0;
};

// Where to cut the output channels for `shares` threads, each of about as many weights, but no four that may be computed
// together. Neighbours to the same thread: where threads write side by side, each fetches what the other is about to write.
std::vector<int64_t> cuts_for(const std::vector<Tap> &taps, int64_t out_channels, int shares);

// `four`: whether output channels are computed four at a time, with the weights that any of them has.
// There is a group for the channels from each cut to the next. The entries of single channels are filled up to
// multiples of `chains` with zeros, which read once more what the last weight does: no number is read that was not.
Packed pack(const Kernels &kernels, std::vector<Tap> taps, int64_t in_channels, const std::vector<int64_t> &cuts,
            const Format &input, bool four, int64_t slice, int chains);

} // namespace granet
