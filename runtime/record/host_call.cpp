// HostCall: a prepared kernel, with the memory of its calls.
#include <algorithm>
#include <mutex>
#include <numeric>
#include <string>

#include "engine/base/bind.h"
#include "engine/base/error.h"
#include "engine/base/plural.h"
#include "runtime/device/names.h"
#include "runtime/record/host_stream.h"
#include "runtime/submit/pipeline.h"

namespace tessera::vulkan {
namespace {
Scopes scopes_of(const Program& p, bool dispatches, const std::vector<PrepareOptions::Image>& images) {
  Scopes s;
  const auto add = [&](Stage stage) {
    s.wait_stages |= stage_flags(mask(stage));
    s.wait_accesses |= access_flags(mask(stage), true);
    s.signal_stages |= stage_flags(mask(stage));
    s.signal_accesses |= access_flags(mask(stage), false);
  };
  for (const ProgramArg& a : p.args)
    if (a.alias >= 0 || (!a.is_output && a.written)) add(Stage::transfer);
  for (const PrepareOptions::Image& i : images) {
    add(Stage::compute);
    if (i.argument < p.args.size() && p.args[i.argument].is_output && i.like.state()->packed()) add(Stage::transfer);
  }
  if (dispatches) add(Stage::compute);
  return s;
}
}  // namespace

HostCall::HostCall(const Device& d, std::shared_ptr<const Program> p, const PrepareOptions& options)
    : device(d),
      program(std::move(p)),
      dims(options.dims),
      largest(options.dims),
      before(options.dims),
      frames_in_flight(options.frames_in_flight),
      calls_per_frame(options.calls_per_frame) {
  bind_sizes();
  pipeline = &device.context()->pipeline(*program);
  scopes = scopes_of(*program, bound.count > 0, options.images);
  label = "dispatch " + program->name;
  range = with_line(program->name, program->loc);
  alone = std::make_unique<HostStream>(device);
  take_images(options);
  if (!options.images.empty()) take_staging();
  make_slots(!options.images.empty());
}

// Shapes and what follows from them, of the sizes that PrepareOptions::dims gives.
void HostCall::bind_sizes() {
  const auto positive = [&](int v, const char* name) {
    if (v < 1)
      throw SpecError(program->name + ": PrepareOptions::" + name + " is " + std::to_string(v) + ", not 1 or more",
                      program->loc);
  };
  positive(frames_in_flight, "frames_in_flight");
  positive(calls_per_frame, "calls_per_frame");
  const auto value = [&](const Extent& e, const std::string& of) {
    std::vector<std::string> names;
    e.collect_names(names);
    for (const std::string& n : names)
      if (!dims.contains(n))
        throw SpecError(
            program->name + ": " + of + " has the run-time size " + n + ", which PrepareOptions::dims does not give",
            program->loc);
    return e.eval(dims);
  };
  for (const ProgramArg& a : program->args) {
    Shape s;
    for (const Extent& e : a.shape) s.push_back(value(e, a.origin));
    for (const int64_t size : s)
      if (size < 0)
        throw SpecError(program->name + ": " + a.origin + ": shape " + tessera::to_string(s) + " has a negative size",
                        program->loc);
    shapes.push_back(std::move(s));
    num_inputs += !a.is_output;
  }
  for (const auto& [name, n] : dims)
    if (n < 0)
      throw SpecError(program->name + ": PrepareOptions::dims gives the size " + name + " = " + std::to_string(n) +
                          ", which is negative",
                      program->loc);
  for (const Extent& e : program->grid) value(e, "the grid");
  check_grid("");
  for (const Extent& e : program->extents) value(e, "the code");
  value(program->num_units, "the grid");
  bound = vulkan::bind(*program, dims, device, Cut::loops);
  if (program->open_ended) tell_at_the_end(bound.slices);
  prepared = bound;
  for (size_t i = 0; i < shapes.size(); ++i) {
    int64_t n = std::count(shapes[i].begin(), shapes[i].end(), 0) ? 0 : size_bytes(program->args[i].dtype);
    for (const int64_t dim : shapes[i]) {
      if (n > 0 && dim > INT64_MAX / n)
        throw SpecError(program->name + ": " + program->args[i].origin + ": " + tessera::to_string(shapes[i]) +
                            " has more elements than any memory",
                        program->loc);
      n *= dim;
    }
    bytes.push_back(n);
  }
}

// Two axes below 0 make as many programs as two above.
void HostCall::check_grid(const char* of) const {
  for (size_t i = 0; i < program->grid.size(); ++i)
    if (const int64_t n = program->grid[i].eval(dims); n < 0)
      throw SpecError(program->name + ": " + of + "grid axis " + std::to_string(i) + " is " + std::to_string(n),
                      program->loc, "grid sizes must not be negative");
}

void take_values(DimValues& to, const DimValues& from) {
  for (auto a = to.begin(), b = to.end(); a != b; ++a) a->second = from.find(a->first)->second;
}

void put_sizes(const Resized& of, std::span<const NamedSize> sizes, const DimValues& largest, DimValues& into) {
  const auto fail = [&](const NamedSize& s, const std::string& what, const std::string& note = {}) {
    throw SpecError(of.name + ": resize: the size " + std::string(s.name) + what, of.loc, note);
  };
  for (const NamedSize& s : sizes) {
    const auto most = largest.find(s.name);
    if (most == largest.end()) fail(s, std::string(" is none that ") + of.option + " gives");
    if (s.value < 0) fail(s, " is " + std::to_string(s.value) + ", which is negative");
    if (s.value > most->second)
      fail(s,
           " is " + std::to_string(s.value) + " but the " + of.what + " has been prepared for at most " +
               std::to_string(most->second),
           "prepare it for the largest size that is to come");
    into.find(s.name)->second = s.value;
  }
}

void HostCall::resize(std::span<const NamedSize> sizes) {
  take_values(before, dims);
  ++version;
  try {
    put_sizes({program->name, program->loc, "kernel", "PrepareOptions::dims"}, sizes, largest, dims);
    use_sizes();
  } catch (...) {
    take_values(dims, before);
    use_sizes();
    throw;
  }
}

// Everything that follows from `dims`, in place.
void HostCall::use_sizes() {
  const auto beyond = [&](const std::string& what, int64_t needed, int64_t has) {
    throw SpecError(program->name + ": resize: " + what + " takes " + std::to_string(needed) +
                        " bytes but has been prepared with " + std::to_string(has),
                    program->loc, "prepare the kernel for these sizes");
  };
  for (size_t i = 0; i < shapes.size(); ++i) {
    const ProgramArg& a = program->args[i];
    for (size_t d = 0; d < shapes[i].size(); ++d) {
      shapes[i][d] = a.shape[d].eval(dims);
      if (shapes[i][d] < 0)
        throw SpecError(program->name + ": resize: " + a.origin + ": shape " + tessera::to_string(shapes[i]) +
                            " has a negative size",
                        program->loc);
    }
    const int64_t now = num_elements(shapes[i]) * size_bytes(a.dtype);
    if (now > bytes[i]) beyond(a.origin, now, bytes[i]);
    if (like[i] && shapes[i].size() > like[i]->dims().size()) channels[i] = static_cast<int>(shapes[i].back());
    const uint64_t texels = like[i] && channels[i] > 0 && shapes[i].size() > like[i]->dims().size()
                                ? static_cast<uint64_t>(num_elements(shapes[i])) / static_cast<uint64_t>(channels[i])
                                : static_cast<uint64_t>(num_elements(shapes[i]));
    if (like[i] && i >= num_inputs && like[i]->packed() && texels > like[i]->texels())
      beyond("the image of " + a.origin, static_cast<int64_t>(texels * like[i]->format->texel_bytes()),
             static_cast<int64_t>(like[i]->texels() * like[i]->format->texel_bytes()));
    if (like[i] && (channels[i] < 1 || channels[i] > like[i]->format->channels))
      throw SpecError(program->name + ": resize: " + a.origin + ": shape " + tessera::to_string(shapes[i]) + " has " +
                          std::to_string(channels[i]) + " channels but " + like[i]->describe() + " has 1 to " +
                          std::to_string(like[i]->format->channels),
                      program->loc);
  }
  check_grid("resize: ");
  rebind(*program, dims, device, Cut::loops, bound);
  if (program->open_ended) tell_at_the_end(bound.slices);
  if (bound.count > 0 && prepared.count == 0)
    throw SpecError(program->name + ": resize: the grid takes " + std::to_string(bound.count) +
                        " workgroups but the kernel has been prepared for none",
                    program->loc, "prepare the kernel for these sizes");
  if (bound.scratch_bytes > prepared.scratch_bytes)
    beyond("the scratch arena", bound.scratch_bytes, prepared.scratch_bytes);
  if (program->indirect_table && dispatches() > std::max<size_t>(prepared.slices.size(), 1))
    throw SpecError(program->name + ": resize: a call takes " + std::to_string(dispatches()) +
                        " dispatches but has been prepared for " +
                        std::to_string(std::max<size_t>(prepared.slices.size(), 1)),
                    program->loc, "prepare the kernel for these sizes");
  const size_t addresses = num_addresses(*program);
  for (Slot& slot : slots)
    for (Call& c : slot.calls) put_sizes(*program, bound.sizes, c.block.subspan(addresses * sizeof(uint64_t)));
  if (bound.cut()) slice_blocks = argument_blocks(*program, std::vector<uint64_t>(addresses, 0), bound);
}

void HostCall::take_images(const PrepareOptions& options) {
  const size_t n = program->args.size();
  like.resize(n);
  channels.resize(n);
  image_ranges.resize(n);
  for (const PrepareOptions::Image& i : options.images) {
    if (i.argument >= n)
      throw SpecError(program->name + ": PrepareOptions::images names argument " + std::to_string(i.argument) + " of " +
                          std::to_string(n),
                      program->loc);
    const ProgramArg& a = program->args[i.argument];
    const std::string where = program->name + ": " + a.origin + ": ";
    like[i.argument] = i.like.state();
    image_ranges[i.argument] = (a.is_output ? "write " : "read ") + a.origin;
    if (!(i.like.state()->device == device))
      throw SpecError(where + "the image is on another Device than the kernel", program->loc);
    channels[i.argument] = i.like.state()->check_shape(where, shapes[i.argument], a.dtype);
    if (a.is_output) i.like.state()->check_write(where);
    else i.like.state()->check_read(where);
  }
}

// The images' arrays and bytes of texels, which all recorded calls share. An output that is aliased to an image is
// where that was read into.
void HostCall::take_staging() {
  std::vector<Staging::Need> needs;
  std::vector<size_t*> users;
  staged.resize(like.size());
  const auto need = [&](uint64_t size, std::string what, size_t& user) {
    needs.push_back({size, std::move(what)});
    users.push_back(&user);
  };
  const auto aliased = [&](size_t i) {
    return program->args[i].alias >= 0 && like[static_cast<size_t>(program->args[i].alias)];
  };
  for (size_t i = 0; i < like.size(); ++i) {
    if (!like[i]) continue;
    const std::string& origin = program->args[i].origin;
    if (!aliased(i)) need(static_cast<uint64_t>(bytes[i]), program->name + ": the image " + origin, staged[i].array);
    if (i >= num_inputs && like[i]->packed())
      need(like[i]->packed_bytes(), program->name + ": the texels of " + origin, staged[i].texels);
  }
  std::vector<size_t> order(needs.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return needs[a].bytes > needs[b].bytes; });
  std::vector<Staging::Need> sorted;
  for (size_t k = 0; k < order.size(); ++k) {
    sorted.push_back(std::move(needs[order[k]]));
    *users[order[k]] = k;
  }
  for (size_t i = 0; i < like.size(); ++i)
    if (like[i] && aliased(i)) staged[i].array = staged[static_cast<size_t>(program->args[i].alias)].array;
  staging = std::make_unique<Staging::Lease>(images_of(*device.context()).staging(), device.context(), sorted);
  pieces = sorted.size();
}

