// The C interface: handles are looked up, exceptions become codes.
#include "isa.hpp"
#include "plan.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

namespace granet {
namespace {

thread_local std::string message;

std::mutex plans_guard;
std::map<uint64_t, std::shared_ptr<Plan>> plans;
uint64_t plans_made = 0;

std::shared_ptr<Plan> find_plan(uint64_t handle) {
  std::lock_guard<std::mutex> lock(plans_guard);
  const auto found = plans.find(handle);
  require(found != plans.end(), "there is no plan " + std::to_string(handle), GRANET_STATE);
  return found->second;
}

template <class Call> int guarded(Call call) noexcept {
  try {
    call();
    return GRANET_OK;
  } catch (const Refusal &refusal) {
    try {
      message = refusal.what();
    } catch (...) {
    }
    return refusal.code;
  } catch (const std::bad_alloc &) {
    message = "out of memory";
    return GRANET_MEMORY;
  } catch (const std::length_error &) {
    message = "out of memory";
    return GRANET_MEMORY;
  } catch (const std::exception &error) {
    try {
      message = error.what();
    } catch (...) {
    }
    return GRANET_INTERNAL;
  } catch (...) {
    message = "unknown error";
    return GRANET_INTERNAL;
  }
}

// Calls that add to a plan.
template <class Call> int adding(uint64_t handle, int32_t *value, Call call) noexcept {
  return guarded([&] {
    require(value != nullptr, "value is missing");
    const auto plan = find_plan(handle);
    std::unique_lock<std::shared_mutex> alone(plan->use);
    *value = call(plan->open());
  });
}

// Calls that ask a finished plan, beside others that do.
template <class Call> int asking(uint64_t handle, Call call) noexcept {
  return guarded([&] {
    const auto plan = find_plan(handle);
    std::shared_lock<std::shared_mutex> beside(plan->use);
    call(*plan);
  });
}

Step &find_step(Plan &plan, int64_t step) {
  Program &program = plan.finished();
  require_between("step", step, 0, static_cast<int64_t>(program.steps.size()) - 1);
  return *program.steps[static_cast<size_t>(step)];
}

template <class T> void give(const std::vector<T> &values, int64_t capacity, T *to) {
  require(capacity >= static_cast<int64_t>(values.size()), "capacity is " + std::to_string(capacity) + ", and there are " +
                                                               std::to_string(values.size()));
  require(to || values.empty(), "nowhere to write to was given");
  std::copy(values.begin(), values.end(), to);
}

void check_seconds(double seconds) {
  require(std::isfinite(seconds) && seconds >= 0 && seconds <= 60,
          "seconds is " + std::to_string(seconds) + ", not between 0 and 60");
}

} // namespace
} // namespace granet

using namespace granet;

