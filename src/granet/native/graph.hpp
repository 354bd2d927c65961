// What is to be computed: values and the operations between them, each checked as it is added. No layouts here.
#pragma once
#include "refusal.hpp"

#include <memory>
#include <vector>

namespace granet {

struct Shape {
  int64_t channels, height, width;
  int64_t size() const { return channels * height * width; }
  bool operator==(const Shape &o) const { return channels == o.channels && height == o.height && width == o.width; }
};
std::string text(const Shape &shape);

enum class Kind { input, conv, pool, global_pool, add, relu, flatten };

// A convolution's numbers, and the weights that are not zero.
struct Conv {
  int64_t out_channels, in_channels, kernel_h, kernel_w, stride_h, stride_w, padding_h, padding_w, dilation_h,
      dilation_w, groups;
  std::vector<uint32_t> positions;
  std::vector<float> values, bias;
  bool pointwise() const { return kernel_h == 1 && kernel_w == 1 && padding_h == 0 && padding_w == 0; }
};

struct Pool {
  int kind;
  int64_t kernel_h, kernel_w, stride_h, stride_w, padding_h, padding_w;
  bool count_padding;
};

// An operation, and the value that it makes: both have the same number.
struct Node {
  Kind kind;
  Shape shape;
  int32_t input = -1, other = -1; // `other`: of an addition, or a convolution's residual
  bool relu = false;
  std::shared_ptr<Conv> conv = nullptr;
  Pool pool = {};
};

class Graph {
public:
  Graph(int64_t batch, int64_t threads);
  int32_t input(int64_t channels, int64_t height, int64_t width);
  int32_t conv(const granet_conv &asked);
  int32_t linear(const granet_conv &asked);
  int32_t pool(const granet_pool &asked);
  int32_t global_pool(int32_t input, int32_t kind);
  int32_t add(int32_t left, int32_t right, bool relu);
  int32_t relu(int32_t input);
  int32_t flatten(int32_t input);
  void output(int32_t value);
  const Node &node(const char *name, int32_t value) const;

  const int64_t batch, threads;
  std::vector<Node> nodes;
  std::vector<int32_t> inputs, outputs;

private:
  int32_t append(Node node);
};

} // namespace granet
