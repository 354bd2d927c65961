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
    if (out.by_rows) patches_.divide(out.format, out.cuts, &Move::from);
  }

  void run(const Frame &frame, int64_t block, Share share) const override {
    const Program &program = frame.program;
    const Buffer &out = program.buffers[static_cast<size_t>(output)];
    const Range channels = share.channels(out), rows = share.rows(out);
    if (out.format.flat())
      return add_floats(frame, block, channels.begin * out.format.channel(), channels.end * out.format.channel());
    const Format &to = out.format, &one = program.buffers[static_cast<size_t>(input)].format;
    const Format &two = alone_ ? one : program.buffers[static_cast<size_t>(other)].format;
    const char *left = frame.at(input, block), *right = alone_ ? nullptr : frame.at(other, block);
    char *sum = frame.at(output, block);
    const int64_t vector = to.vector_bytes();
    for (int64_t c = channels.begin; c < channels.end; c++)
      for (int64_t y = rows.begin; y < rows.end; y++)
        program.kernels.add(left + c * one.channel_bytes() + one.line(y, 0) * vector,
                            right ? right + c * two.channel_bytes() + two.line(y, 0) * vector : nullptr,
                            sum + c * to.channel_bytes() + to.line(y, 0) * vector, static_cast<size_t>(to.width), relu_);
    char *made = sum + channels.begin * to.channel_bytes();
    patches_.run(program.kernels, made, to.channel(), made, to.channel(), channels.count(), share.part());
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