extern "C" {

int granet_interface(void) { return GRANET_INTERFACE; }
const char *granet_message(void) { return message.c_str(); }
const char *granet_isas(int64_t bits) { return isa_names(bits).c_str(); }
size_t granet_struct_size(int which) {
  const size_t sizes[] = {sizeof(granet_conv), sizeof(granet_pool), sizeof(granet_choice), sizeof(granet_step)};
  return which >= 0 && which < 4 ? sizes[which] : 0;
}

int granet_plan_create(int64_t batch, int64_t threads, int64_t bits, const char *isa, uint64_t *plan) {
  return guarded([&] {
    require(plan != nullptr, "plan is missing");
    auto made = std::make_shared<Plan>(batch, threads, bits, isa);
    std::lock_guard<std::mutex> lock(plans_guard);
    plans[plans_made + 1] = std::move(made);
    *plan = ++plans_made;
  });
}

int granet_plan_destroy(uint64_t plan) {
  return guarded([&] {
    const auto last = find_plan(plan); // runs that still have it keep it
    std::lock_guard<std::mutex> lock(plans_guard);
    plans.erase(plan);
  });
}

int granet_plan_input(uint64_t plan, int64_t channels, int64_t height, int64_t width, int32_t *value) {
  return adding(plan, value, [&](Graph &graph) { return graph.input(channels, height, width); });
}

int granet_plan_conv(uint64_t plan, const granet_conv *conv, int32_t *value) {
  return adding(plan, value, [&](Graph &graph) {
    require(conv != nullptr, "conv is missing");
    return graph.conv(*conv);
  });
}

int granet_plan_linear(uint64_t plan, int32_t input, int64_t out_features, int32_t residual, int64_t relu,
                       int64_t count, const uint32_t *positions, const float *values, const float *bias,
                       int32_t *value) {
  return adding(plan, value, [&](Graph &graph) {
    return graph.linear({input, residual, out_features, 1, 1, 1, 1, 0, 0, 1, 1, 1, relu, count, positions, values,
                         bias});
  });
}

int granet_plan_pool(uint64_t plan, const granet_pool *pool, int32_t *value) {
  return adding(plan, value, [&](Graph &graph) {
    require(pool != nullptr, "pool is missing");
    return graph.pool(*pool);
  });
}

int granet_plan_global_pool(uint64_t plan, int32_t input, int32_t kind, int32_t *value) {
  return adding(plan, value, [&](Graph &graph) { return graph.global_pool(input, kind); });
}

int granet_plan_add(uint64_t plan, int32_t left, int32_t right, int64_t relu, int32_t *value) {
  return adding(plan, value, [&](Graph &graph) {
    require_between("relu", relu, 0, 1);
    return graph.add(left, right, relu == 1);
  });
}

int granet_plan_relu(uint64_t plan, int32_t input, int32_t *value) {
  return adding(plan, value, [&](Graph &graph) { return graph.relu(input); });
}

int granet_plan_flatten(uint64_t plan, int32_t input, int32_t *value) {
  return adding(plan, value, [&](Graph &graph) { return graph.flatten(input); });
}

int granet_plan_output(uint64_t plan, int32_t value) {
  return guarded([&] {
    const auto found = find_plan(plan);
    std::unique_lock<std::shared_mutex> alone(found->use);
    found->open().output(value);
  });
}

int granet_plan_shape(uint64_t plan, int32_t value, int64_t shape[3]) {
  return asking(plan, [&](Plan &found) {
    require(shape != nullptr, "shape is missing");
    const Shape of = found.graph().node("value", value).shape;
    shape[0] = of.channels;
    shape[1] = of.height;
    shape[2] = of.width;
  });
}

int granet_plan_finish(uint64_t plan) {
  return guarded([&] {
    const auto found = find_plan(plan);
    std::unique_lock<std::shared_mutex> alone(found->use);
    found->finish();
  });
}

int granet_plan_run(uint64_t plan, int64_t inputs, const float *const *input, const int64_t *input_sizes,
                    int64_t outputs, float *const *output, const int64_t *output_sizes) {
  return asking(plan, [&](Plan &found) { found.run(inputs, input, input_sizes, outputs, output, output_sizes); });
}

int granet_plan_steps(uint64_t plan, int64_t *count) {
  return asking(plan, [&](Plan &found) {
    require(count != nullptr, "count is missing");
    *count = static_cast<int64_t>(found.finished().steps.size());
  });
}

int granet_plan_step(uint64_t plan, int64_t step, granet_step *about) {
  return asking(plan, [&](Plan &found) {
    require(about != nullptr, "about is missing");
    const Step &of = find_step(found, step);
    *about = granet_step{};
    about->value = of.node;
    about->tunable = of.choices(found.finished()).empty() ? 0 : 1;
    about->weights = of.weights();
    about->multiply_adds = of.multiply_adds();
    std::strncpy(about->text, of.text(found.finished()).c_str(), sizeof(about->text) - 1);
  });
}

int granet_plan_memory(uint64_t plan, int64_t *weight_bytes, int64_t *activation_bytes) {
  return asking(plan, [&](Plan &found) {
    require(weight_bytes && activation_bytes, "nowhere to write to was given");
    *weight_bytes = 0;
    for (const auto &step : found.finished().steps) *weight_bytes += step->bytes();
    *activation_bytes = found.activation_bytes();
  });
}

int granet_plan_choices(uint64_t plan, int64_t step, int64_t capacity, granet_choice *choices, int64_t *count) {
  return asking(plan, [&](Plan &found) {
    require(count != nullptr, "count is missing");
    const auto all = find_step(found, step).choices(found.finished());
    *count = static_cast<int64_t>(all.size());
    if (capacity != 0) give(all, capacity, choices);
  });
}

int granet_plan_chosen(uint64_t plan, int64_t step, granet_choice *choice) {
  return asking(plan, [&](Plan &found) {
    require(choice != nullptr, "choice is missing");
    *choice = find_step(found, step).chosen();
  });
}

int granet_plan_choose(uint64_t plan, int64_t step, const granet_choice *choice) {
  return guarded([&] {
    require(choice != nullptr, "choice is missing");
    const auto found = find_plan(plan);
    std::unique_lock<std::shared_mutex> alone(found->use);
    find_step(*found, step).choose(found->finished(), *choice);
  });
}

int granet_plan_measure(uint64_t plan, double seconds, int64_t capacity, double *of_step) {
  return asking(plan, [&](Plan &found) {
    check_seconds(seconds);
    require(capacity >= static_cast<int64_t>(found.finished().steps.size()),
            "capacity is " + std::to_string(capacity) + ", and there are " +
                std::to_string(found.finished().steps.size()) + " steps");
    give(found.measure(seconds, -1), capacity, of_step);
  });
}

int granet_plan_measure_step(uint64_t plan, int64_t step, double seconds, double *of_step) {
  return asking(plan, [&](Plan &found) {
    check_seconds(seconds);
    require(of_step != nullptr, "of_step is missing");
    find_step(found, step);
    *of_step = found.measure(seconds, step)[static_cast<size_t>(step)];
  });
}
}
