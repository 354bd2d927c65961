// A matrix by one column: a linear layer, or a convolution of maps so small that all its products fit into a matrix.
#include "packing.hpp"
#include "program.hpp"

#include <algorithm>
#include <numeric>

namespace granet {
namespace {

// Rows of about as many weights side by side, one in each lane. Lanes that have fewer than others go on with a weight of
// zero where their last one was: no number is read that was not.
class DotStep final : public Step {
public:
  DotStep(const Node &node, const Kernels &kernels) : conv_(node.conv), relu_(node.relu) {
    const auto inside = static_cast<uint32_t>(conv_->in_channels / conv_->groups);
    const auto out_group = static_cast<size_t>(conv_->out_channels / conv_->groups);
    const auto outs = static_cast<size_t>(conv_->out_channels), lanes = static_cast<size_t>(kernels.dot_rows);
    std::vector<size_t> starts(outs + 1);
    for (uint32_t position : conv_->positions) starts[position / inside + 1]++;
    std::partial_sum(starts.begin(), starts.end(), starts.begin());
    order_.resize(outs);
    std::iota(order_.begin(), order_.end(), uint32_t{0});
    const auto count = [&](uint32_t row) { return starts[row + 1] - starts[row]; };
    std::stable_sort(order_.begin(), order_.end(), [&](uint32_t a, uint32_t b) { return count(a) > count(b); });
    std::vector<uint32_t> columns;
    std::vector<float> values;
    for (size_t first = 0; first < outs; first += lanes) {
      groups_.push_back({columns.size(), count(order_[first])});
      for (size_t i = 0; i < groups_.back().count; i++)
        for (size_t lane = 0; lane < lanes; lane++) {
          const uint32_t row = order_[first + lane < outs && count(order_[first + lane]) ? first + lane : first];
          const bool there = row == order_[std::min(first + lane, outs - 1)] && i < count(row);
          const size_t at = starts[row] + std::min(i, count(row) - 1);
          columns.push_back(conv_->positions[at] % inside + row / static_cast<uint32_t>(out_group) * inside);
          values.push_back(there ? conv_->values[at] : 0.0f);
        }
    }
    columns_ = aligned_copy(columns);
    values_ = aligned_copy(values);
    bytes_ = static_cast<int64_t>(columns.size() * 8 + order_.size() * 4 + groups_.size() * sizeof(Group));
  }
  const char *kind() const override { return "linear"; }
  int64_t weights() const override { return static_cast<int64_t>(conv_->values.size()); }
  int64_t multiply_adds() const override { return weights(); }
  int64_t bytes() const override { return bytes_; }

  void run(const Frame &frame, int64_t block, Share share) const override {
    const Kernels &kernels = frame.program.kernels;
    const float *x = frame.floats(input, block), *plus = other >= 0 ? frame.floats(other, block) : nullptr;
    float *y = frame.floats(output, block);
    float sums[most_dot_rows];
    const auto lanes = static_cast<size_t>(kernels.dot_rows);
    for (int64_t g = share.begin(static_cast<int64_t>(groups_.size())); g < share.end(static_cast<int64_t>(groups_.size())); g++) {
      const Group &group = groups_[static_cast<size_t>(g)];
      kernels.dot(x, columns_.get() + group.start, values_.get() + group.start, group.count, sums);
      const size_t first = static_cast<size_t>(g) * lanes, end = std::min(first + lanes, order_.size());
      for (size_t i = first; i < end; i++) {
        const uint32_t row = order_[i];
        float total = sums[i - first] + conv_->bias[row];
        if (plus) total += plus[row];
        y[row] = relu_ && total < 0 ? 0.0f : total;
      }
    }
  }

private:
  struct Group {
    size_t start, count; // in columns, of each row
  };
  std::shared_ptr<Conv> conv_;
  bool relu_;
  std::vector<uint32_t> order_; // rows, those with most weights first
  std::vector<Group> groups_;
  Aligned<uint32_t> columns_;
  Aligned<float> values_;
  int64_t bytes_ = 0;
};

} // namespace

std::unique_ptr<Step> make_dot(const Node &node, const Kernels &kernels) {
  return std::make_unique<DotStep>(node, kernels);
}

std::shared_ptr<Conv> as_matrix(const Conv &conv, const Shape &input, const Shape &output) {
  struct Entry {
    uint32_t position;
    float value;
  };
  std::vector<Entry> entries;
  const int64_t columns = input.size();
  for (const Tap &tap : taps_of(conv, input, output))
    for (int64_t y = 0; y < output.height; y++)
      for (int64_t x = 0; x < output.width; x++) {
        const int64_t from_y = y * conv.stride_h + tap.y, from_x = x * conv.stride_w + tap.x;
        if (from_y < 0 || from_y >= input.height || from_x < 0 || from_x >= input.width) continue;
        const int64_t row = (tap.out * output.height + y) * output.width + x;
        const int64_t column = (tap.in * input.height + from_y) * input.width + from_x;
        entries.push_back({static_cast<uint32_t>(row * columns + column), tap.value});
      }
  std::sort(entries.begin(), entries.end(), [](const Entry &a, const Entry &b) { return a.position < b.position; });
  auto matrix = std::make_shared<Conv>();
  *matrix = {output.size(), columns, 1, 1, 1, 1, 0, 0, 1, 1, 1, {}, {}, {}};
  for (const Entry &entry : entries) {
    matrix->positions.push_back(entry.position);
    matrix->values.push_back(entry.value);
  }
  for (float bias : conv.bias) matrix->bias.insert(matrix->bias.end(), static_cast<size_t>(output.height * output.width), bias);
  return matrix;
}

} // namespace granet
