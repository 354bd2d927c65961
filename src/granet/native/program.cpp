#include "program.hpp"

#include <algorithm>

namespace granet {

constexpr int64_t most_numbers = int64_t{1} << 31; // of a buffer's block: positions are 32 bits wide
constexpr int64_t most_memory = int64_t{1} << 35;  // of all, in bytes

char *Frame::at(int number, int64_t block) const {
  const Buffer &buffer = program.root(number);
  const int64_t size = buffer.shape.size();
  const float *caller = buffer.input >= 0 ? inputs[buffer.input] : buffer.output >= 0 ? outputs[buffer.output] : nullptr;
  if (caller) return reinterpret_cast<char *>(const_cast<float *>(caller) + (image + block) * size); // inputs are only read
  char *const own = memory + (buffer.published >= 0 ? program.common + thread * program.own : 0);
  return own + buffer.offset + (buffer.kept ? block : 0) * buffer.format.block_bytes(buffer.shape);
}

std::string Step::text(const Program &program) const {
  const Buffer &out = program.buffers[static_cast<size_t>(output)];
  const Format &f = out.format;
  std::string said = std::string(kind()) + " " + granet::text(out.shape);
  if (!f.flat())
    said += ", lanes " + std::to_string(f.grid_n) + "x" + std::to_string(f.grid_h) + "x" + std::to_string(f.grid_w) +
            ", tile " + std::to_string(f.height) + "x" + std::to_string(f.width);
  return said;
}

void Step::choose(const Program &, const granet_choice &) {
  throw Refusal(GRANET_INVALID, std::string("a step of kind ") + kind() + " has no choices");
}

Program::Program(const Graph &graph, const Kernels &kernels)
    : kernels(kernels), batch(graph.batch), threads(graph.threads) {
  lower(graph, *this);
  for (auto &step : steps) step->demand(*this);
  divide();
  deal();
  exchange();
  place();
  for (auto &step : steps) step->prepare(*this);
}

int Program::add_buffer(Buffer buffer) {
  buffers.push_back(buffer);
  return static_cast<int>(buffers.size() - 1);
}

const Buffer &Program::root(int number) const {
  const Buffer *buffer = &buffers[static_cast<size_t>(number)];
  while (buffer->same_as >= 0) buffer = &buffers[static_cast<size_t>(buffer->same_as)];
  return *buffer;
}

// Segments, chunks, and when each buffer is needed.
void Program::divide() {
  for (size_t i = 0; i < steps.size(); i++) {
    chunk = std::max<int64_t>(chunk, steps[i]->images);
    if (segments.empty() || segments.back().images != steps[i]->images) segments.push_back({i, i, steps[i]->images});
    segments.back().end = i + 1;
  }
  // Chunks for every thread, or all threads on one chunk.
  shares = chunks() >= threads ? 1 : static_cast<int>(threads);
  const auto segment_of = [&](int step) {
    return std::upper_bound(segments.begin(), segments.end(), static_cast<size_t>(step),
                            [](size_t number, const Segment &s) { return number < s.end; });
  };
  const auto needed = [&](int number, int step) {
    if (number < 0) return;
    auto &buffer = const_cast<Buffer &>(root(number));
    if (buffer.first < 0) buffer.first = step;
    // Between segments, or a step's block of images is more than one of the buffer's.
    buffer.kept = buffer.kept || segment_of(buffer.first) != segment_of(step) ||
                  buffer.format.images() != steps[static_cast<size_t>(step)]->images;
    buffer.last = step;
  };
  for (size_t i = 0; i < steps.size(); i++)
    for (int number : {steps[i]->output, steps[i]->input, steps[i]->other}) needed(number, static_cast<int>(i));
  for (Buffer &buffer : buffers)
    if (buffer.kept) { // its segments go over it block by block, from their first step to their last
      buffer.last = static_cast<int>(segment_of(buffer.last)->end) - 1;
      buffer.first = static_cast<int>(segment_of(buffer.first)->begin);
    }
}

// A buffer lies at the lowest place that no other one takes while it is needed; the largest choose first.
void Program::place() {
  // A residual that nobody reads afterwards becomes the output, where both look alike.
  for (size_t i = 0; i < steps.size(); i++) {
    const Step &step = *steps[i];
    if (step.other < 0 || step.other == step.input) continue;
    const Buffer &other = root(step.other);
    Buffer &out = buffers[static_cast<size_t>(step.output)];
    if (other.last == static_cast<int>(i) && !other.kept && !out.kept && other.input < 0 && out.output < 0 &&
        &other != &root(step.input) && other.format == out.format && other.shape == out.shape &&
        (other.published < 0) == (out.published < 0)) {
      auto &held = const_cast<Buffer &>(other);
      out.same_as = static_cast<int>(&other - buffers.data());
      held.last = std::max(held.last, out.last);
    }
  }
  std::vector<Buffer *> waiting, placed;
  for (Buffer &buffer : buffers)
    if (buffer.same_as < 0 && buffer.input < 0 && buffer.output < 0 && buffer.first >= 0) waiting.push_back(&buffer);
  const auto size = [&](const Buffer &b) {
    const int64_t bytes = b.format.block_bytes(b.shape) * (b.kept ? ceil_div(chunk, b.format.images()) : 1);
    return ceil_div(bytes, 64) * 64; // whole cache lines
  };
  for (const Buffer &b : buffers) {
    const double lines = static_cast<double>(b.format.top + b.format.height + b.format.bottom) *
                         static_cast<double>(b.format.row());
    require(lines * static_cast<double>(b.format.lanes) * static_cast<double>(b.shape.channels) <
                static_cast<double>(most_numbers) - 4096,
            "a value of " + granet::text(b.shape) + " with what surrounds it is too large", GRANET_UNSUPPORTED);
    require(size(b) < most_memory, "a value is too large for this batch",
            GRANET_UNSUPPORTED);
  }
  std::stable_sort(waiting.begin(), waiting.end(), [&](Buffer *a, Buffer *b) { return size(*a) > size(*b); });
  for (Buffer *buffer : waiting) {
    std::vector<Buffer *> beside;
    for (Buffer *other : placed)
      if ((other->published < 0) == (buffer->published < 0) && other->first <= buffer->last && buffer->first <= other->last)
        beside.push_back(other);
    std::sort(beside.begin(), beside.end(), [](Buffer *a, Buffer *b) { return a->offset < b->offset; });
    for (Buffer *other : beside)
      if (buffer->offset + size(*buffer) > other->offset)
        buffer->offset = std::max(buffer->offset, other->offset + size(*other));
    placed.push_back(buffer);
    int64_t &end = buffer->published < 0 ? common : own;
    end = std::max(end, buffer->offset + size(*buffer));
  }
  memory = common + shares * own;
  require(memory <= most_memory, "activations need " + std::to_string(memory) + " bytes, more than " +
                                     std::to_string(most_memory), GRANET_UNSUPPORTED);
}

void Program::run(const Frame &frame, Share share, void (*wait)(void *), void *barrier) const {
  for (const Segment &segment : segments)
    for (int64_t block = 0; block * segment.images < frame.valid; block++)
      for (size_t i = segment.begin; i < segment.end; i++) {
        if (share.count > 1) fetch(frame, i, block, share);
        steps[i]->run(frame, block, share);
        if (share.count == 1) continue;
        publish(frame, i, block, share);
        wait(barrier);
      }
}

} // namespace granet
