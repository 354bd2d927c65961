// A finished plan: steps on buffers of known layouts, in memory that is divided once.
#pragma once
#include "layout.hpp"

#include <memory>
#include <utility>
#include <vector>

namespace granet {

struct Buffer {
  Shape shape;
  Format format;
  bool clear = false; // what lies outside the map, but within its tiles, must be zero
  int input = -1, output = -1; // the caller's array with this number
  int same_as = -1;            // the buffer whose memory this one is
  int first = -1, last = -1;   // steps between which it is needed
  bool kept = false;           // for all images of a chunk: made and read in different segments
  int64_t offset = 0;          // bytes
  bool by_rows = false;        // what threads divide among them: rows of tiles, or channels
  std::vector<int64_t> cuts = {}; // a thread makes those from one to the next, if the step is one on tiles
  int published = -1; // the buffer of what threads fetch from each other, where each has a copy of this one; or none
};

struct Range {
  int64_t begin, end;
  int64_t count() const { return end - begin; }
};

// Which part of a step is to be done: one thread's.
struct Share {
  int index, count;
  int64_t begin(int64_t of) const { return of * index / count; }
  int64_t end(int64_t of) const { return of * (index + 1) / count; }
  // What it makes of a buffer.
  Range rows(const Buffer &of) const { return of.by_rows ? cut(of) : Range{0, of.format.height}; }
  Range channels(const Buffer &of) const { return of.by_rows ? Range{0, of.shape.channels} : cut(of); }
  int part() const { return count == 1 ? -1 : index; } // -1: all. What several threads were to do may be left to one
  // Its element of a list of one for each thread; all of one that is not divided.
  template <class T> auto of(const std::vector<T> &list) const {
    const bool one = count > 1 && list.size() > 1;
    return std::pair(list.begin() + (one ? index : 0), one ? list.begin() + index + 1 : list.end());
  }

private:
  Range cut(const Buffer &of) const {
    const auto at = static_cast<size_t>(index);
    return count == 1 ? Range{of.cuts.front(), of.cuts.back()} : Range{of.cuts[at], of.cuts[at + 1]};
  }
};

class Program;

// Where a run's numbers are: those of a chunk of images, from `image` on.
struct Frame {
  const Program &program;
  char *memory; // of all threads
  const float *const *inputs;
  float *const *outputs;
  int64_t image, valid;
  int thread;
  char *at(int buffer, int64_t block) const;
  // Of a buffer without tiles.
  float *floats(int buffer, int64_t block) const { return reinterpret_cast<float *>(at(buffer, block)); }
};

class Step {
public:
  virtual ~Step() = default;
  virtual const char *kind() const = 0;
  // What it reads around its inputs' tiles: called before buffers are placed.
  virtual void demand(Program &) {}
  // Which channels of its output each thread makes, where they are what is divided: if it is not said, those whose
  // input the thread made.
  virtual std::vector<int64_t> deal(const Program &) const;
  // Whether a channel is made of others than the same one of its input.
  virtual bool mixes() const { return false; }
  // Whether a row of its output's tiles is made of any rows of its input's.
  virtual bool rearranges() const { return false; }
  virtual void prepare(const Program &) {}
  virtual void run(const Frame &, int64_t block, Share) const = 0;
  virtual std::string text(const Program &) const;
  virtual int64_t weights() const { return 0; }
  virtual int64_t multiply_adds() const { return 0; }
  virtual int64_t bytes() const { return 0; }
  virtual std::vector<granet_choice> choices(const Program &) const { return {}; }
  virtual granet_choice chosen() const { return {}; }
  virtual void choose(const Program &, const granet_choice &);

  int input = -1, other = -1, output = -1, node = -1;
  int images = 1; // of a block
};

// What threads take from each other before a step, of one of its inputs.
struct Fetched {
  int buffer;
  bool all; // channels; or those alone that the thread makes of the step's output
  Moves moves;
};

struct Segment {
  size_t begin, end; // steps that have blocks of as many images
  int images;
};

class Program {
public:
  Program(const Graph &graph, const Kernels &kernels);
  void run(const Frame &frame, Share share, void (*wait)(void *), void *barrier) const;
  int64_t chunks() const { return ceil_div(batch, chunk); }
  int64_t valid(int64_t number) const { return std::min(chunk, batch - number * chunk); }
  const Buffer &root(int buffer) const;
  int add_buffer(Buffer buffer);

  const Kernels &kernels;
  const int64_t batch, threads;
  int64_t chunk = 1;   // images that are computed together
  int shares = 1;      // how many threads compute a chunk
  int64_t common = 0, own = 0, memory = 0; // bytes, of a chunk: for all threads, for each of them, and together
  std::vector<Buffer> buffers;
  std::vector<std::unique_ptr<Step>> steps;
  std::vector<Segment> segments;

private:
  void divide();
  void place();
  void deal();
  void exchange();
  void fetch(const Frame &frame, size_t step, int64_t block, Share share) const;
  void publish(const Frame &frame, size_t step, int64_t block, Share share) const;

  std::vector<std::vector<Fetched>> fetched_; // of every step
  std::vector<Moves> published_;              // of every buffer
};

// lower.cpp: the steps of a graph, and the tiles of their buffers.
void lower(const Graph &graph, Program &program);

// Steps, each in a file of its own.
std::unique_ptr<Step> make_conv(const Node &node);
std::unique_ptr<Step> make_dot(const Node &node, const Kernels &kernels);
// The convolution as a matrix, by which all of the input is multiplied at once.
std::shared_ptr<Conv> as_matrix(const Conv &conv, const Shape &input, const Shape &output);
std::unique_ptr<Step> make_pool(const Node &node);
std::unique_ptr<Step> make_global_pool(const Node &node);
std::unique_ptr<Step> make_add(const Node &node);
std::unique_ptr<Step> make_relayout(int64_t step_h, int64_t step_w);

} // namespace granet
