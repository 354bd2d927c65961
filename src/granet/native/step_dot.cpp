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
    const auto out_group = static_cast<uint32_t>(conv_->out_channels / conv_->groups);
    const auto outs = static_cast<size_t>(conv_->out_channels), lanes = static_cast<size_t>(kernels.dot_rows);
    std::vector<size_t> starts(outs + 1);
    for (uint32_t position : conv_->positions) starts[position / inside + 1]++;
    std::partial_sum(starts.begin(), starts.end(), starts.begin());
    const auto count = [&](uint32_t row) { return starts[row + 1] - starts[row]; };
    for (uint32_t row = 0; row < outs; row++) (count(row) ? rows_ : empty_).push_back(row);
    const size_t near = 16 * lanes; // enough to find rows alike among; others are for other threads, in other cache lines
    for (size_t first = 0; first < rows_.size(); first += near)
      std::stable_sort(rows_.begin() + static_cast<ptrdiff_t>(first),
                       rows_.begin() + static_cast<ptrdiff_t>(std::min(first + near, rows_.size())),
                       [&](uint32_t a, uint32_t b) { return count(a) > count(b); });
    std::vector<uint32_t> columns;
    std::vector<float> values;
    for (size_t first = 0; first < rows_.size(); first += lanes) {
      groups_.push_back({columns.size(), count(rows_[first])});
      for (size_t i = 0; i < groups_.back().count; i++)
        for (size_t lane = first; lane < first + lanes; lane++) {
          const uint32_t row = rows_[std::min(lane, rows_.size() - 1)]; // past the last row its sum is not used
          const size_t at = starts[row] + std::min(i, count(row) - 1);
          columns.push_back(conv_->positions[at] % inside + row / out_group * inside);
          values.push_back(i < count(row) ? conv_->values[at] : 0.0f);
        }
    }
    columns_ = aligned_copy(columns);
    values_ = aligned_copy(values);
    bytes_ = static_cast<int64_t>(columns.size() * 8 + outs * 4 + groups_.size() * sizeof(Group));
  }
  const char *kind() const override { return "linear"; }
  int64_t weights() const override { return static_cast<int64_t>(conv_->values.size()); }
  int64_t multiply_adds() const override { return weights(); }
  int64_t bytes() const override { return bytes_; }

  void run(const Frame &frame, int64_t block, Share share) const override {
    const Kernels &kernels = frame.program.kernels;
    const float *x = frame.floats(input, block), *plus = other >= 0 ? frame.floats(other, block) : nullptr;
    float *y = frame.floats(output, block);
    const auto give = [&](uint32_t row, float sum) {
      float total = sum + conv_->bias[row];
      if (plus) total += plus[row];
      y[row] = relu_ && total < 0 ? 0.0f : total;
    };
    float sums[most_dot_rows];
    const auto lanes = static_cast<size_t>(kernels.dot_rows);
    const auto groups = static_cast<int64_t>(groups_.size());
    for (auto g = static_cast<size_t>(share.begin(groups)); g < static_cast<size_t>(share.end(groups)); g++) {
      kernels.dot(x, columns_.get() + groups_[g].start, values_.get() + groups_[g].start, groups_[g].count, sums);
      const size_t first = g * lanes, end = std::min(first + lanes, rows_.size());
      for (size_t i = first; i < end; i++) give(rows_[i], sums[i - first]);
    }
    if (share.index == 0)
      for (uint32_t row : empty_) give(row, 0.0f);
  }

private:
  struct Group {
    size_t start, count; // in columns, and of each row
  };
  std::shared_ptr<Conv> conv_;
  bool relu_;
  std::vector<uint32_t> rows_, empty_; // of those near each other the ones with most weights first; those without any
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
  const auto places = static_cast<size_t>(output.height * output.width);
  for (float bias : conv.bias) matrix->bias.insert(matrix->bias.end(), places, bias);
  return matrix;
}

} // namespace granet
