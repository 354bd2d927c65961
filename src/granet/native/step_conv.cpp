// A convolution on tiles: blocks of outputs in registers, slices of input channels in the cache.
#include "packing.hpp"
#include "program.hpp"

#include <algorithm>

namespace granet {
namespace {

struct Block {
  ptrdiff_t input, output, residual; // bytes from where a channel begins
  ConvKernel one, four;
};

class ConvStep final : public Step {
public:
  explicit ConvStep(const Node &node) : conv_(node.conv), relu_(node.relu) {}
  const char *kind() const override { return "conv"; }
  int64_t weights() const override { return static_cast<int64_t>(conv_->values.size()); }
  int64_t multiply_adds() const override { return weights() * outputs_; }
  int64_t bytes() const override { return packed_.bytes; }

  void demand(Program &program) override {
    Buffer &in = program.buffers[static_cast<size_t>(input)];
    const Buffer &out = program.buffers[static_cast<size_t>(output)];
    taps_ = taps_of(*conv_, in.shape, out.shape);
    outputs_ = out.shape.height * out.shape.width;
    const Reach reach = reach_of(taps_);
    in.format.top = std::max(in.format.top, reach.top);
    in.format.left = std::max(in.format.left, reach.left);
    in.format.bottom = std::max(in.format.bottom, reach.bottom - (stride_h() - 1));
    in.format.right = std::max(in.format.right, reach.right - (stride_w() - 1));
    in.clear = in.clear || conv_->padding_h > 0 || conv_->padding_w > 0;
  }

  bool mixes() const override { return true; }

  std::vector<int64_t> deal(const Program &program) const override {
    return cuts_for(taps_, program.buffers[static_cast<size_t>(output)].shape.channels, program.shares);
  }

  void prepare(const Program &program) override {
    const Buffer &out = program.buffers[static_cast<size_t>(output)];
    patches_ = patches_for(out.format, out.shape, out.clear);
    if (out.by_rows) patches_.divide(out.format, out.cuts, &Move::from);
    choose(program, usual(program));
  }

  granet_choice chosen() const override { return choice_; }

  std::vector<granet_choice> choices(const Program &program) const override {
    const Plane plane = plane_of(program);
    std::vector<granet_choice> all;
    for (int rows : {1, 4}) {
      const int most = rows == 1 ? program.kernels.accumulators : program.kernels.dense_vectors;
      std::vector<std::pair<int, int>> tiles;
      for (int h = 1; h <= tallest_tile && h <= plane.height; h++)
        for (int w = std::min<int64_t>(most / h, plane.width); w >= 1; w--) {
          const std::pair<int, int> even = {evenly(plane.height, h), evenly(plane.width, w)};
          const bool full = even.first * even.second * 2 > most || even.second == plane.width;
          if (full && std::find(tiles.begin(), tiles.end(), even) == tiles.end()) tiles.push_back(even);
        }
      for (auto [h, w] : tiles)
        for (int64_t slice : slices(program)) all.push_back({rows, h, w, static_cast<int32_t>(slice)});
    }
    return all;
  }

  void choose(const Program &program, const granet_choice &asked) override {
    const Buffer &in = program.buffers[static_cast<size_t>(input)], &out = program.buffers[static_cast<size_t>(output)];
    require(asked.rows == 1 || asked.rows == 4, "rows is " + std::to_string(asked.rows) + ", neither 1 nor 4");
    require_between("tile_h", asked.tile_h, 1, tallest_tile);
    const int most = asked.rows == 1 ? program.kernels.accumulators : program.kernels.dense_vectors;
    require_between("tile_w", asked.tile_w, 1, most / asked.tile_h);
    require_between("slice", asked.slice, 1, in.shape.channels);
    require(in.shape.channels / asked.slice < 65536, "slice is " + std::to_string(asked.slice) + ", of " +
                                                         std::to_string(in.shape.channels) + " channels: too small");
    int chained = 1;
    std::vector<std::vector<Block>> blocks;
    for (int i = 0; i < (out.by_rows ? program.shares : 1); i++)
      blocks.push_back(blocks_for(program, asked, Share{i, program.shares}.rows(out), chained));
    const std::vector<int64_t> cuts = out.by_rows ? std::vector<int64_t>{0, out.shape.channels} : out.cuts;
    Packed packed = pack(program.kernels, taps_, in.shape.channels, cuts, in.format, asked.rows == 4, asked.slice,
                         chained);
    packed_ = std::move(packed);
    blocks_ = std::move(blocks);
    choice_ = asked;
  }

