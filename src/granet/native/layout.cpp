#include "layout.hpp"

#include <algorithm>
#include <numeric>

namespace granet {

Format flat_format(const Shape &shape) {
  Format format;
  format.height = shape.height;
  format.width = shape.width;
  return format;
}

double work(const Kernels &kernels, const Format &format, int64_t images) {
  const int64_t vectors = format.height * format.width, blocks = ceil_div(vectors, kernels.accumulators);
  const double of_a_weight = 2.5; // to read it and to spread it over the lanes
  return (static_cast<double>(vectors) + of_a_weight * static_cast<double>(blocks)) /
         static_cast<double>(std::min<int64_t>(images, format.images()));
}

Format tiles_for(const Kernels &kernels, const Shape &shape, int64_t images, bool alone) {
  Format best;
  double least = 0;
  int64_t border = 0;
  for (int n = 1; n <= kernels.lanes && (n == 1 || n / 2 < images); n *= 2) {
    const bool dots = shape.height == 1 && shape.width == 1;
    const int most_along = dots && alone && n == kernels.lanes ? 8 : 1;
    for (int along = 1; along <= most_along && (along == 1 || n * along / 2 < images); along *= 2)
      for (int h = 1; h * n <= kernels.lanes && h <= shape.height; h++)
        for (int w = 1; h * w * n <= kernels.lanes && w <= shape.width; w++) {
          Format format;
          format.lanes = kernels.lanes;
          format.bytes = kernels.bytes;
          format.grid_n = n;
          format.grid_h = h;
          format.grid_w = w;
          format.along = along;
          format.height = ceil_div(shape.height, h);
          format.width = dots ? along : ceil_div(shape.width, w);
          const double cost = work(kernels, format, images);
          const int64_t around = format.height + 2 + format.width;
          const bool fewer = least == 0 || cost < least * (format.images() > best.images() ? 0.95 : 0.999);
          // Equal: the smaller halo, then the wider tile.
          const bool equal = !fewer && cost < least * 1.001 && format.images() == best.images();
          if (fewer || (equal && (around < border || (around == border && format.width > best.width)))) {
            best = format;
            least = cost;
            border = around;
          }
        }
  }
  return best;
}

bool find(const Format &f, const Shape &shape, int64_t y, int64_t x, int lane, Place &place) {
  const int in_grid = lane / (f.grid_h * f.grid_w);
  if (in_grid >= f.grid_n) return false;
  if (f.along > 1) {
    place = {int64_t{in_grid} * f.along + x, y, 0};
    return y == 0 && x >= 0 && x < f.along;
  }
  place = {in_grid, (lane / f.grid_w % f.grid_h) * f.height + y, (lane % f.grid_w) * f.width + x};
  return place.y >= 0 && place.y < shape.height && place.x >= 0 && place.x < shape.width;
}

int64_t index_of(const Format &f, const Place &p) {
  const int64_t column = f.along > 1 ? p.image % f.along : p.x % f.width, n = p.image / f.along;
  const int64_t lane = (n * f.grid_h + p.y / f.height) * f.grid_w + (f.along > 1 ? 0 : p.x / f.width);
  return f.line(p.y % f.height, column) * f.lanes + lane;
}

uint32_t LaneTable::add(const std::vector<int32_t> &lanes) {
  const auto step = static_cast<size_t>(lanes_);
  for (size_t i = 0; i < values_.size(); i += step)
    if (std::equal(lanes.begin(), lanes.end(), values_.begin() + static_cast<ptrdiff_t>(i)))
      return static_cast<uint32_t>(i / step);
  values_.insert(values_.end(), lanes.begin(), lanes.end());
  return static_cast<uint32_t>(values_.size() / step - 1);
}

Aligned<char> LaneTable::kept(int bytes) const {
  Aligned<char> table = aligned<char>(values_.size() * static_cast<size_t>(bytes));
  for (size_t i = 0; i < values_.size(); i++) {
    const auto half = static_cast<int16_t>(values_[i]);
    if (bytes == 2) std::memcpy(table.get() + 2 * i, &half, 2);
    else std::memcpy(table.get() + 4 * i, &values_[i], 4);
  }
  return table;
}

void Moves::run(const Kernels &kernels, const char *from, int64_t from_channel, char *to, int64_t to_channel,
                int64_t channels, int part) const {
  const bool all = part < 0 || parts.empty();
  const size_t begin = all ? 0 : parts[static_cast<size_t>(part)];
  const size_t end = all ? list.size() : parts[static_cast<size_t>(part) + 1];
  if (begin == end) return;
  kernels.move({from, to, static_cast<size_t>(channels), from_channel, to_channel, list.data() + begin, end - begin,
                permutations.get(), masks.get()});
}

void Moves::divide(const Format &f, const std::vector<int64_t> &cuts, uint32_t Move::*of) {
  const auto thread = [&](const Move &move) {
    return std::upper_bound(cuts.begin() + 1, cuts.end() - 1, f.row_of(move.*of)) - cuts.begin() - 1;
  };
  std::stable_sort(list.begin(), list.end(), [&](const Move &a, const Move &b) { return thread(a) < thread(b); });
  parts.assign(cuts.size(), 0);
  for (const Move &move : list) parts[static_cast<size_t>(thread(move)) + 1]++;
  std::partial_sum(parts.begin(), parts.end(), parts.begin());
}

namespace {

// What makes the halo, and those vectors within the tiles that `taken` asks for, given whether all their lanes lie in the
// map.
template <class Taken> Moves moves_of(const Format &f, const Shape &shape, Taken taken) {
  Moves patches;
  LaneTable moves(f.lanes), masks(f.lanes);
  std::vector<int32_t> from(static_cast<size_t>(f.lanes)), kept(static_cast<size_t>(f.lanes));
  for (int64_t y = -f.top; y < f.height + f.bottom; y++)
    for (int64_t x = -f.left; x < f.width + f.right; x++) {
      const bool inside = y >= 0 && y < f.height && x >= 0 && x < f.width;
      bool whole = true;
      const int64_t line = f.line(y, x);
      int64_t source = line;
      for (int lane = 0; lane < f.lanes; lane++) {
        Place place;
        const bool there = find(f, shape, y, x, lane, place), used = lane < f.grid_n * f.grid_h * f.grid_w;
        from[static_cast<size_t>(lane)] = lane;
        kept[static_cast<size_t>(lane)] = there || (inside && !used) ? -1 : 0;
        whole = whole && (there || !used);
        if (there && !inside) { // the same vector for every lane: tiles are of one size
          const int64_t index = index_of(f, place);
          source = index / f.lanes;
          from[static_cast<size_t>(lane)] = static_cast<int32_t>(index % f.lanes);
        }
      }
      if (inside && !taken(whole)) continue;
      patches.list.push_back({static_cast<uint32_t>(line), static_cast<uint32_t>(source), moves.add(from),
                              masks.add(kept), false, true});
    }
  patches.permutations = moves.kept(f.bytes);
  patches.masks = masks.kept(f.bytes);
  return patches;
}

} // namespace

Moves patches_for(const Format &f, const Shape &shape, bool clear) {
  Moves patches = moves_of(f, shape, [&](bool whole) { return clear && !whole; });
  // Lanes that lie outside are cleared before others copy them.
  std::stable_partition(patches.list.begin(), patches.list.end(), [](const Move &p) { return p.to == p.from; });
  return patches;
}

Format bare(Format format) {
  format.top = format.left = format.bottom = format.right = 0;
  return format;
}

Moves stripped(const Format &f) {
  const Format to = bare(f);
  Moves all;
  LaneTable moves(f.lanes), masks(f.lanes);
  std::vector<int32_t> same(static_cast<size_t>(f.lanes));
  std::iota(same.begin(), same.end(), 0);
  const uint32_t moved = moves.add(same), kept = masks.add(std::vector<int32_t>(same.size(), -1));
  for (int64_t y = 0; y < f.height; y++)
    for (int64_t x = 0; x < f.width; x++)
      all.list.push_back({static_cast<uint32_t>(to.line(y, x)), static_cast<uint32_t>(f.line(y, x)), moved, kept, false,
                          true});
  all.permutations = moves.kept(f.bytes);
  all.masks = masks.kept(f.bytes);
  return all;
}

Moves surrounded(const Format &f, const Shape &shape) {
  Moves all = moves_of(f, shape, [](bool) { return true; });
  const Format in = bare(f);
  // Of vectors that are padding alone nothing is kept: what they would repeat is there to be read.
  for (Move &move : all.list)
    move.from = static_cast<uint32_t>(in.line(f.row_of(move.from), f.column_of(move.from)));
  std::stable_sort(all.list.begin(), all.list.end(), [](const Move &a, const Move &b) { return a.from < b.from; });
  return all;
}

} // namespace granet
