// Random and hostile calls of the C interface: nothing may crash, leak or read outside of arrays.
//
//     fuzz SECONDS SEED     built with AddressSanitizer and UndefinedBehaviorSanitizer, which end it at the first error
#include "granet_native.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace {

std::mt19937_64 engine;

int64_t below(int64_t most) { return static_cast<int64_t>(engine() % static_cast<uint64_t>(most)); }
bool seldom() { return below(40) == 0; }

// A number that is usually small, and sometimes what no one would pass.
int64_t number(int64_t most) {
  const int64_t hostile[] = {0, -1, -7, 1 << 20, int64_t{1} << 31, int64_t{1} << 40, INT64_MAX, INT64_MIN, INT64_MAX / 2};
  return seldom() ? hostile[below(9)] : 1 + below(most);
}

int64_t padding(int64_t most) { return seldom() ? number(most) : below(most); }

struct Fuzz {
  uint64_t plan = 0;
  int64_t batch = 1;
  std::vector<int32_t> values, inputs, outputs;
  int64_t accepted = 0, refused = 0, ran = 0;
  std::vector<uint32_t> positions;
  std::vector<float> weights, bias;

  int note(int code) {
    (code == GRANET_OK ? accepted : refused)++;
    if (code != GRANET_OK && std::string(granet_message()).find('\n') != std::string::npos) std::abort();
    if (code == GRANET_INTERNAL) {
      std::fprintf(stderr, "internal error: %s\n", granet_message());
      std::abort();
    }
    return code;
  }

  int32_t value() {
    if (values.empty() || seldom()) return static_cast<int32_t>(seldom() ? number(5) : below(8) - 3);
    return values[static_cast<size_t>(below(static_cast<int64_t>(values.size())))];
  }

  void made(int code, int32_t one) {
    if (note(code) == GRANET_OK) values.push_back(one);
  }

  // Positions and values for a layer of that many weights; now and then not ascending, out of range, or not finite.
  int64_t draw_weights(int64_t total, int64_t outs) {
    positions.clear();
    weights.clear();
    bias.assign(static_cast<size_t>(outs > 0 && outs < 5000 ? outs : 0), 0.5f);
    const int64_t step = 1 + below(6);
    for (int64_t at = below(3); at < total && at < 20000; at += 1 + below(step)) {
      positions.push_back(static_cast<uint32_t>(seldom() && seldom() ? engine() : static_cast<uint64_t>(at)));
      weights.push_back(seldom() && seldom() ? std::numeric_limits<float>::infinity() : 0.25f);
    }
    return static_cast<int64_t>(positions.size());
  }

  void conv() {
    const int32_t input = value();
    int64_t shape[3] = {1, 1, 1};
    note(granet_plan_shape(plan, input, shape));
    granet_conv conv{};
    conv.input = input;
    conv.residual = below(3) ? -1 : value();
    conv.out_channels = number(9);
    conv.kernel_h = number(4);
    conv.kernel_w = number(4);
    conv.stride_h = number(3);
    conv.stride_w = number(3);
    conv.padding_h = padding(3);
    conv.padding_w = padding(3);
    conv.dilation_h = below(5) ? 1 : number(3);
    conv.dilation_w = below(5) ? 1 : number(3);
    conv.groups = below(4) ? 1 : number(3);
    if (conv.groups == 2 || conv.groups == 3) conv.out_channels -= conv.out_channels % conv.groups;
    conv.relu = seldom() ? number(3) : below(2);
    const auto small = [](int64_t n) { return n >= 1 && n < 1000; };
    const int64_t total = small(conv.out_channels) && small(conv.kernel_h) && small(conv.kernel_w) &&
                                  small(conv.groups) && shape[0] < 1000
                              ? conv.out_channels * (shape[0] / conv.groups) * conv.kernel_h * conv.kernel_w
                              : 10;
    conv.count = draw_weights(total, conv.out_channels);
    conv.positions = seldom() ? nullptr : positions.data();
    conv.values = seldom() ? nullptr : weights.data();
    conv.bias = below(2) && !bias.empty() ? bias.data() : nullptr;
    if (conv.bias && conv.out_channels != static_cast<int64_t>(bias.size())) conv.bias = nullptr;
    int32_t one = 0;
    const granet_conv *given = seldom() ? nullptr : &conv;
    made(granet_plan_conv(plan, given, seldom() ? nullptr : &one), one);
  }

