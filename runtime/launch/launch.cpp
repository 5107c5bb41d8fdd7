#include "runtime/launch.h"

#include <algorithm>
#include <mutex>
#include <optional>

#include "engine/base/bind.h"
#include "engine/base/plural.h"
#include "runtime/device/names.h"
#include "runtime/launch/bound.h"
#include "runtime/submit/context.h"
#include "runtime/submit/pipeline.h"

namespace tessera {

using vulkan::Access;
using vulkan::Bound;
using vulkan::Buffer;
using vulkan::Context;
using vulkan::GroupSlice;
using vulkan::has_names;
using vulkan::name_object;
using vulkan::Outcome;

namespace {

CallSignature call_signature(const Program& p) {
  CallSignature s{p.name, p.loc, {}, 0, {}, {}};
  s.args.reserve(p.args.size());
  for (const ProgramArg& a : p.args) {
    s.args.push_back({a.origin, a.dtype, a.shape, a.loc});
    s.num_inputs += !a.is_output;
    for (const Extent& e : a.shape) e.collect_names(s.sizes);
  }
  for (const Extent& e : p.grid) {
    s.grid.push_back(&e);
    e.collect_names(s.sizes);
  }
  for (const Extent& e : p.extents) e.collect_names(s.sizes);
  p.num_units.collect_names(s.sizes);
  return s;
}

DeviceArray checked_output(const Device& device, const Program& p, const CallSignature& call, size_t position,
                           const DeviceArray& a, const DimValues& dims) {
  if (!a.valid())
    throw SpecError(p.name + ": " + p.args[position].origin +
                        ": no array is given for it, and it takes the memory of no donated argument",
                    p.loc);
  const Shape shape = bind_shape(call, position, dims);
  if (a.dtype() != p.args[position].dtype || a.shape() != shape)
    throw SpecError(p.name + ": " + p.args[position].origin + ": the result is " +
                        std::string(name(p.args[position].dtype)) + to_string(shape) + " but its array is " +
                        std::string(name(a.dtype())) + to_string(a.shape()),
                    p.loc);
  if (!(a.device() == device))
    throw SpecError(p.name + ": " + p.args[position].origin + ": the array is on another Device than the call", p.loc);
  return a;
}

}  // namespace

DimValues bind_dims(const Program& p, const std::vector<std::pair<DType, Shape>>& inputs, const DimValues& given) {
  return bind_dims(call_signature(p), inputs, given);
}

std::vector<std::pair<DType, Shape>> output_types(const Program& p, const std::vector<std::pair<DType, Shape>>& inputs,
                                                  const DimValues& given) {
  const CallSignature call = call_signature(p);
  const DimValues dims = bind_dims(call, inputs, given);
  std::vector<std::pair<DType, Shape>> types;
  for (size_t i = inputs.size(); i < p.args.size(); ++i) types.emplace_back(p.args[i].dtype, bind_shape(call, i, dims));
  return types;
}

std::array<uint32_t, 3> fold_workgroups(int64_t count, const std::array<uint32_t, 3>& limits) {
  auto up = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  const int64_t z = up(count, static_cast<int64_t>(limits[0]) * limits[1]);
  const int64_t y = up(up(count, z), limits[0]);
  const int64_t x = up(up(count, z), y);
  return {static_cast<uint32_t>(x), static_cast<uint32_t>(y), static_cast<uint32_t>(z)};
}

void prepare(const Device& device, const Program& program) { device.context()->pipeline(program); }
PipelineCounts pipeline_counts(const Device& device) {
  return {device.context()->pipelines_made, device.context()->pipelines_from_disk};
}

namespace {

/// One call. What may fail comes before anything is recorded.
class Launch {
 public:
  Launch(const Device& device, const Program& program, const std::vector<DeviceArray>& inputs)
      : device_(device), context_(device.context()), p_(program), inputs_(inputs) {}