// The memory of every call of every frame, with argument blocks that lack the addresses of arrays.
void HostCall::make_slots(bool images) {
  const size_t n = program->args.size();
  std::vector<std::vector<std::byte>> blocks =
      argument_blocks(*program, std::vector<uint64_t>(num_addresses(*program), 0), bound);
  const std::vector<std::byte> block = blocks[0];
  if (bound.cut()) slice_blocks = std::move(blocks);
  sum.resize(block.size());
  slots.resize(static_cast<size_t>(frames_in_flight));
  for (Slot& slot : slots) {
    slot.calls.resize(static_cast<size_t>(calls_per_frame));
    slot.blocks.resize(slot.calls.size() * block.size());
    slot.arguments.resize(slot.calls.size() * n);
    for (size_t number = 0; number < slot.calls.size(); ++number) {
      Call& c = slot.calls[number];
      c.block = std::span(slot.blocks).subspan(number * block.size(), block.size());
      std::copy(block.begin(), block.end(), c.block.begin());
      c.arguments = std::span(slot.arguments).subspan(number * n, n);
      if (images) c.images.resize(n);
      c.staging.resize(pieces);
      make_memory(c, slots[0].calls[number]);
    }
  }
}

// `first` is the same call of the first frame, `c` itself there. What only the device uses is shared with it, for
// frames run one after another.
void HostCall::make_memory(Call& c, const Call& first) {
  const std::shared_ptr<Context>& context = device.context();
  const size_t n = program->args.size();
  for (size_t i = 0; i < num_inputs && bound.count > 0; ++i) {
    const ProgramArg& a = program->args[i];
    if (like[i] || !a.written || bytes[i] == 0) continue;
    c.own.resize(n);
    c.own[i] = &c != &first ? first.own[i]
                            : std::make_shared<Buffer>(context, static_cast<uint64_t>(bytes[i]), Memory::array,
                                                       program->name + ": the copy of " + a.origin);
  }
  if (bound.count == 0) return;
  if (program->scratch_bytes > 0) {
    c.scratch = &c != &first ? first.scratch : scratch_of(context, *program, bound);
    c.put_address(n, c.scratch->address());
  }
  c.dims = dims;
  if (program->report_bytes > 0) take_report(c);
  if (program->indirect_table)
    c.table = std::make_unique<Buffer>(context, block_stride(c.block.size()) * (dispatches() - 1) + c.block.size(),
                                       Memory::upload, program->name + ": the argument table of a frame");
}

