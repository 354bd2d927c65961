#include "packing.hpp"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace granet {
namespace {

// Whether any output reads the map, not its padding, at this distance.
bool meets(int64_t distance, int64_t stride, int64_t outputs, int64_t size) {
  const int64_t first = distance >= 0 ? 0 : ceil_div(-distance, stride);
  return first < outputs && first * stride + distance < size;
}

} // namespace

std::vector<Tap> taps_of(const Conv &conv, const Shape &input, const Shape &output) {
  std::vector<Tap> taps;
  taps.reserve(conv.positions.size());
  const int64_t in_group = conv.in_channels / conv.groups, out_group = conv.out_channels / conv.groups;
  for (size_t i = 0; i < conv.positions.size(); i++) {
    int64_t at = conv.positions[i];
    const int64_t x = at % conv.kernel_w * conv.dilation_w - conv.padding_w;
    at /= conv.kernel_w;
    const int64_t y = at % conv.kernel_h * conv.dilation_h - conv.padding_h;
    at /= conv.kernel_h;
    const int64_t out = at / in_group, in = at % in_group + out / out_group * in_group;
    if (meets(y, conv.stride_h, output.height, input.height) && meets(x, conv.stride_w, output.width, input.width))
      taps.push_back({static_cast<uint32_t>(out), static_cast<uint32_t>(in), static_cast<int32_t>(y),
                      static_cast<int32_t>(x), conv.values[i]});
  }
  return taps;
}

Reach reach_of(const std::vector<Tap> &taps) {
  Reach reach;
  for (const Tap &tap : taps) {
    reach.top = std::max<int64_t>(reach.top, -tap.y);
    reach.left = std::max<int64_t>(reach.left, -tap.x);
    reach.bottom = std::max<int64_t>(reach.bottom, tap.y);
    reach.right = std::max<int64_t>(reach.right, tap.x);
  }
  return reach;
}

std::vector<int64_t> cuts_for(const std::vector<Tap> &taps, int64_t out_channels, int shares) {
  const int64_t together = 4, of_a_channel = 4; // what a channel takes beside its weights, in weights
  std::vector<int64_t> work(static_cast<size_t>(ceil_div(out_channels, together)), together * of_a_channel);
  for (const Tap &tap : taps) work[tap.out / together]++;
  const int64_t all = std::accumulate(work.begin(), work.end(), int64_t{0});
  std::vector<int64_t> cuts(static_cast<size_t>(shares) + 1, out_channels);
  cuts[0] = 0;
  size_t last = 0;
  int64_t before = 0, channel = 0;
  for (int64_t own : work) {
    const auto share = static_cast<size_t>((before + own / 2) * shares / all);
    while (last < share) cuts[++last] = channel;
    before += own;
    channel += together;
  }
  return cuts;
}

