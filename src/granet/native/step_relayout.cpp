// From one layout to another: the caller's arrays to tiles and back, and between tiles.
#include "program.hpp"

#include <algorithm>
#include <cstring>

namespace granet {
namespace {

class RelayoutStep final : public Step {
public:
  RelayoutStep(int64_t step_h, int64_t step_w) : step_h_(step_h), step_w_(step_w) {}
  const char *kind() const override { return "layout"; }
  bool rearranges() const override { return true; }
  int64_t bytes() const override {
    size_t all = 0;
    for (const auto *ways : {&whole_, &last_})
      for (const Way &way : *ways) all += way.table.size() * 4 + way.moves.list.size() * sizeof(Move);
    return static_cast<int64_t>(all);
  }

  void prepare(const Program &program) override {
    const Buffer &in = program.buffers[static_cast<size_t>(input)], &out = program.buffers[static_cast<size_t>(output)];
    same_ = in.format == out.format && in.shape == out.shape;
    if (same_) return;
    const int from = in.format.images(), to = out.format.images();
    period_ = std::max(1, from / to);
    whole_ = ways(in, out, to);
    const auto valid = static_cast<int>(program.valid(program.chunks() - 1) % to);
    if (valid) last_ = ways(in, out, valid);
  }

  void run(const Frame &frame, int64_t block, Share share) const override {
    const Program &program = frame.program;
    const Buffer &in = program.buffers[static_cast<size_t>(input)], &out = program.buffers[static_cast<size_t>(output)];
    const int64_t images = out.format.images(), first = block / period_ * period_ * images;
    const Range channels = share.channels(out), rows = share.rows(out);
    const int64_t begin = channels.begin, end = channels.end;
    const int64_t in_step = in.format.channel_bytes(), out_step = out.format.channel_bytes();
    const char *from = frame.at(input, first / in.format.images()) + begin * in_step;
    char *to = frame.at(output, block) + begin * out_step;
    if (same_) { // without tiles: else nothing would be copied
      std::memcpy(to, from, static_cast<size_t>((end - begin) * out_step));
      return;
    }
    const bool partial = !last_.empty() && frame.valid - block * images < images;
    const Way &way = (partial ? last_ : whole_)[static_cast<size_t>(block % period_)];
    way.moves.run(program.kernels, from, in.format.channel(), to, out.format.channel(), end - begin, share.part());
    if (way.table.empty()) return;
    const Format &f = out.format;
    for (int64_t first = 0, last; first < f.lines(); first = last) { // the rows, and what repeats them in the halo
      const auto mine = [&](int64_t line) { return f.row_of(line) >= rows.begin && f.row_of(line) < rows.end; };
      const bool made = mine(first);
      for (last = first; last < f.lines() && mine(last) == made;) last += f.row();
      if (!made) continue;
      const int32_t *table = way.table.data() + first * f.lanes;
      const auto count = static_cast<size_t>((last - first) * f.lanes);
      for (int64_t c = 0; c < end - begin; c++)
        if (in.format.flat())
          program.kernels.take(reinterpret_cast<const float *>(from + c * in_step),
                               to + c * out_step + first * f.vector_bytes(), table, count);
        else
          program.kernels.give(from + c * in_step, reinterpret_cast<float *>(to + c * out_step), table, count);
    }
  }

private:
  // Where every number of a channel comes from; between tiles, how its vectors are made of others.
  struct Way {
    std::vector<int32_t> table;
    Moves moves;
  };

  // For each block of a period.
  std::vector<Way> ways(const Buffer &in, const Buffer &out, int valid) const {
    const Format &f = out.format;
    const int64_t of_block = in.format.block_bytes(in.shape) / in.format.bytes;
    std::vector<Way> all;
    for (int block = 0; block < period_; block++) {
      std::vector<int32_t> table(static_cast<size_t>(f.lines() * f.lanes), -1);
      for (int64_t y = -f.top; y < f.height + f.bottom; y++)
        for (int64_t x = -f.left; x < f.width + f.right; x++)
          for (int lane = 0; lane < f.lanes; lane++) {
            Place place;
            if (!find(f, out.shape, y, x, lane, place) || place.image >= valid) continue;
            const int64_t image = place.image + int64_t{block} * f.images(), of_in = in.format.images();
            const int64_t index = image / of_in * of_block +
                                  index_of(in.format, {image % of_in, place.y * step_h_, place.x * step_w_});
            require(index <= INT32_MAX, "a value is too large for this batch", GRANET_UNSUPPORTED);
            table[static_cast<size_t>(f.line(y, x) * f.lanes + lane)] = static_cast<int32_t>(index);
          }
      Way way;
      if (in.format.flat() || f.flat()) way.table = std::move(table);
      else way.moves = moves_of(table, f);
      if (out.by_rows) way.moves.divide(f, out.cuts, &Move::to);
      all.push_back(std::move(way));
    }
    return all;
  }

  // A vector that is read is read once: all lanes that come from it are moved together.
  static Moves moves_of(const std::vector<int32_t> &table, const Format &f) {
    const auto lanes = static_cast<size_t>(f.lanes);
    Moves made;
    LaneTable moved(f.lanes), kept(f.lanes);
    for (size_t line = 0; line < table.size() / lanes; line++) {
      const int32_t *from = table.data() + line * lanes;
      std::vector<int32_t> sources;
      for (size_t lane = 0; lane < lanes; lane++)
        if (from[lane] >= 0) sources.push_back(from[lane] / f.lanes);
      std::sort(sources.begin(), sources.end());
      sources.erase(std::unique(sources.begin(), sources.end()), sources.end());
      if (sources.empty()) sources.push_back(0); // of which nothing is kept
      for (int32_t source : sources) {
        std::vector<int32_t> lane_of(lanes, 0), mask(lanes, 0);
        for (size_t lane = 0; lane < lanes; lane++)
          if (from[lane] >= 0 && from[lane] / f.lanes == source) {
            lane_of[lane] = from[lane] % f.lanes;
            mask[lane] = -1;
          }
        made.list.push_back({static_cast<uint32_t>(line), static_cast<uint32_t>(source), moved.add(lane_of),
                             kept.add(mask), source != sources.front(), source == sources.back()});
      }
    }
    made.permutations = moved.kept(f.bytes);
    made.masks = kept.kept(f.bytes);
    return made;
  }

  int64_t step_h_, step_w_;
  bool same_ = false;
  int period_ = 1;
  std::vector<Way> whole_, last_;
};

} // namespace

std::unique_ptr<Step> make_relayout(int64_t step_h, int64_t step_w) {
  return std::make_unique<RelayoutStep>(step_h, step_w);
}

} // namespace granet
