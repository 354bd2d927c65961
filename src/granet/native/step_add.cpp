// A sum of two values, or one value, and ReLU.
#include "program.hpp"

namespace granet {
namespace {

class AddStep final : public Step {
public:
  explicit AddStep(const Node &node) : relu_(node.relu), alone_(node.other < 0) {}
  const char *kind() const override { return alone_ ? "relu" : "add"; }

  void prepare(const Program &program) override {
    const Buffer &out = program.buffers[static_cast<size_t>(output)];
    if (!out.format.flat()) patches_ = patches_for(out.format, out.shape, out.clear);
  }

  void run(const Frame &frame, int64_t block, Share share) const override {
    const Program &program = frame.program;
    const Buffer &out = program.buffers[static_cast<size_t>(output)];
    const Format &to = out.format, &one = program.buffers[static_cast<size_t>(input)].format;
    const Format &two = alone_ ? one : program.buffers[static_cast<size_t>(other)].format;
    const float *left = frame.at(input, block), *right = alone_ ? nullptr : frame.at(other, block);
    float *sum = frame.at(output, block);
    const int lanes = to.lanes;
    for (int64_t c = share.begin(out.shape.channels); c < share.end(out.shape.channels); c++)
      for (int64_t y = 0; y < to.height; y++)
        program.kernels.add(left + (c * one.channel() + one.line(y, 0)) * lanes,
                            right ? right + (c * two.channel() + two.line(y, 0)) * lanes : nullptr,
                            sum + (c * to.channel() + to.line(y, 0)) * lanes, static_cast<size_t>(to.width * lanes),
                            relu_);
    const int64_t begin = share.begin(out.shape.channels), end = share.end(out.shape.channels);
    if (!patches_.list.empty())
      program.kernels.patch({sum + begin * to.channel() * lanes, static_cast<size_t>(end - begin), to.channel(),
                             patches_.list.data(), patches_.list.size(), patches_.permutations.get(),
                             patches_.masks.get()});
  }

private:
  bool relu_, alone_;
  Patches patches_;
};

} // namespace

std::unique_ptr<Step> make_add(const Node &node) { return std::make_unique<AddStep>(node); }

} // namespace granet
