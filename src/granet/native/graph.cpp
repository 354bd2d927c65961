#include "graph.hpp"

#include <cmath>

namespace granet {
namespace {

constexpr int64_t most_elements = (int64_t{1} << 31) - 1; // of a value, for one image
constexpr int64_t most_along_axis = int64_t{1} << 28, most_along_kernel = 4096, most_nodes = 10000;

bool flag(const char *name, int64_t value) {
  require_between(name, value, 0, 1);
  return value == 1;
}

Shape checked(Shape shape) {
  require_between("channels", shape.channels, 1, most_along_axis);
  require_between("height", shape.height, 1, most_along_axis);
  require_between("width", shape.width, 1, most_along_axis);
  require(shape.channels * shape.height <= most_elements && shape.size() <= most_elements,
          "a value of " + text(shape) + " is too large", GRANET_UNSUPPORTED);
  return shape;
}

int64_t windows(const char *axis, int64_t size, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation) {
  const int64_t reach = dilation * (kernel - 1) + 1, room = size + 2 * padding - reach;
  require(room >= 0, std::string("a kernel that reaches over ") + std::to_string(reach) + " is larger than the " + axis +
                         " of its input with padding, " + std::to_string(size + 2 * padding));
  return room / stride + 1;
}

void check_weights(const granet_conv &asked, int64_t total) {
  require(total <= (int64_t{1} << 32), "a layer of " + std::to_string(total) + " weights is too large",
          GRANET_UNSUPPORTED);
  require_between("count", asked.count, 0, total);
  require(asked.count == 0 || (asked.positions && asked.values), "positions or values are missing");
  for (int64_t i = 0; i < asked.count; i++) {
    const auto at = [i] { return "[" + std::to_string(i) + "]"; };
    if (asked.positions[i] >= static_cast<uint64_t>(total))
      throw Refusal(GRANET_INVALID, "positions" + at() + " is " + std::to_string(asked.positions[i]) + ", of " +
                                        std::to_string(total) + " weights");
    if (i && asked.positions[i] <= asked.positions[i - 1])
      throw Refusal(GRANET_INVALID, "positions" + at() + " is " + std::to_string(asked.positions[i]) + " after " +
                                        std::to_string(asked.positions[i - 1]) + ", not ascending");
    if (!std::isfinite(asked.values[i]))
      throw Refusal(GRANET_INVALID, "values" + at() + " is " + std::to_string(asked.values[i]) + ", not finite");
  }
  for (int64_t i = 0; asked.bias && i < asked.out_channels; i++)
    if (!std::isfinite(asked.bias[i]))
      throw Refusal(GRANET_INVALID, "bias[" + std::to_string(i) + "] is " + std::to_string(asked.bias[i]) +
                                        ", not finite");
}

} // namespace

std::string text(const Shape &shape) {
  return std::to_string(shape.channels) + "x" + std::to_string(shape.height) + "x" + std::to_string(shape.width);
}

Graph::Graph(int64_t batch, int64_t threads) : batch(batch), threads(threads) {
  require_between("batch", batch, 1, 65536);
  require_between("threads", threads, 1, 256);
}

const Node &Graph::node(const char *name, int32_t value) const {
  require(value >= 0 && static_cast<size_t>(value) < nodes.size(),
          std::string(name) + " is " + std::to_string(value) + ", and the plan has " + std::to_string(nodes.size()) +
              " values");
  return nodes[static_cast<size_t>(value)];
}

int32_t Graph::append(Node node) {
  require(nodes.size() < most_nodes, "a plan has at most " + std::to_string(most_nodes) + " values", GRANET_UNSUPPORTED);
  node.shape = checked(node.shape);
  nodes.push_back(std::move(node));
  return static_cast<int32_t>(nodes.size() - 1);
}

int32_t Graph::input(int64_t channels, int64_t height, int64_t width) {
  Node made{Kind::input, {channels, height, width}};
  const int32_t value = append(std::move(made));
  inputs.push_back(value);
  return value;
}

int32_t Graph::conv(const granet_conv &asked) {
  const Shape in = node("input", asked.input).shape;
  require_between("out_channels", asked.out_channels, 1, int64_t{1} << 22);
  require_between("kernel_h", asked.kernel_h, 1, most_along_kernel);
  require_between("kernel_w", asked.kernel_w, 1, most_along_kernel);
  require_between("stride_h", asked.stride_h, 1, most_along_kernel);
  require_between("stride_w", asked.stride_w, 1, most_along_kernel);
  require_between("padding_h", asked.padding_h, 0, most_along_kernel);
  require_between("padding_w", asked.padding_w, 0, most_along_kernel);
  require_between("dilation_h", asked.dilation_h, 1, most_along_kernel);
  require_between("dilation_w", asked.dilation_w, 1, most_along_kernel);
  require_between("groups", asked.groups, 1, in.channels);
  const std::string of_groups = ", not a multiple of groups, " + std::to_string(asked.groups);
  require(in.channels % asked.groups == 0, "the input has " + std::to_string(in.channels) + " channels" + of_groups);
  require(asked.out_channels % asked.groups == 0, "out_channels is " + std::to_string(asked.out_channels) + of_groups);
  Node made{Kind::conv,
            {asked.out_channels,
             windows("height", in.height, asked.kernel_h, asked.stride_h, asked.padding_h, asked.dilation_h),
             windows("width", in.width, asked.kernel_w, asked.stride_w, asked.padding_w, asked.dilation_w)}};
  checked(made.shape);
  made.input = asked.input;
  made.other = asked.residual;
  made.relu = flag("relu", asked.relu);
  require(asked.residual >= -1, "residual is " + std::to_string(asked.residual) + ", neither a value nor -1");
  if (asked.residual >= 0) {
    const Shape other = node("residual", asked.residual).shape;
    require(other == made.shape, "the residual is " + text(other) + ", and the output " + text(made.shape));
  }
  const int64_t inside = asked.out_channels * (in.channels / asked.groups), window = asked.kernel_h * asked.kernel_w;
  require(inside <= (int64_t{1} << 32) && window <= (int64_t{1} << 24), "a layer of this many weights is too large",
          GRANET_UNSUPPORTED);
  check_weights(asked, inside * window);
  made.conv = std::make_shared<Conv>(Conv{asked.out_channels, in.channels, asked.kernel_h, asked.kernel_w,
                                          asked.stride_h, asked.stride_w, asked.padding_h, asked.padding_w,
                                          asked.dilation_h, asked.dilation_w, asked.groups, {}, {}, {}});
  for (int64_t i = 0; i < asked.count; i++)
    if (asked.values[i] != 0) {
      made.conv->positions.push_back(asked.positions[i]);
      made.conv->values.push_back(asked.values[i]);
    }
  made.conv->bias.assign(static_cast<size_t>(asked.out_channels), 0.0f);
  if (asked.bias) made.conv->bias.assign(asked.bias, asked.bias + asked.out_channels);
  return append(std::move(made));
}

int32_t Graph::linear(const granet_conv &asked) {
  const Shape in = node("input", asked.input).shape;
  require(in.height == 1 && in.width == 1, "a linear layer's input is " + text(in) + ": flatten it");
  return conv(asked);
}

int32_t Graph::pool(const granet_pool &asked) {
  const Shape in = node("input", asked.input).shape;
  require_between("kind", asked.kind, GRANET_POOL_MAX, GRANET_POOL_AVERAGE);
  require_between("kernel_h", asked.kernel_h, 1, most_along_kernel);
  require_between("kernel_w", asked.kernel_w, 1, most_along_kernel);
  require_between("stride_h", asked.stride_h, 1, most_along_kernel);
  require_between("stride_w", asked.stride_w, 1, most_along_kernel);
  require_between("padding_h", asked.padding_h, 0, asked.kernel_h / 2);
  require_between("padding_w", asked.padding_w, 0, asked.kernel_w / 2);
  Node made{Kind::pool,
            {in.channels, windows("height", in.height, asked.kernel_h, asked.stride_h, asked.padding_h, 1),
             windows("width", in.width, asked.kernel_w, asked.stride_w, asked.padding_w, 1)}};
  made.input = asked.input;
  made.pool = {asked.kind,      asked.kernel_h,  asked.kernel_w,  asked.stride_h,
               asked.stride_w, asked.padding_h, asked.padding_w, flag("count_padding", asked.count_padding)};
  return append(std::move(made));
}

int32_t Graph::global_pool(int32_t input, int32_t kind) {
  const Shape in = node("input", input).shape;
  require_between("kind", kind, GRANET_POOL_MAX, GRANET_POOL_AVERAGE);
  Node made{Kind::global_pool, {in.channels, 1, 1}};
  made.input = input;
  made.pool = {kind, in.height, in.width, 1, 1, 0, 0, false};
  return append(std::move(made));
}

int32_t Graph::add(int32_t left, int32_t right, bool relu) {
  const Shape one = node("left", left).shape, other = node("right", right).shape;
  require(one == other, "left is " + text(one) + ", and right " + text(other));
  Node made{Kind::add, one};
  made.input = left;
  made.other = right;
  made.relu = relu;
  return append(std::move(made));
}

int32_t Graph::relu(int32_t input) {
  Node made{Kind::relu, node("input", input).shape};
  made.input = input;
  made.relu = true;
  return append(std::move(made));
}

int32_t Graph::flatten(int32_t input) {
  Node made{Kind::flatten, {node("input", input).shape.size(), 1, 1}};
  made.input = input;
  return append(std::move(made));
}

void Graph::output(int32_t value) {
  node("value", value);
  require(outputs.size() < most_nodes, "too many outputs", GRANET_UNSUPPORTED);
  outputs.push_back(value);
}

} // namespace granet
