// The threads of this process, which all plans share.
#pragma once
#include <atomic>
#include <functional>

namespace granet {

// Lets `count` threads pass only when all have come, again and again.
class Barrier {
public:
  explicit Barrier(int count) : count_(count) {}
  void wait();
  static void wait_at(void *barrier) { static_cast<Barrier *>(barrier)->wait(); }

private:
  const int count_;
  std::atomic<int> come_{0};
  std::atomic<unsigned> round_{0};
};

// Calls work(0 .. count - 1) on as many threads at once, this one among them, and returns true; false, and nothing done,
// if the threads work for another caller.
bool run_on_threads(int count, const std::function<void(int)> &work);

} // namespace granet
