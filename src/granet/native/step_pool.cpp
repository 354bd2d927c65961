// Maxima and means of windows, and of whole maps.
#include "aligned.hpp"
#include "program.hpp"

#include <algorithm>

namespace granet {
namespace {

class PoolStep final : public Step {
public:
  explicit PoolStep(const Node &node) : pool_(node.pool) {}
  const char *kind() const override { return pool_.kind == GRANET_POOL_MAX ? "max pool" : "average pool"; }
  int64_t bytes() const override {
    return static_cast<int64_t>(taps_.size() * sizeof(PoolTap) + to_.size() * 4);
  }

  void demand(Program &program) override {
    Format &in = program.buffers[static_cast<size_t>(input)].format;
    in.top = std::max(in.top, pool_.padding_h);
    in.left = std::max(in.left, pool_.padding_w);
    in.bottom = std::max(in.bottom, pool_.kernel_h - pool_.padding_h - pool_.stride_h);
    in.right = std::max(in.right, pool_.kernel_w - pool_.padding_w - pool_.stride_w);
  }

  void prepare(const Program &program) override {
    const Buffer &in = program.buffers[static_cast<size_t>(input)], &out = program.buffers[static_cast<size_t>(output)];
    const Format &f = out.format;
    const auto lanes = static_cast<size_t>(f.lanes);
    require(static_cast<double>(f.height * f.width) * static_cast<double>(pool_.kernel_h * pool_.kernel_w) < 1 << 26,
            "windows of " + std::to_string(pool_.kernel_h) + "x" + std::to_string(pool_.kernel_w) + " are too large",
            GRANET_UNSUPPORTED);
    patches_ = patches_for(f, out.shape, out.clear);
    if (out.by_rows) patches_.divide(f, out.cuts, &Move::from);
    LaneTable masks(f.lanes);
    std::vector<float> scales;
    std::vector<int32_t> mask(lanes);
    for (int64_t y = 0; y < f.height; y++)
      for (int64_t x = 0; x < f.width; x++) {
        to_.push_back(static_cast<uint32_t>(f.line(y, x)));
        std::vector<int> read(lanes, 0);
        for (int64_t ky = 0; ky < pool_.kernel_h; ky++)
          for (int64_t kx = 0; kx < pool_.kernel_w; kx++) {
            const int64_t from_y = y * pool_.stride_h + ky - pool_.padding_h,
                          from_x = x * pool_.stride_w + kx - pool_.padding_w;
            bool whole = true;
            for (size_t lane = 0; lane < lanes; lane++) {
              Place there, here;
              const bool inside = find(in.format, in.shape, from_y, from_x, static_cast<int>(lane), there);
              // Lanes without an output take what there is.
              const bool used = find(f, out.shape, y, x, static_cast<int>(lane), here);
              mask[lane] = inside || !used ? -1 : 0;
              read[lane] += inside;
              whole = whole && mask[lane];
            }
            const auto line = static_cast<uint32_t>(in.format.line(from_y, from_x));
            taps_.push_back({line, whole ? -1 : static_cast<int32_t>(masks.add(mask))});
          }
        if (pool_.kind == GRANET_POOL_AVERAGE)
          for (size_t lane = 0; lane < lanes; lane++)
            scales.push_back(1.0f / static_cast<float>(pool_.count_padding ? pool_.kernel_h * pool_.kernel_w
                                                                            : std::max(1, read[lane])));
      }
    scales_ = aligned_copy(scales);
    masks_ = masks.kept(in.format.bytes);
  }

  void run(const Frame &frame, int64_t block, Share share) const override {
    const Program &program = frame.program;
    const Buffer &in = program.buffers[static_cast<size_t>(input)], &out = program.buffers[static_cast<size_t>(output)];
    const Range channels = share.channels(out), rows = share.rows(out);
    const int64_t in_step = in.format.channel(), out_step = out.format.channel();
    char *to = frame.at(output, block) + channels.begin * out.format.channel_bytes();
    const auto first = static_cast<size_t>(rows.begin * out.format.width);
    const auto taps = static_cast<size_t>(pool_.kernel_h * pool_.kernel_w);
    program.kernels.pool({frame.at(input, block) + channels.begin * in.format.channel_bytes(), to,
                          static_cast<size_t>(channels.count()), in_step, out_step, to_.data() + first,
                          taps_.data() + first * taps, static_cast<size_t>(rows.count() * out.format.width), taps,
                          masks_.get(),
                          pool_.kind == GRANET_POOL_AVERAGE
                              ? scales_.get() + first * static_cast<size_t>(out.format.lanes)
                              : nullptr});
    patches_.run(program.kernels, to, out_step, to, out_step, channels.count(), share.part());
  }

private:
  Pool pool_;
  Moves patches_;
  std::vector<uint32_t> to_;
  std::vector<PoolTap> taps_;
  Aligned<float> scales_;
  Aligned<char> masks_;
};

class GlobalPoolStep final : public Step {
public:
  explicit GlobalPoolStep(const Node &node) : mean_(node.pool.kind == GRANET_POOL_AVERAGE) {}
  const char *kind() const override { return mean_ ? "global mean" : "global maximum"; }

  void prepare(const Program &program) override {
    const Buffer &in = program.buffers[static_cast<size_t>(input)];
    const Format &f = in.format;
    LaneTable masks(f.lanes);
    std::vector<int32_t> mask(static_cast<size_t>(f.lanes));
    for (int64_t y = 0; y < f.height; y++)
      for (int64_t x = 0; x < f.width; x++) {
        bool whole = true;
        for (int lane = 0; lane < f.lanes; lane++) {
          Place place;
          const bool inside = find(f, in.shape, y, x, lane, place);
          mask[static_cast<size_t>(lane)] = inside ? -1 : 0;
          whole = whole && inside;
        }
        taps_.push_back({static_cast<uint32_t>(f.line(y, x)), whole ? -1 : static_cast<int32_t>(masks.add(mask))});
      }
    masks_ = masks.kept(f.bytes);
  }

  void run(const Frame &frame, int64_t block, Share share) const override {
    const Program &program = frame.program;
    const Buffer &in = program.buffers[static_cast<size_t>(input)];
    const Format &f = in.format;
    const int64_t images = std::min<int64_t>(f.images(), frame.valid - block * f.images());
    const Range channels = share.channels(program.buffers[static_cast<size_t>(output)]);
    program.kernels.reduce({frame.at(input, block) + channels.begin * f.channel_bytes(),
                            frame.floats(output, block * f.images()) + channels.begin,
                            static_cast<size_t>(channels.count()),
                            f.channel(), in.shape.channels, taps_.data(), taps_.size(), masks_.get(),
                            static_cast<int>(images), f.grid_h * f.grid_w,
                            mean_ ? 1.0f / static_cast<float>(in.shape.height * in.shape.width) : 0.0f});
  }

private:
  bool mean_;
  std::vector<PoolTap> taps_;
  Aligned<char> masks_;
};

} // namespace

std::unique_ptr<Step> make_pool(const Node &node) { return std::make_unique<PoolStep>(node); }
std::unique_ptr<Step> make_global_pool(const Node &node) { return std::make_unique<GlobalPoolStep>(node); }

} // namespace granet
