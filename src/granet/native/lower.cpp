// Chooses the tiles of every value, and where values change from one layout to another.
#include "program.hpp"

#include <algorithm>
#include <map>

namespace granet {
namespace {

class Lowering {
public:
  Lowering(const Graph &graph, Program &program) : graph_(graph), program_(program) {
    const int64_t of_a_thread = ceil_div(graph.batch, graph.threads);
    while (together_ < of_a_thread) together_ *= 2;
  }

  void all() {
    for (size_t i = 0; i < graph_.nodes.size(); i++) {
      const Node &node = graph_.nodes[i];
      node_ = static_cast<int>(i);
      switch (node.kind) {
      case Kind::input: values_.push_back(caller(node.shape)); break;
      case Kind::conv: values_.push_back(conv(node)); break;
      case Kind::pool: values_.push_back(pool(node)); break;
      case Kind::global_pool: values_.push_back(global_pool(node)); break;
      case Kind::add:
      case Kind::relu: values_.push_back(add(node)); break;
      case Kind::flatten: values_.push_back(flatten(node)); break;
      }
    }
    node_ = -1;
    for (size_t i = 0; i < graph_.outputs.size(); i++) {
      const int from = values_[static_cast<size_t>(graph_.outputs[i])];
      Buffer to{buffer(from).shape, flat_format(buffer(from).shape)};
      to.output = static_cast<int>(i);
      relayout(from, program_.add_buffer(to), 1, 1);
    }
  }

private:
  const Buffer &buffer(int number) const { return program_.buffers[static_cast<size_t>(number)]; }
  int value(int32_t node) const { return values_[static_cast<size_t>(node)]; }

  int caller(const Shape &shape) {
    Buffer made{shape, flat_format(shape)};
    made.input = inputs_++;
    return program_.add_buffer(made);
  }

  int append(std::unique_ptr<Step> step, int input, int other, int output, int images) {
    step->input = input;
    step->other = other;
    step->output = output;
    step->images = images;
    step->node = node_;
    program_.steps.push_back(std::move(step));
    return output;
  }

  int relayout(int from, int to, int64_t step_h, int64_t step_w) {
    const int node = node_;
    node_ = -1;
    append(make_relayout(step_h, step_w), from, -1, to, buffer(to).format.images());
    node_ = node;
    return to;
  }

  // The value in these tiles: itself, a copy that was made before, or a new one.
  int seen_as(int number, const Format &format, int64_t step_h = 1, int64_t step_w = 1) {
    if (step_h == 1 && step_w == 1 && buffer(number).format.same_tiles(format)) return number;
    for (const Copy &copy : copies_[number])
      if (copy.step_h == step_h && copy.step_w == step_w && buffer(copy.to).format.same_tiles(format)) return copy.to;
    Shape shape = buffer(number).shape;
    shape.height = ceil_div(shape.height, step_h);
    shape.width = ceil_div(shape.width, step_w);
    const int made = relayout(number, program_.add_buffer({shape, format}), step_h, step_w);
    copies_[number].push_back({made, step_h, step_w});
    return made;
  }

  // The tiles that inputs of windows must have for outputs to have these.
  static Format of_input(Format out, int64_t stride_h, int64_t stride_w) {
    out.height *= stride_h;
    if (out.along == 1) out.width *= stride_w;
    return out;
  }

  // The output's tiles if the input stays as it is, where they are about as good as any; else the best ones.
  Format of_output(const Format &in, const Shape &shape, int64_t stride_h, int64_t stride_w, bool alone) {
    const Format best = tiles_for(program_.kernels, shape, together_, alone);
    if (in.flat() || in.height % stride_h || in.width % stride_w || (in.along > 1 && !alone)) return best;
    Format kept = in;
    kept.top = kept.bottom = kept.left = kept.right = 0;
    kept.height /= stride_h;
    if (kept.along == 1) kept.width /= stride_w;
    const bool covers = kept.height * kept.grid_h >= shape.height &&
                        (kept.along > 1 ? shape.width == 1 : kept.width * kept.grid_w >= shape.width);
    const double much = 1.15;
    const bool good = work(program_.kernels, kept, together_) <= much * work(program_.kernels, best, together_);
    return covers && good ? kept : best;
  }

