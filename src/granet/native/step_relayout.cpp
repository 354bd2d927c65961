// From one layout to another: the caller's arrays to tiles and back, and between tiles.
#include "program.hpp"

#include <algorithm>
#include <cstring>

namespace granet {
namespace {

class RelayoutStep final : public Step {
public:
  RelayoutStep(int64_t step_h, int64_t step_w) : step_h_(step_h), step_w_(step_w) {}
  const char *kind() const override { return "layout"; }
  int64_t bytes() const override {
    size_t all = 0;
    for (const auto *tables : {&whole_, &last_})
      for (const auto &table : *tables) all += table.size() * 4;
    return static_cast<int64_t>(all);
  }

  void prepare(const Program &program) override {
    const Buffer &in = program.buffers[static_cast<size_t>(input)], &out = program.buffers[static_cast<size_t>(output)];
    same_ = in.format == out.format && in.shape == out.shape;
    if (same_) return;
    const int from = in.format.images(), to = out.format.images();
    period_ = std::max(1, from / to);
    whole_ = tables(in, out, to);
    const auto valid = static_cast<int>(program.valid(program.chunks() - 1) % to);
    if (valid) last_ = tables(in, out, valid);
  }

  void run(const Frame &frame, int64_t block, Share share) const override {
    const Program &program = frame.program;
    const Buffer &in = program.buffers[static_cast<size_t>(input)], &out = program.buffers[static_cast<size_t>(output)];
    const int64_t images = out.format.images(), first = block / period_ * period_ * images;
    const float *from = frame.at(input, first / in.format.images());
    float *to = frame.at(output, block);
    const int64_t channels = out.shape.channels, begin = share.begin(channels), end = share.end(channels);
    if (same_) {
      const int64_t step = in.format.channel() * in.format.lanes;
      std::memcpy(to + begin * step, from + begin * step, static_cast<size_t>((end - begin) * step) * sizeof(float));
      return;
    }
    const bool partial = !last_.empty() && frame.valid - block * images < images;
    const auto &table = (partial ? last_ : whole_)[static_cast<size_t>(block % period_)];
    const int64_t in_step = in.format.channel() * in.format.lanes, out_step = out.format.channel() * out.format.lanes;
    for (int64_t c = begin; c < end; c++)
      program.kernels.gather(from + c * in_step, to + c * out_step, table.data(), table.size());
  }

private:
  // For each block of a period, where every number of a channel comes from.
  std::vector<std::vector<int32_t>> tables(const Buffer &in, const Buffer &out, int valid) const {
    const Format &f = out.format;
    const int64_t of_block = in.format.block(in.shape);
    std::vector<std::vector<int32_t>> all;
    for (int block = 0; block < period_; block++) {
      std::vector<int32_t> table(static_cast<size_t>(f.lines() * f.lanes), -1);
      for (int64_t y = -f.top; y < f.height + f.bottom; y++)
        for (int64_t x = -f.left; x < f.width + f.right; x++)
          for (int lane = 0; lane < f.lanes; lane++) {
            Place place;
            if (!find(f, out.shape, y, x, lane, place) || place.image >= valid) continue;
            const int64_t image = place.image + int64_t{block} * f.images(), of_in = in.format.images();
            const int64_t index = image / of_in * of_block +
                                  index_of(in.format, {image % of_in, place.y * step_h_, place.x * step_w_});
            require(index <= INT32_MAX, "a value is too large for this batch", GRANET_UNSUPPORTED);
            table[static_cast<size_t>(f.line(y, x) * f.lanes + lane)] = static_cast<int32_t>(index);
          }
      all.push_back(std::move(table));
    }
    return all;
  }

  int64_t step_h_, step_w_;
  bool same_ = false;
  int period_ = 1;
  std::vector<std::vector<int32_t>> whole_, last_;
};

} // namespace

std::unique_ptr<Step> make_relayout(int64_t step_h, int64_t step_w) {
  return std::make_unique<RelayoutStep>(step_h, step_w);
}

} // namespace granet
