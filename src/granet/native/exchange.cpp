// What each thread makes of every value, and what threads take from each other.
//
// What one processor has just written takes another one long to read, and then the first one long to write over. So of
// values with a halo, which is most of a small map, every thread has a copy of its own. What threads read of each other
// each of them also puts, without the halo, where it lies in a row: processors fetch ahead, and would fetch the halo, too.
// From there it is fetched, and the halo made again.
#include "program.hpp"

#include <algorithm>

namespace granet {
namespace {

std::vector<int64_t> evenly(int64_t of, int shares) {
  std::vector<int64_t> cuts;
  for (int share = 0; share <= shares; share++) cuts.push_back(of * share / shares);
  return cuts;
}

// Of large maps threads divide the rows of tiles: of what a thread reads, it then made all but a few rows itself. Of
// small maps they divide channels: else each thread would read every weight, for a few vectors.
bool has_rows(const Format &f, int shares) {
  const int64_t few = 16;
  const bool enough = f.height >= shares && f.height * f.width >= few * shares;
  const bool even = 100 * ceil_div(f.height, shares) * shares <= 115 * f.height;
  return shares > 1 && !f.flat() && f.along == 1 && enough && even;
}

// Whether all that lies in the halo lies in a tile too: windows with strides may read beyond the tiles of their outputs.
bool covered(const Buffer &buffer) {
  const Format &f = buffer.format;
  return f.height * f.grid_h >= buffer.shape.height && (f.along > 1 || f.width * f.grid_w >= buffer.shape.width);
}

// No cache holds such a value, so nothing is gained by a copy for every thread.
bool too_large(const Buffer &buffer) { return buffer.format.block_bytes(buffer.shape) > int64_t{1} << 23; }

// The rows, with those of the halo, that a thread reads for what it makes of the output.
Range read(const Step &step, const Buffer &in, const Buffer &out, Share share) {
  const Format &f = in.format;
  if (!out.by_rows || step.rearranges()) return {-f.top, f.height + f.bottom};
  const int64_t stride = f.height / out.format.height;
  const Range rows = share.rows(out);
  return {rows.begin * stride - f.top, rows.end * stride + f.bottom};
}

// What makes of tiles without a halo what each thread reads of the others'.
Moves fetched_by(const Step &step, const Buffer &in, const Buffer &out, int shares) {
  Moves moves = surrounded(in.format, in.shape);
  if (!in.by_rows) return moves; // of others' channels
  const std::vector<Move> all = std::move(moves.list);
  moves.list.clear();
  moves.parts = {0};
  for (int i = 0; i < shares; i++) {
    const Share share{i, shares};
    const Range wanted = read(step, in, out, share), own = share.rows(in);
    for (const Move &move : all) {
      const int64_t to = move.to / in.format.row() - in.format.top, from = move.from / in.format.width;
      if (to >= wanted.begin && to < wanted.end && (from < own.begin || from >= own.end)) moves.list.push_back(move);
    }
    moves.parts.push_back(moves.list.size());
  }
  return moves;
}

} // namespace

std::vector<int64_t> Step::deal(const Program &program) const {
  const Buffer &in = program.buffers[static_cast<size_t>(input)];
  if (!in.format.flat() && !in.by_rows) return in.cuts;
  return evenly(program.buffers[static_cast<size_t>(output)].shape.channels, program.shares);
}

void Program::deal() {
  for (const auto &step : steps) {
    Buffer &out = buffers[static_cast<size_t>(step->output)];
    out.by_rows = has_rows(out.format, shares);
    out.cuts = out.by_rows ? evenly(out.format.height, shares) : step->deal(*this);
  }
}

void Program::exchange() {
  fetched_.resize(steps.size());
  const size_t count = buffers.size();
  published_.resize(count);
  if (shares == 1) return;
  const auto whole = [&](const Step &step, int number) { // whether a thread reads all channels of it
    return (step.mixes() && number == step.input) || buffers[static_cast<size_t>(step.output)].by_rows;
  };
  std::vector<std::vector<const Step *>> readers(count);
  std::vector<std::vector<bool>> wanted(count); // the rows that any thread takes
  for (size_t i = 0; i < steps.size(); i++)
    for (int number : {steps[i]->input, steps[i]->other}) {
      if (number < 0) continue;
      const Step &step = *steps[i];
      const auto at = static_cast<size_t>(number);
      const Buffer in = buffers[at], out = buffers[static_cast<size_t>(step.output)];
      if (in.format.flat() || in.format == bare(in.format) || !covered(in) || too_large(in)) continue;
      const bool all = whole(step, number);
      const auto enough = [&](const Step *before) { // whether it took all that this step reads
        const Buffer &made = buffers[static_cast<size_t>(before->output)];
        const bool as_far = !made.by_rows || (!before->rearranges() && !step.rearranges() && out.by_rows &&
                                              made.format.height == out.format.height);
        return whole(*before, number) && (!in.by_rows || as_far);
      };
      if (std::any_of(readers[at].begin(), readers[at].end(), enough)) continue;
      if (!in.by_rows && !all && in.cuts == out.cuts) continue; // each thread reads what it made
      Moves moves = fetched_by(step, in, out, shares);
      if (moves.list.empty()) continue;
      readers[at].push_back(&step);
      wanted[at].resize(static_cast<size_t>(in.format.height));
      for (const Move &move : moves.list) wanted[at][static_cast<size_t>(move.from / in.format.width)] = true;
      fetched_[i].push_back({number, all, std::move(moves)});
    }
  for (size_t at = 0; at < count; at++) {
    if (readers[at].empty()) continue;
    const Buffer from = buffers[at];
    Buffer between{from.shape, bare(from.format)};
    between.first = from.first;
    between.last = from.last;
    between.kept = from.kept;
    buffers[at].published = add_buffer(between);
    published_[at] = stripped(from.format);
    auto &list = published_[at].list;
    const auto kept = [&](const Move &move) { return wanted[at][static_cast<size_t>(move.to / from.format.width)]; };
    list.erase(std::stable_partition(list.begin(), list.end(), kept), list.end());
    if (from.by_rows) published_[at].divide(from.format, from.cuts, &Move::from);
  }
}

void Program::fetch(const Frame &frame, size_t i, int64_t block, Share share) const {
  const Step &step = *steps[i];
  for (const Fetched &fetched : fetched_[i]) {
    const Buffer &buffer = buffers[static_cast<size_t>(fetched.buffer)];
    const Format &to = buffer.format, &from = buffers[static_cast<size_t>(buffer.published)].format;
    const int64_t images = to.images(), first = block * step.images, end = std::min(first + step.images, frame.valid);
    const Range wanted = fetched.all ? Range{0, buffer.shape.channels}
                                   : share.channels(buffers[static_cast<size_t>(step.output)]);
    const Range own = buffer.by_rows ? Range{wanted.end, wanted.end} : share.channels(buffer);
    for (const Range part : {Range{wanted.begin, std::min(wanted.end, own.begin)},
                             Range{std::max(wanted.begin, own.end), wanted.end}})
      for (int64_t one = first / images; part.count() > 0 && one * images < end; one++)
        fetched.moves.run(kernels, frame.at(buffer.published, one) + part.begin * from.channel_bytes(), from.channel(),
                        frame.at(fetched.buffer, one) + part.begin * to.channel_bytes(), to.channel(), part.count(),
                        share.index);
  }
}

void Program::publish(const Frame &frame, size_t i, int64_t block, Share share) const {
  const int number = steps[i]->output;
  const Buffer &buffer = buffers[static_cast<size_t>(number)];
  if (buffer.published < 0) return;
  const Format &from = buffer.format, &to = buffers[static_cast<size_t>(buffer.published)].format;
  const Range own = share.channels(buffer);
  const char *made = frame.at(number, block) + own.begin * from.channel_bytes();
  published_[static_cast<size_t>(number)].run(kernels, made, from.channel(),
                                              frame.at(buffer.published, block) + own.begin * to.channel_bytes(),
                                              to.channel(), own.count(), share.index);
}

} // namespace granet