Packed pack(const Kernels &kernels, std::vector<Tap> taps, int64_t in_channels, const std::vector<int64_t> &cuts,
            const Format &input, bool four, int64_t slice, int chains) {
  const int64_t slices = ceil_div(in_channels, slice);
  require(slice <= kernels.most_vectors / input.channel(),
          "a slice of " + std::to_string(slice) + " channels is too large", GRANET_UNSUPPORTED);
  const auto vector = [&](const Tap &tap) {
    return static_cast<uint32_t>((tap.in % slice) * input.channel() + input.line(tap.y, tap.x));
  };
  // Units of output channels, one or four, and the taps of each in each slice (taps are sorted by both already).
  struct Unit {
    uint32_t channel, rows;
    size_t begin, end; // of taps
  };
  std::vector<std::vector<Unit>> dealt(cuts.size() - 1);
  for (size_t group = 0, i = 0; group < dealt.size(); group++)
    for (int64_t c = cuts[group]; c < cuts[group + 1];) {
      const uint32_t rows = four && c + 4 <= cuts[group + 1] ? 4 : 1;
      Unit unit{static_cast<uint32_t>(c), rows, i, i};
      while (unit.end < taps.size() && taps[unit.end].out < c + rows) unit.end++;
      i = unit.end;
      c += rows;
      dealt[group].push_back(unit);
    }

  Packed packed;
  std::vector<Entry<4>> of_four;
  std::vector<Entry<1>> of_one;
  const auto emit = [&](const Unit &unit, const Tap *tap, const Tap *end) {
    const size_t before = unit.rows > 1 ? of_four.size() : of_one.size();
    for (const Tap *last = nullptr; tap != end; last = tap++) {
      if (unit.rows == 1) {
        of_one.push_back({vector(*tap), {tap->value}});
        continue;
      }
      if (!last || last->in != tap->in || last->y != tap->y || last->x != tap->x) of_four.push_back({vector(*tap), {}});
      of_four.back().value[tap->out - unit.channel] = tap->value;
    }
    while (unit.rows == 1 && (of_one.size() - before) % static_cast<size_t>(chains))
      of_one.push_back({of_one.back().vector, {0.0f}});
    const size_t after = unit.rows > 1 ? of_four.size() : of_one.size();
    require(after < 4294967295u, "a layer of this many weights is too large", GRANET_UNSUPPORTED);
    return Row{unit.channel, static_cast<uint32_t>(before), static_cast<uint32_t>(after - before), 0};
  };
  struct Part { // of a unit, in a slice
    size_t unit, begin, end;
    uint32_t flags;
  };
  for (const auto &mine : dealt) {
    Group group;
    std::vector<std::vector<Part>> parts(static_cast<size_t>(slices));
    for (size_t number = 0; number < mine.size(); number++) {
      const Unit &unit = mine[number];
      if (unit.rows > 1)
        std::sort(taps.begin() + static_cast<ptrdiff_t>(unit.begin), taps.begin() + static_cast<ptrdiff_t>(unit.end),
                  [](const Tap &a, const Tap &b) { return std::tie(a.in, a.y, a.x) < std::tie(b.in, b.y, b.x); });
      uint32_t flags = row_begins;
      size_t at = unit.begin;
      do {
        const int64_t of_part = at < unit.end ? taps[at].in / slice : 0;
        const size_t begin = at;
        while (at < unit.end && taps[at].in / slice == of_part) at++;
        parts[static_cast<size_t>(of_part)].push_back({number, begin, at, flags | (at == unit.end ? row_ends : 0u)});
        flags = 0;
      } while (at < unit.end);
    }
    for (int64_t s = 0; s < slices; s++) {
      auto &of_slice = parts[static_cast<size_t>(s)];
      if (of_slice.empty()) continue;
      // The longest first: the processor foresees where loops end that are as long as the one before.
      std::stable_sort(of_slice.begin(), of_slice.end(),
                       [](const Part &a, const Part &b) { return a.end - a.begin > b.end - b.begin; });
      Slice made{static_cast<ptrdiff_t>(s * slice * input.channel_bytes()), packed.four.size(), 0, packed.one.size(),
                 0};
      for (const Part &part : of_slice) {
        const Unit &unit = mine[part.unit];
        Row row = emit(unit, taps.data() + part.begin, taps.data() + part.end);
        row.flags = part.flags;
        (unit.rows > 1 ? packed.four : packed.one).push_back(row);
        (unit.rows > 1 ? made.four_count : made.one_count)++;
      }
      group.slices.push_back(made);
    }
    packed.groups.push_back(std::move(group));
  }
  const size_t four_bytes = of_four.size() * kernels.four_bytes, one_bytes = of_one.size() * kernels.one_bytes;
  packed.of_four = aligned<char>(four_bytes);
  packed.of_one = aligned<char>(one_bytes);
  kernels.keep_four(of_four.data(), of_four.size(), packed.of_four.get());
  kernels.keep_one(of_one.data(), of_one.size(), packed.of_one.get());
  packed.bytes = static_cast<int64_t>(four_bytes + one_bytes + (packed.four.size() + packed.one.size()) * sizeof(Row));
  return packed;
}

} // namespace granet