  /// `into`: the outputs' arrays, or null where they are to be made.
  std::vector<DeviceArray> run(const std::vector<DeviceArray>* into, const DimValues& given) {
    take_inputs();
    const CallSignature call = call_signature(p_);
    dims_ = bind_dims(call, types_, given);
    take_outputs(call, into);
    for (size_t i = 0; i < inputs_.size(); ++i)
      if (inputs_[i].donated())
        check_donation(p_, i, inputs_.size(), [&](size_t j) { return buffers_[i] && buffers_[j] == buffers_[i]; });
    bound_ = vulkan::bind(p_, dims_, device_);
    given_buffers_ = buffers_;
    find_copies();
    pipeline_ = &context_->pipeline(p_);
    if (bound_.count > 0) find_memory();
    if (bound_.count > 0 || !copies_.empty()) submit();
    else give();
    return std::move(outputs_);
  }

 private:
  void take_inputs() {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const std::string where = p_.name + ": argument " + std::to_string(i);
      if (i < p_.args.size() && p_.args[i].by_value) {
        values_.resize(p_.args.size());
        values_[i] = value_of(p_, i, inputs_[i].number());
        buffers_.emplace_back();
        types_.emplace_back(p_.args[i].dtype, Shape{});
        continue;
      }
      buffers_.push_back(inputs_[i].buffer(where));
      if (!(inputs_[i].device() == device_))
        throw SpecError(where + ": the array is on another Device than the call", p_.loc);
      types_.emplace_back(inputs_[i].dtype(), inputs_[i].shape());
    }
  }

  void take_outputs(const CallSignature& call, const std::vector<DeviceArray>* into) {
    for (size_t i = inputs_.size(); i < p_.args.size(); ++i) {
      const int alias = p_.args[i].alias;
      const bool takes = alias >= 0 && inputs_[static_cast<size_t>(alias)].donated();
      if (takes && into && into->at(i - inputs_.size()).valid())
        throw SpecError(p_.name + ": " + p_.args[i].origin +
                            ": an array is given for it, but it takes the memory of argument " + std::to_string(alias) +
                            ", which is donated",
                        p_.loc, "give no array for it, or do not donate the argument");
      if (takes) outputs_.push_back(inputs_[static_cast<size_t>(alias)].share());
      else if (into) outputs_.push_back(checked_output(device_, p_, call, i, into->at(i - inputs_.size()), dims_));
      else outputs_.emplace_back(device_, bind_shape(call, i, dims_), p_.args[i].dtype);
      buffers_.push_back(outputs_.back().buffer(p_.name));
      if (into && !takes && buffers_.back())
        for (size_t j = 0; j < i; ++j)
          if (buffers_[j] == buffers_.back())
            throw SpecError(p_.name + ": " + p_.args[i].origin + ": the array is " + p_.args[j].origin + "'s too",
                            p_.loc, "give outputs arrays of their own, or donate the argument that one is aliased to");
      if (has_names(context_->vk()) && !takes && !into && buffers_.back())
        name_object(context_->vk(), context_->handle(), buffers_.back()->handle(),
                    buffers_.back()->what() + ", " + p_.args[i].origin + " of " + p_.name);
    }
  }

  /// Of aliased inputs into outputs that have memory of their own, and of inputs that the code writes.
  void find_copies() {
    for (size_t i = inputs_.size(); i < p_.args.size(); ++i)
      if (p_.args[i].alias >= 0 && buffers_[i])
        if (const auto& from = buffers_[static_cast<size_t>(p_.args[i].alias)]; from != buffers_[i])
          copies_.emplace_back(from, buffers_[i]);
    for (size_t i = 0; i < inputs_.size(); ++i)
      if (p_.args[i].written && bound_.count > 0 && buffers_[i] && !inputs_[i].donated()) {
        const DeviceArray own(device_, types_[i].second, types_[i].first);
        copies_.emplace_back(buffers_[i], own.buffer(p_.name));
        buffers_[i] = copies_.back().second;
      }
  }

