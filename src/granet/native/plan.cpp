#include "plan.hpp"

#include "isa.hpp"
#include "threads.hpp"

#include <algorithm>
#include <atomic>
#include <ctime>

namespace granet {
namespace {

double processor_time() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

template <class Pointer>
void check_arrays(const char *name, int64_t given, Pointer arrays, const int64_t *sizes,
                  const std::vector<int32_t> &values, const Graph &graph) {
  const std::string named = name;
  require(given == static_cast<int64_t>(values.size()),
          std::to_string(given) + " " + named + "s were given, and the plan has " + std::to_string(values.size()));
  require(given == 0 || (arrays && sizes), named + "s or their sizes are missing");
  for (size_t i = 0; i < values.size(); i++) {
    const int64_t size = graph.batch * graph.nodes[static_cast<size_t>(values[i])].shape.size();
    require(arrays[i] != nullptr, named + " " + std::to_string(i) + " is missing");
    require(sizes[i] == size, named + " " + std::to_string(i) + " has " + std::to_string(sizes[i]) +
                                  " elements, not " + std::to_string(size));
  }
}

} // namespace

Plan::Plan(int64_t batch, int64_t threads, int64_t bits, const char *isa)
    : kernels_(kernels_named(bits, isa)), graph_(batch, threads) {}

Graph &Plan::open() {
  require(!program_, "the plan is finished: nothing can be added", GRANET_STATE);
  return graph_;
}

Program &Plan::finished() {
  require(program_ != nullptr, "the plan is not finished", GRANET_STATE);
  return *program_;
}

void Plan::finish() {
  open();
  require(!graph_.outputs.empty(), "the plan has no output", GRANET_STATE);
  program_ = std::make_unique<Program>(graph_, kernels_);
}

Aligned<char> Plan::take() {
  {
    std::lock_guard<std::mutex> lock(memory_guard_);
    if (!memory_.empty()) {
      Aligned<char> last = std::move(memory_.back());
      memory_.pop_back();
      return last;
    }
  }
  return aligned<char>(static_cast<size_t>(program_->memory)); // zeros: no layer ever reads what was never a number
}

void Plan::give_back(Aligned<char> memory) {
  std::lock_guard<std::mutex> lock(memory_guard_);
  memory_.push_back(std::move(memory));
}

void Plan::run(int64_t inputs, const float *const *input, const int64_t *input_sizes, int64_t outputs,
               float *const *output, const int64_t *output_sizes) {
  const Program &program = finished();
  check_arrays("input", inputs, input, input_sizes, graph_.inputs, graph_);
  check_arrays("output", outputs, output, output_sizes, graph_.outputs, graph_);
  const int64_t chunks = program.chunks();
  const auto chunk = [&](char *memory, int64_t number, Share share, Barrier *barrier) {
    const Frame frame{program, memory, input, output, number * program.chunk, program.valid(number), share.index};
    program.run(frame, share, &Barrier::wait_at, barrier);
  };
  if (program.shares > 1) {
    Aligned<char> memory = take();
    Barrier barrier(program.shares);
    const bool done = run_on_threads(program.shares, [&](int thread) {
      for (int64_t number = 0; number < chunks; number++)
        chunk(memory.get(), number, {thread, program.shares}, &barrier);
    });
    if (!done) // the threads are another caller's
      for (int64_t number = 0; number < chunks; number++) chunk(memory.get(), number, {0, 1}, nullptr);
    give_back(std::move(memory));
    return;
  }
  const int threads = static_cast<int>(std::min(program.threads, chunks));
  std::vector<Aligned<char>> memory;
  for (int i = 0; i < threads; i++) memory.push_back(take());
  std::atomic<int64_t> next{0};
  const auto work = [&](int thread) {
    for (int64_t number; (number = next.fetch_add(1)) < chunks;)
      chunk(memory[static_cast<size_t>(thread)].get(), number, {0, 1}, nullptr);
  };
  if (threads == 1 || !run_on_threads(threads, work)) work(0);
  for (auto &one : memory) give_back(std::move(one));
}

std::vector<double> Plan::measure(double seconds, int64_t only) {
  const Program &program = finished();
  std::vector<std::vector<float>> held;
  std::vector<const float *> inputs;
  std::vector<float *> outputs;
  const auto zeros = [&](int32_t value) {
    held.emplace_back(static_cast<size_t>(graph_.batch * graph_.nodes[static_cast<size_t>(value)].shape.size()));
    return held.back().data();
  };
  for (int32_t value : graph_.inputs) inputs.push_back(zeros(value));
  for (int32_t value : graph_.outputs) outputs.push_back(zeros(value));
  Aligned<char> memory = take();
  const Frame frame{program, memory.get(), inputs.data(), outputs.data(), 0, program.valid(0), 0};
  std::vector<double> least(program.steps.size(), 0.0);
  const double begin = processor_time();
  for (int round = 0; round < 3 || processor_time() - begin < seconds; round++)
    for (const Segment &segment : program.segments)
      for (size_t i = segment.begin; i < segment.end; i++) {
        if (only >= 0 && static_cast<size_t>(only) != i) continue;
        const double before = processor_time();
        for (int64_t block = 0; block * segment.images < frame.valid; block++)
          program.steps[i]->run(frame, block, {0, 1});
        const double took = processor_time() - before;
        least[i] = round == 0 ? took : std::min(least[i], took);
      }
  give_back(std::move(memory));
  return least;
}

int64_t Plan::activation_bytes() {
  const Program &program = finished();
  return program.memory * (program.shares > 1 ? 1 : std::min(program.threads, program.chunks()));
}

} // namespace granet