HostCall::~HostCall() {
  if (device.context()->ended()) return;
  for (Slot& slot : slots) {
    try {
      restart(slot, slot.frame);
    } catch (...) {  // the device is lost, or memory is short
    }
  }
}

void HostCall::take_report(Call& c) {
  Context& context = *device.context();
  c.report = context.report_buffer(*program);
  const std::lock_guard lock(context.mutex());
  context.clear_report("recording of " + program->name, *c.report, *program);
  c.put_address(num_addresses(*program) - 1, c.report->address());
}

// Addresses are 0 in a slice's own block, but for how far its arena lies before the call's. The call's block has the
// addresses of this recording, which allocates nothing: so they are added here, and not given to argument_blocks().
std::span<const std::byte> HostCall::block(const Call& c, size_t dispatch) {
  if (!bound.cut()) return c.block;
  std::copy(slice_blocks[dispatch].begin(), slice_blocks[dispatch].end(), sum.begin());
  for (size_t at = 0; at < num_addresses(*program) * sizeof(uint64_t); at += sizeof(uint64_t)) {
    uint64_t a, b;
    std::memcpy(&a, &c.block[at], sizeof a);
    std::memcpy(&b, &sum[at], sizeof b);
    a += b;
    std::memcpy(&sum[at], &a, sizeof a);
  }
  return sum;
}