  /// The arena, the report, and what is pushed; with what each dispatch reads and writes.
  void find_memory() {
    std::vector<uint64_t> addresses;
    for (size_t i = 0; i < buffers_.size(); ++i) {
      addresses.push_back(buffers_[i] ? buffers_[i]->address() : p_.args[i].by_value ? values_[i] : 0);
      if (buffers_[i]) vulkan::check_alignment(p_, i, addresses[i]);
      // An argument that the code neither reads nor writes is still kept until the call is done.
      if (buffers_[i])
        accesses_.push_back({buffers_[i].get(), p_.args[i].read, p_.args[i].written, 0, buffers_[i]->size()});
    }
    if (p_.scratch_bytes > 0) {
      scratch_ = vulkan::scratch_of(context_, p_, bound_);
      addresses.push_back(scratch_->address());
      accesses_.push_back({scratch_.get(), true, true, 0, scratch_->size()});
    }
    if (p_.report_bytes > 0) {
      report_ = context_->report_buffer(p_);
      addresses.push_back(report_->address());
    }
    pushes_ = vulkan::pushes_of(context_, p_, addresses, bound_, table_);
    if (table_) accesses_.push_back({table_.get(), true, false, 0, table_->size()});
    if (report_) accesses_.push_back({report_.get(), true, true, 0, report_->size()});
  }

  void submit() {
    for (size_t i = 0; i < buffers_.size(); ++i)
      if (buffers_[i] && (p_.args[i].written || p_.args[i].alias >= 0) && buffers_[i]->host_reads())
        shown_.push_back(buffers_[i].get());
    if (report_) shown_.push_back(report_.get());
    std::unique_lock lock(context_->mutex());
    if (p_.open_ended && bound_.cut()) turn_.emplace(context_->turns(), lock, uses());
    else context_->turns().wait(lock, [&] { return uses(); });
    if (table_) context_->recorder().note_host_write("launch of " + p_.name, *table_, table_->size());
    if (report_) context_->clear_report("launch of " + p_.name, *report_, p_);
    std::vector<std::shared_ptr<Outcome>> from = doubts();
    work_ = vulkan::work_of(p_, dims_);
    if (bound_.cut()) submit_slices(lock);
    else submit(0, 1);
    give();
    set_outcome(std::move(from));
  }

  /// Of the arguments' arrays; all else is the call's own.
  std::vector<vulkan::Turns::Use> uses() const {
    std::vector<vulkan::Turns::Use> all;
    for (size_t i = 0; i < buffers_.size(); ++i)
      all.push_back({given_buffers_[i].get(), i >= inputs_.size() || inputs_[i].donated()});
    return all;
  }

  /// Slices up to one that ends a submission, then the next ones; with the lock held but where it waits.
  void submit_slices(std::unique_lock<std::mutex>& lock) {
    const std::vector<GroupSlice>& slices = bound_.slices;
    try {
      for (size_t first = 0, n = 0; n < slices.size(); ++n) {
        if (!slices[n].ends) continue;
        submit(first, n + 1);
        first = n + 1;
        if (!slices[n].tells) continue;
        lock.unlock();
        context_->wait(value_);
        lock.lock();
        first = vulkan::after_telling(slices, n, context_->steps_left(*report_));
        n = first - 1;
      }
    } catch (...) {
      if (value_) give();  // what the first slices have changed is no argument any more
      throw;
    }
  }

  /// One submission: those slices, or all workgroups; the copies before the first.
  void submit(size_t first, size_t end) {
    const std::vector<GroupSlice>& slices = bound_.slices;
    const bool whole = !bound_.cut(), own_blocks = pushes_.size() > 1;
    const bool by_units = !whole && p_.max_workgroups > 0;
    const int64_t parts = by_units ? p_.num_units.eval(dims_)
                          : whole  ? int64_t{bound_.groups[0]} * bound_.groups[1] * bound_.groups[2]
                                   : bound_.count;
    int timer = -1;
    double part = whole ? work_ : 0;
    for (size_t n = first; n < end && !whole; ++n) part += work_of_slice(slices[n], parts);
    const std::string where = whole ? "workgroups 0 to " + std::to_string(parts - 1) + " of " + std::to_string(parts)
                                    : vulkan::text(slices, end - 1, by_units);
    vulkan::Recorder& recorder = context_->recorder();
    try {
      value_ = recorder.submit(
          p_.name,
          [&] {
            if (first == 0)
              for (const auto& [source, to] : copies_) recorder.copy(*source, 0, *to, 0, to->size());
            if (bound_.count > 0) {
              timer = context_->pace().begin(recorder, part);
              for (size_t n = first; n < end; ++n)
                recorder.dispatch(p_.name, pipeline_->handle(), pipeline_->layout(), pushes_[own_blocks ? n : 0],
                                  whole ? bound_.groups : slices[n].groups, accesses_,
                                  whole ? nullptr : &slices[n].base);
              context_->pace().end(recorder, timer);
            }
            recorder.show_host(shown_);
          },
          where, p_.loc);
    } catch (...) {
      context_->pace().submitted(timer, 0, 0, nullptr);
      throw;
    }
    context_->pace().submitted(timer, value_, part, p_.spirv.data());
  }