  void linear() {
    const int32_t input = value();
    int64_t shape[3] = {1, 1, 1};
    note(granet_plan_shape(plan, input, shape));
    const int64_t outs = number(20), total = outs > 0 && outs < 1000 && shape[0] < 5000 ? outs * shape[0] : 10;
    const int64_t count = draw_weights(total, outs);
    int32_t one = 0;
    made(granet_plan_linear(plan, input, outs, below(3) ? -1 : value(), below(2), count, positions.data(),
                            weights.data(), nullptr, &one),
         one);
  }

  void pool() {
    granet_pool pool{};
    pool.input = value();
    pool.kind = static_cast<int32_t>(seldom() ? number(4) : below(2));
    pool.kernel_h = number(4);
    pool.kernel_w = number(4);
    pool.stride_h = number(3);
    pool.stride_w = number(3);
    pool.padding_h = padding(2);
    pool.padding_w = padding(2);
    pool.count_padding = below(2);
    int32_t one = 0;
    made(granet_plan_pool(plan, seldom() ? nullptr : &pool, &one), one);
  }

  void other() {
    int32_t one = 0;
    switch (below(5)) {
    case 0: return made(granet_plan_add(plan, value(), value(), below(2), &one), one);
    case 1: return made(granet_plan_relu(plan, value(), &one), one);
    case 2: return made(granet_plan_flatten(plan, value(), &one), one);
    case 3: return made(granet_plan_global_pool(plan, value(), static_cast<int32_t>(below(2)), &one), one);
    default: {
      const int code = granet_plan_input(plan, number(6), number(20), number(20), &one);
      if (code == GRANET_OK) inputs.push_back(one);
      made(code, one);
    }
    }
  }

  void ask() {
    int64_t steps = 0, count = 0, one = 0, two = 0;
    note(granet_plan_steps(plan, &steps));
    note(granet_plan_memory(plan, &one, seldom() ? nullptr : &two));
    const int64_t step = steps > 0 && !seldom() ? below(steps) : seldom() ? number(9) : -1;
    granet_step about;
    note(granet_plan_step(plan, step, &about));
    granet_choice choice{};
    note(granet_plan_chosen(plan, step, &choice));
    if (note(granet_plan_choices(plan, step, 0, nullptr, &count)) == GRANET_OK && count > 0 && count < 5000) {
      std::vector<granet_choice> choices(static_cast<size_t>(count));
      note(granet_plan_choices(plan, step, count, choices.data(), &count));
      choice = choices[static_cast<size_t>(below(count))];
    }
    if (seldom()) choice.slice = static_cast<int32_t>(number(4));
    if (seldom()) choice.tile_h = static_cast<int32_t>(number(4));
    if (seldom()) choice.rows = static_cast<int32_t>(number(4));
    note(granet_plan_choose(plan, step, &choice));
    double seconds = 0;
    if (seldom()) note(granet_plan_measure_step(plan, step, below(2) ? 0.0 : -1.0, &seconds));
  }

  void run(std::mt19937_64::result_type seed) {
    std::vector<std::vector<float>> held;
    std::vector<const float *> in;
    std::vector<float *> out;
    std::vector<int64_t> in_sizes, out_sizes;
    const auto hold = [&](int32_t of) {
      int64_t shape[3] = {0, 0, 0};
      granet_plan_shape(plan, of, shape);
      held.emplace_back(static_cast<size_t>(batch * shape[0] * shape[1] * shape[2]), static_cast<float>(seed % 7));
      return static_cast<int64_t>(held.back().size());
    };
    for (int32_t of : inputs) {
      in_sizes.push_back(hold(of));
      in.push_back(held.back().data());
    }
    for (int32_t of : outputs) {
      out_sizes.push_back(hold(of));
      out.push_back(held.back().data());
    }
    if (granet_plan_run(plan, static_cast<int64_t>(in.size()), in.data(), in_sizes.data(),
                        static_cast<int64_t>(out.size()), out.data(), out_sizes.data()) == GRANET_OK)
      ran++;
    if (seed % 5 == 0) { // hostile: other numbers and sizes, and arrays that are missing
      if (!in_sizes.empty()) in_sizes[0]++;
      granet_plan_run(plan, static_cast<int64_t>(in.size()), in.data(), in_sizes.data(), 0, nullptr, nullptr);
      granet_plan_run(plan, INT64_MAX, in.data(), in_sizes.data(), -1, nullptr, nullptr);
      granet_plan_run(plan, static_cast<int64_t>(in.size()), nullptr, nullptr, static_cast<int64_t>(out.size()), nullptr,
                      nullptr);
    }
  }

