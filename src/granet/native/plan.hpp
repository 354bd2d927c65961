// What a handle stands for: a graph that grows, then a program that several threads may run.
#pragma once
#include "aligned.hpp"
#include "program.hpp"

#include <mutex>
#include <shared_mutex>

namespace granet {

class Plan {
public:
  Plan(int64_t batch, int64_t threads, int64_t bits, const char *isa);
  Graph &open();          // refused once the plan is finished
  Program &finished();    // refused before
  void finish();
  void run(int64_t inputs, const float *const *input, const int64_t *input_sizes, int64_t outputs,
           float *const *output, const int64_t *output_sizes);
  std::vector<double> measure(double seconds, int64_t step);
  const Graph &graph() const { return graph_; }
  int64_t activation_bytes();

  std::shared_mutex use; // shared by runs; alone: what changes the plan

private:
  Aligned<char> take();
  void give_back(Aligned<char> memory);

  const Kernels &kernels_;
  Graph graph_;
  std::unique_ptr<Program> program_;
  std::mutex memory_guard_;
  std::vector<Aligned<char>> memory_; // of runs that ended
};

} // namespace granet