  double work_of_slice(const GroupSlice& s, int64_t parts) const {
    const double steps = p_.steps_extent < 0 ? 1
                         : p_.open_ended
                             ? 1.0 / vulkan::kOpenDispatches
                             : static_cast<double>(s.end_step - s.first_step) /
                                   static_cast<double>(bound_.sizes[static_cast<size_t>(p_.steps_extent) + 1]);
    return work_ * steps * static_cast<double>(s.count) / static_cast<double>(parts);
  }

  void give() {
    for (size_t i = 0; i < inputs_.size(); ++i)
      if (inputs_[i].donated()) inputs_[i].give_to(p_.name);
  }

  /// The outcomes of the calls that made what this call reads, unless they are known to be good; with the mutex held.
  std::vector<std::shared_ptr<Outcome>> doubts() const {
    std::vector<std::shared_ptr<Outcome>> found;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (!given_buffers_[i] || !vulkan::depends_on(p_, i)) continue;
      const std::shared_ptr<Outcome>& o = given_buffers_[i]->outcome;
      if (o && (!o->settled || o->error) && std::find(found.begin(), found.end(), o) == found.end()) found.push_back(o);
    }
    return found;
  }

  /// Errors of what the outputs' memory held before are forgotten.
  void set_outcome(std::vector<std::shared_ptr<Outcome>> from) {
    std::shared_ptr<Outcome> outcome;
    if (report_ || !from.empty()) {
      outcome = vulkan::outcome_of(p_, dims_, bound_.longest_loop, std::move(report_));
      outcome->value = value_;
      outcome->inputs = std::move(from);
    }
    for (size_t i = inputs_.size(); i < buffers_.size(); ++i)
      if (buffers_[i]) buffers_[i]->outcome = outcome;
    if (outcome) context_->follow(outcome);
  }

  const Device& device_;
  const std::shared_ptr<Context>& context_;
  const Program& p_;
  const std::vector<DeviceArray>& inputs_;
  std::vector<std::pair<DType, Shape>> types_;  // of the inputs
  DimValues dims_;
  std::vector<uint64_t> values_;  // of arguments by value, if there are any
  std::vector<DeviceArray> outputs_;
  std::vector<std::shared_ptr<Buffer>> buffers_, given_buffers_;                     // per argument
  std::vector<std::pair<std::shared_ptr<Buffer>, std::shared_ptr<Buffer>>> copies_;  // from, to
  Bound bound_;
  const vulkan::Pipeline* pipeline_ = nullptr;
  std::unique_ptr<Buffer> scratch_, report_;
  std::shared_ptr<Buffer> table_;
  std::vector<std::vector<std::byte>> pushes_;  // one for all, or one per slice
  std::vector<Access> accesses_;
  std::vector<Buffer*> shown_;  // which the host may read
  double work_ = 0;
  uint64_t value_ = 0;  // of the last submission
  std::optional<vulkan::Turns::Turn> turn_;
};

}  // namespace

std::vector<DeviceArray> launch(const Device& device, const Program& p, const std::vector<DeviceArray>& inputs,
                                const DimValues& dims) {
  return Launch(device, p, inputs).run(nullptr, dims);
}

std::vector<DeviceArray> launch_into(const Device& device, const Program& p, const std::vector<DeviceArray>& inputs,
                                     const std::vector<DeviceArray>& outputs, const DimValues& dims) {
  if (outputs.size() + inputs.size() != p.args.size())
    throw SpecError(p.name + ": gives " + plural(p.args.size() - std::min(p.args.size(), inputs.size()), "output") +
                        " but " + plural_is(outputs.size(), "array") + " given for them",
                    p.loc);
  return Launch(device, p, inputs).run(&outputs, dims);
}

}  // namespace tessera