  // Whether maps have so few places that a vector of them would be mostly empty: then rows of a matrix fill vectors. In it
  // a weight stands once for every place that reads another one, and its index must hold.
  bool tiny(const Shape &out, const Shape &in) const {
    const int64_t few = 4, places = std::max(out.height * out.width, in.height * in.width);
    return places <= few && program_.kernels.dot_rows > places && in.size() <= UINT32_MAX / out.size();
  }

  int conv(const Node &node) {
    const Conv &conv = *node.conv;
    const int input = value(node.input);
    const bool dots = node.shape.height == 1 && node.shape.width == 1 && conv.pointwise() &&
                      buffer(input).shape.height == 1 && buffer(input).shape.width == 1;
    const int other = node.other < 0 ? -1 : value(node.other);
    if (graph_.batch == 1 && (dots || tiny(node.shape, buffer(input).shape))) {
      const Format flat = flat_format(node.shape);
      const int from = seen_as(input, flat_format(buffer(input).shape)), plus = other < 0 ? -1 : seen_as(other, flat);
      Node made = node;
      if (!dots) made.conv = as_matrix(conv, buffer(input).shape, node.shape);
      return append(make_dot(made, program_.kernels), from, plus, program_.add_buffer({node.shape, flat}), 1);
    }
    const Format &now = buffer(input).format;
    const int64_t stride_h = dots ? 1 : conv.stride_h, stride_w = dots ? 1 : conv.stride_w;
    const Format out = of_output(now, node.shape, stride_h, stride_w, dots);
    Node made = node;
    // Of an input that must be copied anyway, only what is read is copied.
    const bool thinned = stride_h * stride_w > 1 && conv.pointwise() &&
                         !now.same_tiles(of_input(out, stride_h, stride_w));
    const int from = thinned ? seen_as(input, out, stride_h, stride_w)
                             : seen_as(input, of_input(out, stride_h, stride_w));
    if ((dots || thinned) && conv.stride_h * conv.stride_w > 1) {
      made.conv = std::make_shared<Conv>(conv);
      made.conv->stride_h = made.conv->stride_w = 1;
    }
    const int plus = other < 0 ? -1 : seen_as(other, out);
    return append(make_conv(made), from, plus, program_.add_buffer({node.shape, out}), out.images());
  }

  int pool(const Node &node) {
    const int input = value(node.input);
    const Pool &pool = node.pool;
    const Format out = of_output(buffer(input).format, node.shape, pool.stride_h, pool.stride_w, false);
    const int from = seen_as(input, of_input(out, pool.stride_h, pool.stride_w));
    return append(make_pool(node), from, -1, program_.add_buffer({node.shape, out}), out.images());
  }

  int global_pool(const Node &node) {
    int from = value(node.input);
    if (buffer(from).format.flat() || buffer(from).format.along > 1)
      from = seen_as(from, tiles_for(program_.kernels, buffer(from).shape, together_, false));
    const Format out = flat_format(node.shape);
    return append(make_global_pool(node), from, -1, program_.add_buffer({node.shape, out}),
                  buffer(from).format.images());
  }

  int add(const Node &node) {
    const int left = value(node.input);
    Format out = buffer(left).format;
    out.top = out.bottom = out.left = out.right = 0;
    const int right = node.other < 0 ? -1 : seen_as(value(node.other), out);
    return append(make_add(node), left, right, program_.add_buffer({node.shape, out}), out.images());
  }

  int flatten(const Node &node) {
    const int from = value(node.input);
    if (buffer(from).shape == node.shape) return from;
    Buffer made{node.shape, flat_format(node.shape)};
    made.same_as = seen_as(from, flat_format(buffer(from).shape));
    return program_.add_buffer(made);
  }

  struct Copy {
    int to;
    int64_t step_h, step_w;
  };
  const Graph &graph_;
  Program &program_;
  std::vector<int> values_; // the buffer of every node's value
  std::map<int, std::vector<Copy>> copies_;
  int inputs_ = 0, node_ = -1;
  int64_t together_ = 1; // how many images may lie in one vector's lanes
};

} // namespace

void lower(const Graph &graph, Program &program) { Lowering(graph, program).all(); }

} // namespace granet