// The slot's last frame is done: its reports are read. Its arrays go when others take their place, or with the next
// frame in which there are fewer calls.
void HostCall::restart(Slot& slot, uint64_t frame) {
  for (size_t i = slot.used; i < slot.calls.size(); ++i) {
    for (auto& a : slot.calls[i].arguments) a.reset();
    for (auto& image : slot.calls[i].images) image.reset();
    for (auto& piece : slot.calls[i].staging) piece.reset();
  }
  for (size_t i = 0; i < slot.used; ++i) {
    Call& c = slot.calls[i];
    if (program->report_bytes == 0 || prepared.count == 0) continue;
    if (!c.report) {  // it could not be taken when it was to be
      take_report(c);
      continue;
    }
    uint32_t words[8] = {};
    c.report->host_read(words, 0, sizeof words);
    if (words[PrintReport::kFlags] == 0 &&
        (program->prints.empty() || (words[PrintReport::kUsed] == 0 && words[PrintReport::kDropped] == 0)))
      continue;
    Context& context = *device.context();
    context.settle_now(outcome_of(*program, c.dims, c.longest_loop, std::move(c.report)));
    take_report(c);
  }
  slot.frame = frame;
  slot.used = 0;
}

// For so many more calls.
void HostCall::check_room(uint64_t frame, size_t more) const {
  if (frame < newest)
    throw SpecError(
        program->name + ": frame " + std::to_string(frame) + " is recorded after frame " + std::to_string(newest),
        program->loc, "number frames upwards");
  const size_t calls = (current && newest == frame ? current->used : 0) + more;
  if (calls > static_cast<size_t>(calls_per_frame))
    throw SpecError(program->name + ": frame " + std::to_string(frame) + " has " + plural(calls, "call") +
                        " but PrepareOptions::calls_per_frame is " + std::to_string(calls_per_frame),
                    program->loc);
}

HostCall::Call& HostCall::next(uint64_t frame) {
  check_room(frame, 1);
  if (!current || newest != frame) {
    Slot& slot = slots[frame % slots.size()];
    if (slot.frame != frame) restart(slot, frame);
    newest = frame;
    current = &slot;
  }
  Call& c = current->calls[current->used];
  if (program->report_bytes > 0) {
    take_values(c.dims, dims);
    c.longest_loop = bound.longest_loop;
  }
  return c;
}

}  // namespace tessera::vulkan