  void run(const Frame &frame, int64_t block, Share share) const override {
    const Program &program = frame.program;
    const Buffer &in = program.buffers[static_cast<size_t>(input)], &out = program.buffers[static_cast<size_t>(output)];
    const int64_t bytes = out.format.vector_bytes();
    const char *from = frame.at(input, block);
    char *to = frame.at(output, block);
    const char *plus = nullptr;
    ConvArguments a{};
    a.bias = conv_->bias.data();
    a.input_row = in.format.row() * bytes * stride_h();
    a.output_row = out.format.row() * bytes;
    a.output_channel = out.format.channel_bytes();
    a.input_step = bytes * stride_w();
    a.relu = relu_;
    if (other >= 0) {
      const Format &format = program.buffers[static_cast<size_t>(other)].format;
      plus = frame.at(other, block);
      a.residual_row = format.row() * bytes;
      a.residual_channel = format.channel_bytes();
    }
    // There is one of the two for each thread, and one of the other.
    const auto groups = share.of(packed_.groups);
    const auto blocks = share.of(blocks_);
    for (auto group = groups.first; group != groups.second; group++)
      for (auto own = blocks.first; own != blocks.second; own++)
        for (const Block &part : *own) {
          a.output = to + part.output;
          a.residual = plus ? plus + part.residual : nullptr;
          for (const Slice &slice : group->slices) {
            a.input = from + part.input + slice.input;
            if (slice.four_count) {
              a.rows = packed_.four.data() + slice.four;
              a.row_count = slice.four_count;
              a.entries = packed_.of_four.get();
              part.four(a);
            }
            if (slice.one_count) {
              a.rows = packed_.one.data() + slice.one;
              a.row_count = slice.one_count;
              a.entries = packed_.of_one.get();
              part.one(a);
            }
          }
        }
    const Range channels = share.channels(out);
    const int64_t step = out.format.channel();
    char *made = to + a.output_channel * channels.begin;
    patches_.run(program.kernels, made, step, made, step, channels.count(), share.part());
  }

private:
  struct Plane {
    int64_t height, width;
    bool whole; // tiles without halo, of which rows follow each other: one row
  };

  // Along a tile's row of one vector nothing depends on the stride.
  int64_t stride_h() const { return conv_->stride_h; }
  int64_t stride_w() const { return conv_->stride_w; }

  Plane plane_of(const Program &program) const {
    const Format &in = program.buffers[static_cast<size_t>(input)].format,
                 &out = program.buffers[static_cast<size_t>(output)].format;
    const bool plain = other < 0 || program.buffers[static_cast<size_t>(other)].format.row() == out.width;
    if (stride_h() == 1 && stride_w() == 1 && in.row() == out.width && out.row() == out.width && plain)
      return {1, out.height * out.width, true};
    return {out.height, out.width, false};
  }

  static int evenly(int64_t size, int64_t most) { return static_cast<int>(ceil_div(size, ceil_div(size, most))); }

  // How many weights an output channel has in one input channel, on average.
  double of_a_channel() const {
    return static_cast<double>(taps_.size()) * static_cast<double>(conv_->groups) /
           static_cast<double>(conv_->in_channels) / static_cast<double>(conv_->out_channels);
  }

  // What entries can say, and, of halves, what sums stay exact in: their errors grow with the number of additions.
  int64_t largest_slice(const Program &program) const {
    const double additions = program.kernels.bytes == 2 ? 128 : 1e9;
    const double exact = additions / std::max(of_a_channel(), 1e-6);
    const int64_t held = program.kernels.most_vectors / program.buffers[static_cast<size_t>(input)].format.channel();
    return std::clamp(std::min(held, static_cast<int64_t>(exact)), int64_t{1}, conv_->in_channels);
  }

  std::vector<int64_t> slices(const Program &program) const {
    std::vector<int64_t> all;
    const int64_t largest = largest_slice(program);
    for (int64_t slice = 8; slice < largest; slice *= 2) all.push_back(slice);
    all.push_back(largest);
    return all;
  }

