#include "threads.hpp"

#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>
#if defined(__unix__) || defined(__APPLE__)
#include <unistd.h>
#endif

namespace granet {
namespace {

void pause_briefly() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Waits until `met`: at first awake, since what is waited for mostly comes within microseconds.
template <class Condition> bool soon(Condition met, int rounds) {
  for (int i = 0; i < rounds; i++) {
    if (met()) return true;
    pause_briefly();
  }
  return met();
}

long process() {
#if defined(__unix__) || defined(__APPLE__)
  return static_cast<long>(getpid());
#else
  return 0;
#endif
}

class Threads {
public:
  bool run(int count, const std::function<void(int)> &work) {
    std::unique_lock<std::mutex> mine(caller_, std::try_to_lock);
    if (!mine.owns_lock()) return false;
    while (static_cast<int>(threads_.size()) < count - 1) {
      const int number = static_cast<int>(threads_.size()) + 1;
      threads_.emplace_back([this, number, seen = generation_.load()] { serve(number, seen); });
      threads_.back().detach(); // they wait until the process ends
    }
    {
      std::lock_guard<std::mutex> lock(job_);
      work_ = &work;
      count_ = count;
      left_.store(count - 1);
      generation_.fetch_add(1);
    }
    begin_.notify_all();
    work(0);
    const auto done = [this] { return left_.load(std::memory_order_acquire) == 0; };
    while (!soon(done, 2000)) std::this_thread::yield();
    return true;
  }

private:
  void serve(int number, unsigned seen) {
    for (;;) {
      const auto called = [&] { return generation_.load(std::memory_order_acquire) != seen; };
      soon(called, 2000);
      const std::function<void(int)> *work;
      int count;
      {
        std::unique_lock<std::mutex> lock(job_);
        begin_.wait(lock, called);
        seen = generation_.load();
        work = work_;
        count = count_;
      }
      if (number >= count) continue;
      (*work)(number);
      left_.fetch_sub(1, std::memory_order_release);
    }
  }

  std::mutex caller_, job_;
  std::condition_variable begin_;
  std::vector<std::thread> threads_;
  const std::function<void(int)> *work_ = nullptr;
  int count_ = 0;
  std::atomic<unsigned> generation_{0};
  std::atomic<int> left_{0};
};

// Never destroyed: its threads outlive the end of main. A child that was forked has none of them, and makes its own.
Threads &all_threads() {
  static std::mutex guard;
  static Threads *threads = nullptr;
  static long owner = -1;
  std::lock_guard<std::mutex> lock(guard);
  if (!threads || owner != process()) {
    threads = new Threads;
    owner = process();
  }
  return *threads;
}

} // namespace

void Barrier::wait() {
  const unsigned round = round_.load(std::memory_order_relaxed);
  if (come_.fetch_add(1, std::memory_order_acq_rel) == count_ - 1) {
    come_.store(0, std::memory_order_relaxed);
    round_.fetch_add(1, std::memory_order_release);
    return;
  }
  const auto passed = [&] { return round_.load(std::memory_order_acquire) != round; };
  while (!soon(passed, 5000)) std::this_thread::yield();
}

bool run_on_threads(int count, const std::function<void(int)> &work) { return all_threads().run(count, work); }

} // namespace granet
