// A linear layer of one column: a dot product for each row of the matrix.
#include "program.hpp"

namespace granet {
namespace {

class DotStep final : public Step {
public:
  explicit DotStep(const Node &node) : conv_(node.conv), relu_(node.relu) {
    const auto inside = static_cast<uint32_t>(conv_->in_channels / conv_->groups);
    const auto out_group = static_cast<size_t>(conv_->out_channels / conv_->groups);
    const auto outs = static_cast<size_t>(conv_->out_channels);
    starts_.assign(outs + 1, 0);
    columns_.reserve(conv_->positions.size());
    for (uint32_t position : conv_->positions) {
      const size_t row = position / inside;
      starts_[row + 1]++;
      columns_.push_back(position % inside + static_cast<uint32_t>(row / out_group) * inside);
    }
    for (size_t row = 0; row < outs; row++) starts_[row + 1] += starts_[row];
  }
  const char *kind() const override { return "linear"; }
  int64_t weights() const override { return static_cast<int64_t>(columns_.size()); }
  int64_t multiply_adds() const override { return weights(); }
  int64_t bytes() const override { return weights() * 8 + static_cast<int64_t>(starts_.size() * 8); }

  void run(const Frame &frame, int64_t block, Share share) const override {
    const float *x = frame.floats(input, block), *plus = other >= 0 ? frame.floats(other, block) : nullptr;
    const float *weight = conv_->values.data();
    const uint32_t *column = columns_.data();
    float *y = frame.floats(output, block);
    for (int64_t row = share.begin(conv_->out_channels); row < share.end(conv_->out_channels); row++) {
      const auto r = static_cast<size_t>(row);
      const size_t end = starts_[r + 1];
      size_t i = starts_[r];
      float one = conv_->bias[r], two = 0, three = 0, four = 0; // chains: no addition waits for the one before it
      for (; i + 4 <= end; i += 4) {
        one += weight[i] * x[column[i]];
        two += weight[i + 1] * x[column[i + 1]];
        three += weight[i + 2] * x[column[i + 2]];
        four += weight[i + 3] * x[column[i + 3]];
      }
      for (; i < end; i++) one += weight[i] * x[column[i]];
      float total = (one + two) + (three + four);
      if (plus) total += plus[row];
      y[row] = relu_ && total < 0 ? 0.0f : total;
    }
  }

private:
  std::shared_ptr<Conv> conv_;
  bool relu_;
  std::vector<size_t> starts_;
  std::vector<uint32_t> columns_;
};

} // namespace

std::unique_ptr<Step> make_dot(const Node &node) { return std::make_unique<DotStep>(node); }

} // namespace granet