  granet_choice usual(const Program &program) const {
    const Plane plane = plane_of(program);
    const Buffer &in = program.buffers[static_cast<size_t>(input)];
    const double possible = static_cast<double>(conv_->out_channels) * static_cast<double>(conv_->in_channels) /
                            static_cast<double>(conv_->groups) *
                            static_cast<double>(conv_->kernel_h * conv_->kernel_w);
    const int rows = static_cast<double>(taps_.size()) > 0.35 * possible && conv_->out_channels / conv_->groups >= 4 ? 4 : 1;
    const int most = rows == 1 ? program.kernels.accumulators : program.kernels.dense_vectors;
    granet_choice best{rows, 1, 1, 1};
    double least = 0;
    for (int h = 1; h <= std::min(tallest_tile, most) && h <= plane.height; h++) {
      const int w = static_cast<int>(std::min<int64_t>(most / h, plane.width));
      const int even_h = evenly(plane.height, h), even_w = evenly(plane.width, w);
      // What is read of a channel for a block, and how many blocks there are.
      const double blocks = static_cast<double>(ceil_div(plane.height, even_h) * ceil_div(plane.width, even_w));
      const double cost = blocks * 2.5 + 0.02 * blocks * (even_h + 2) * (even_w + 2);
      if (least == 0 || cost < least) {
        least = cost;
        best.tile_h = even_h;
        best.tile_w = even_w;
      }
    }
    // As many channels as stay in the first cache, but enough that rows are not short.
    const int64_t window_h = best.tile_h * stride_h() + conv_->kernel_h - 1, window_w = best.tile_w * stride_w() + conv_->kernel_w - 1;
    const int64_t cached = std::max<int64_t>(1, 24576 / (window_h * window_w * in.format.vector_bytes()));
    const int64_t enough = taps_.empty() ? conv_->in_channels : static_cast<int64_t>(std::min(1e6, 16 / of_a_channel()));
    const int64_t slice = std::max({cached, enough, ceil_div(conv_->in_channels, 60000)});
    const int64_t parts = ceil_div(conv_->in_channels, std::min(slice, largest_slice(program)));
    best.slice = static_cast<int32_t>(ceil_div(conv_->in_channels, parts));
    return best;
  }

  std::vector<Block> blocks_for(const Program &program, const granet_choice &choice, Range rows, int &chained) const {
    Plane plane = plane_of(program);
    const Format &in = program.buffers[static_cast<size_t>(input)].format,
                 &out = program.buffers[static_cast<size_t>(output)].format;
    const Format &residual = other < 0 ? out : program.buffers[static_cast<size_t>(other)].format;
    const int64_t bytes = out.vector_bytes();
    std::vector<Block> blocks;
    const Place first = plane.whole ? Place{0, 0, rows.begin * out.width} : Place{0, rows.begin, 0};
    if (plane.whole) plane.width = rows.count() * out.width;
    else plane.height = rows.count();
    const int64_t down = ceil_div(plane.height, choice.tile_h), across = ceil_div(plane.width, choice.tile_w);
    require(down * across <= int64_t{1} << 24, "this many blocks are too many", GRANET_UNSUPPORTED);
    const int stride = stride_w() <= 2 ? static_cast<int>(stride_w()) : 0;
    for (int64_t i = 0; i < down; i++)
      for (int64_t j = 0; j < across; j++) {
        const int64_t y = first.y + plane.height * i / down, x = first.x + plane.width * j / across;
        const int64_t h = first.y + plane.height * (i + 1) / down - y;
        const int64_t w_end = first.x + plane.width * (j + 1) / across;
        // Kernels of any stride are narrow.
        for (int64_t at = x; at < w_end;) {
          int64_t w = w_end - at;
          ConvKernel one = nullptr, four = nullptr;
          for (; w > 0; w--) {
            one = program.kernels.conv(1, static_cast<int>(h), static_cast<int>(w), stride);
            four = choice.rows == 4 ? program.kernels.conv(4, static_cast<int>(h), static_cast<int>(w), stride) : one;
            if (one && four) break;
          }
          require(one && four, "there is no kernel for tiles of " + std::to_string(h), GRANET_INTERNAL);
          chained = std::max(chained, chains(static_cast<int>(h * w)));
          const auto from = plane.whole ? at : y * stride_h() * in.row() + at * stride_w();
          blocks.push_back({from * bytes, (plane.whole ? at + out.top * out.row() : out.line(y, at)) * bytes,
                            (plane.whole ? at + residual.top * residual.row() : residual.line(y, at)) * bytes, one,
                            four});
          at += w;
        }
      }
    return blocks;
  }

  std::shared_ptr<Conv> conv_;
  bool relu_;
  int64_t outputs_ = 0;
  std::vector<Tap> taps_;
  Moves patches_;
  granet_choice choice_{};
  Packed packed_;
  std::vector<std::vector<Block>> blocks_; // of every thread's rows, or of all
};

} // namespace

std::unique_ptr<Step> make_conv(const Node &node) { return std::make_unique<ConvStep>(node); }

} // namespace granet
