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
    const int64_t begin = share.begin(out.shape.channels), end = share.end(out.shape.channels);
    if (out.format.flat()) return add_floats(frame, block, begin * out.format.channel(), end * out.format.channel());
    const Format &to = out.format, &one = program.buffers[static_cast<size_t>(input)].format;
    const Format &two = alone_ ? one : program.buffers[static_cast<size_t>(other)].format;
    const char *left = frame.at(input, block), *right = alone_ ? nullptr : frame.at(other, block);
    char *sum = frame.at(output, block);
    const int64_t vector = to.vector_bytes();
    for (int64_t c = begin; c < end; c++)
      for (int64_t y = 0; y < to.height; y++)
        program.kernels.add(left + c * one.channel_bytes() + one.line(y, 0) * vector,
                            right ? right + c * two.channel_bytes() + two.line(y, 0) * vector : nullptr,
                            sum + c * to.channel_bytes() + to.line(y, 0) * vector, static_cast<size_t>(to.width), relu_);
    char *made = sum + begin * to.channel_bytes();
    patches_.run(program.kernels, made, to.channel(), made, to.channel(), end - begin);
  }

private:
  void add_floats(const Frame &frame, int64_t block, int64_t begin, int64_t end) const {
    const float *left = frame.floats(input, block), *right = alone_ ? nullptr : frame.floats(other, block);
    float *to = frame.floats(output, block);
    for (int64_t i = begin; i < end; i++) {
      const float sum = right ? left[i] + right[i] : left[i];
      to[i] = relu_ && sum < 0 ? 0.0f : sum;
    }
  }

  bool relu_, alone_;
  Moves patches_;
};

} // namespace

std::unique_ptr<Step> make_add(const Node &node) { return std::make_unique<AddStep>(node); }

} // namespace granet