  void once() {
    const char *const isas[] = {nullptr, "baseline", "avx2", "", "a name that is much longer than any of them is or will be"};
    const bool halves = below(3) == 0;
    const int64_t bits = seldom() ? number(64) : halves ? 16 : 32;
    const char *isa = halves && !seldom() ? "emulated" : isas[below(seldom() ? 5 : 3)];
    if (note(granet_isas(bits) ? GRANET_OK : GRANET_INTERNAL) != GRANET_OK) return;
    batch = seldom() ? number(9) : 1 + below(9);
    if (note(granet_plan_create(batch, number(3), bits, isa, seldom() ? nullptr : &plan)) != GRANET_OK)
      return;
    other();
    int32_t first = 0;
    if (note(granet_plan_input(plan, 1 + below(8), 1 + below(20), 1 + below(20), &first)) == GRANET_OK) {
      values.push_back(first);
      inputs.push_back(first);
    }
    for (int64_t i = below(10); i >= 0; i--) switch (below(8)) {
      case 0: pool(); break;
      case 1: linear(); break;
      case 2: other(); break;
      case 3:
        if (seldom()) ask();
        break;
      default: conv();
      }
    for (int64_t i = 1 + below(3); i > 0; i--) {
      const int32_t of = value();
      int64_t shape[3] = {0, 0, 0};
      if (granet_plan_shape(plan, of, shape) == GRANET_OK && shape[0] * shape[1] * shape[2] < 1000000 &&
          note(granet_plan_output(plan, of)) == GRANET_OK)
        outputs.push_back(of);
    }
    bool large = false; // what is held here for a run
    for (int32_t of : inputs) {
      int64_t shape[3] = {0, 0, 0};
      granet_plan_shape(plan, of, shape);
      large = large || shape[0] * shape[1] * shape[2] > 1000000;
    }
    note(granet_plan_finish(plan));
    if (seldom()) note(granet_plan_finish(plan));
    if (seldom()) conv();
    ask();
    if (!large) {
      run(engine());
      if (below(6) == 0) { // another caller, while choices change, and the plan goes
        const auto seed = engine();
        std::thread beside([this, seed] { run(seed); });
        ask();
        if (below(2)) note(granet_plan_destroy(plan));
        beside.join();
      }
    }
    granet_plan_destroy(plan);
    note(granet_plan_destroy(plan)); // there is none any more
    ask();
  }
};

} // namespace

int main(int count, char **arguments) {
  if (count != 3) return 2;
  const double seconds = std::atof(arguments[1]);
  const auto seed = static_cast<uint64_t>(std::atoll(arguments[2]));
  const auto begin = std::chrono::steady_clock::now();
  int64_t accepted = 0, refused = 0, ran = 0, plans = 0;
  for (; std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() < seconds; plans++) {
    engine.seed(seed * 1000003 + static_cast<uint64_t>(plans));
    Fuzz fuzz;
    fuzz.once();
    accepted += fuzz.accepted;
    refused += fuzz.refused;
    ran += fuzz.ran;
  }
  std::printf("plans %lld, accepted %lld, refused %lld, ran %lld\n", static_cast<long long>(plans),
              static_cast<long long>(accepted), static_cast<long long>(refused), static_cast<long long>(ran));
  return plans > 10 && accepted > 10 * plans / 2 && refused > 0 && ran > plans / 4 ? 0 : 3;
}
