#include "runtime/launch/one_launch.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <string>

#include "engine/base/bind.h"
#include "runtime/device/names.h"
#include "runtime/launch.h"
#include "runtime/submit/pipeline.h"

namespace tessera::vulkan {

namespace {
constexpr uint64_t kGroupsBytes = 12;  // of a dispatch that reads them

DeviceArray checked_output(const Device& device, const Program& p, const CallSignature& call, size_t position,
                           const DeviceArray& a, const DimValues& dims) {
  if (!a.valid())
    throw SpecError(p.name + ": " + p.args[position].origin +
                        ": no array is given for it, and it takes the memory of no donated argument",
                    p.loc);
  const Shape shape = bind_shape(call, position, dims);
  if (a.dtype() != p.args[position].dtype || a.shape() != shape)
    throw SpecError(p.name + ": " + p.args[position].origin + ": the result is " +
                        std::string(tessera::name(p.args[position].dtype)) + tessera::to_string(shape) +
                        " but its array is " + std::string(tessera::name(a.dtype())) + tessera::to_string(a.shape()),
                    p.loc);
  if (!(a.device() == device))
    throw SpecError(p.name + ": " + p.args[position].origin + ": the array is on another Device than the call", p.loc);
  return a;
}

}  // namespace

Launch::Launch(const Device& device, const Program& program, const std::vector<DeviceArray>& inputs)
    : device_(device), context_(device.context()), p_(program), inputs_(inputs) {}

void Launch::prepare(const std::vector<DeviceArray>* into, const DimValues& given,
                     const std::optional<InGraph>& in_graph) {
  in_graph_ = in_graph;
  take_inputs();
  const CallSignature call = call_signature(p_);
  dims_ = bind_dims(call, types_, given);
  take_outputs(call, into);
  for (size_t i = 0; i < inputs_.size() && !in_graph_; ++i)
    if (inputs_[i].donated())
      check_donation(p_, i, inputs_.size(), [&](size_t j) { return buffers_[i] && buffers_[j] == buffers_[i]; });
  bound_ = vulkan::bind(p_, dims_, device_, in_graph_ && in_graph_->groups ? Cut::loops : Cut::watchdog);
  given_buffers_ = buffers_;
  find_copies();
  pipeline_ = &context_->pipeline(p_);
  if (dispatches()) find_memory();
}

void Launch::take_inputs() {
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

void Launch::take_outputs(const CallSignature& call, const std::vector<DeviceArray>* into) {
  for (size_t i = inputs_.size(); i < p_.args.size(); ++i) {
    const int alias = p_.args[i].alias;
    const bool takes = !in_graph_ && alias >= 0 && inputs_[static_cast<size_t>(alias)].donated();
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
        if (buffers_[j] == buffers_.back() && !(in_graph_ && static_cast<int>(j) == alias))
          throw SpecError(p_.name + ": " + p_.args[i].origin + ": the array is " + p_.args[j].origin + "'s too", p_.loc,
                          "give outputs arrays of their own, or donate the argument that one is aliased to");
    if (has_names(context_->vk()) && !takes && !into && buffers_.back())
      name_object(context_->vk(), context_->handle(), buffers_.back()->handle(),
                  buffers_.back()->what() + ", " + p_.args[i].origin + " of " + p_.name);
  }
}

// Of aliased inputs into outputs that have memory of their own, and of inputs that the code writes.
void Launch::find_copies() {
  for (size_t i = inputs_.size(); i < p_.args.size(); ++i)
    if (p_.args[i].alias >= 0 && buffers_[i])
      if (const auto& from = buffers_[static_cast<size_t>(p_.args[i].alias)]; from != buffers_[i])
        copies_.emplace_back(from, buffers_[i]);
  for (size_t i = 0; i < inputs_.size(); ++i)
    if (p_.args[i].written && dispatches() && buffers_[i] && !inputs_[i].donated()) {
      const DeviceArray own(device_, types_[i].second, types_[i].first);
      copies_.emplace_back(buffers_[i], own.buffer(p_.name));
      buffers_[i] = copies_.back().second;
    }
}

// The arena, the report, and what is pushed; with what each dispatch reads and writes.
void Launch::find_memory() {
  std::vector<uint64_t> addresses;
  for (size_t i = 0; i < buffers_.size(); ++i) {
    addresses.push_back(buffers_[i] ? buffers_[i]->address() : p_.args[i].by_value ? values_[i] : 0);
    if (buffers_[i]) check_alignment(p_, i, addresses[i]);
    // An argument that the code neither reads nor writes is still kept until the call is done.
    if (buffers_[i])
      accesses_.push_back({buffers_[i].get(), p_.args[i].read, p_.args[i].written, 0, buffers_[i]->size()});
  }
  if (in_graph_ && in_graph_->groups)
    accesses_.push_back({in_graph_->groups.get(), false, false, in_graph_->offset, kGroupsBytes, true});
  if (p_.scratch_bytes > 0) {
    scratch_ = scratch_of(context_, p_, bound_);
    addresses.push_back(scratch_->address());
    accesses_.push_back({scratch_.get(), true, true, 0, scratch_->size()});
  }
  if (p_.report_bytes > 0) {
    report_ = context_->report_buffer(p_);
    addresses.push_back(report_->address());
  }
  pushes_ = pushes_of(context_, p_, addresses, bound_, table_);
  if (table_) accesses_.push_back({table_.get(), true, false, 0, table_->size()});
  if (report_) accesses_.push_back({report_.get(), true, true, 0, report_->size()});
}

// What another thread has been given meanwhile is no argument any more.
void Launch::check_arrays() const {
  for (size_t i = 0; i < given_buffers_.size(); ++i) {
    const bool input = i < inputs_.size();
    (input ? inputs_[i] : outputs_[i - inputs_.size()]).still_at(given_buffers_[i], [&] {
      return p_.name + ": " + (input ? "argument " + std::to_string(i) : p_.args[i].origin);
    });
  }
}

double Launch::seconds() const { return seconds_of(*context_, p_, dims_); }

// What the host wrote for the call, and which buffers it may read when the call is done.
void Launch::note_inputs() {
  for (size_t i = 0; i < buffers_.size(); ++i)
    if (buffers_[i] && (p_.args[i].written || p_.args[i].alias >= 0) && buffers_[i]->host_reads())
      shown_.push_back(buffers_[i].get());
  if (report_) shown_.push_back(report_.get());
  if (table_) context_->recorder().note_host_write("launch of " + p_.name, *table_, table_->size());
  if (report_) context_->clear_report("launch of " + p_.name, *report_, p_);
  work_ = work_of(p_, dims_);
}

void Launch::submit(std::span<Launch* const> given, const std::string& what, Loc loc) {
  std::vector<Launch*> calls;
  for (Launch* c : given) {
    if (c->dispatches() || !c->copies_.empty()) {
      calls.push_back(c);
      continue;
    }
    const std::lock_guard lock(c->context_->mutex());
    c->check_arrays();
    c->give();
  }
  if (calls.empty()) return;
  if (calls[0]->cut()) return calls[0]->submit_cut();
  Context& context = *calls[0]->context_;
  std::unique_lock lock(context.mutex());
  context.turns().wait(lock, [&] {
    std::vector<Turns::Use> all;
    for (const Launch* c : calls)
      for (const Turns::Use& u : c->uses()) all.push_back(u);
    return all;
  });
  for (Launch* c : calls) c->check_arrays();
  for (Launch* c : calls) c->note_inputs();
  const std::array<uint32_t, 3>& groups = calls[0]->bound_.groups;
  const int64_t n = int64_t{groups[0]} * groups[1] * groups[2];
  const std::string part = calls.size() > 1 ? std::to_string(calls.size()) + " of its calls"
                                            : "workgroups 0 to " + std::to_string(n - 1) + " of " + std::to_string(n);
  uint64_t value = 0;
  try {
    value = context.recorder().submit(
        what,
        [&] {
          for (Launch* c : calls) c->record(calls.size() > 1);
        },
        part, loc);
  } catch (...) {
    for (Launch* c : calls) c->context_->pace().submitted(c->timer_, 0, 0, nullptr);
    throw;
  }
  for (Launch* c : calls) {
    context.pace().submitted(c->timer_, value, c->work_, c->p_.spirv.data());
    c->value_ = value;
    std::vector<std::shared_ptr<Outcome>> from = c->doubts();  // of the calls before it, too
    c->give();
    c->set_outcome(std::move(from));
  }
}

// A whole call, with its name if others are in the submission.
void Launch::record(bool named) {
  Recorder& recorder = context_->recorder();
  named = named && has_names(context_->vk());
  if (named) begin_label(context_->vk(), recorder.commands(), with_line(p_.name, p_.loc));
  for (const auto& [from, to] : copies_) recorder.copy(*from, 0, *to, 0, to->size());
  if (dispatches() && in_graph_ && in_graph_->groups) {  // perhaps none: its time says nothing
    recorder.dispatch_indirect(p_.name, *pipeline_, pushes_[0], *in_graph_->groups, in_graph_->offset, accesses_);
  } else if (dispatches()) {
    timer_ = context_->pace().begin(recorder, work_, p_.spirv.data());
    recorder.dispatch(p_.name, *pipeline_, pushes_[0], bound_.groups, accesses_);
    context_->pace().end(recorder, timer_);
  }
  recorder.show_host(shown_);
  if (named) end_label(context_->vk(), recorder.commands());
}

void Launch::submit_cut() {
  std::unique_lock lock(context_->mutex());
  if (p_.open_ended) turn_.emplace(context_->turns(), lock, uses());
  else context_->turns().wait(lock, [&] { return uses(); });
  check_arrays();
  note_inputs();
  std::vector<std::shared_ptr<Outcome>> from = doubts();
  submit_slices(lock);
  give();
  set_outcome(std::move(from));
}

// One submission: those slices; the copies before the first.
void Launch::submit_slices(size_t first, size_t end) {
  const std::vector<GroupSlice>& slices = bound_.slices;
  const bool own_blocks = pushes_.size() > 1, by_units = p_.max_workgroups > 0;
  const int64_t parts = by_units ? p_.num_units.eval(dims_) : bound_.count;
  double part = 0;
  for (size_t n = first; n < end; ++n) part += work_of_slice(slices[n], parts);
  Recorder& recorder = context_->recorder();
  int timer = -1;
  try {
    value_ = recorder.submit(
        p_.name,
        [&] {
          if (first == 0)
            for (const auto& [source, to] : copies_) recorder.copy(*source, 0, *to, 0, to->size());
          timer = context_->pace().begin(recorder, part, p_.spirv.data());
          for (size_t n = first; n < end; ++n)
            recorder.dispatch(p_.name, *pipeline_, pushes_[own_blocks ? n : 0], slices[n].groups, accesses_,
                              &slices[n].base);
          context_->pace().end(recorder, timer);
          recorder.show_host(shown_);
        },
        text(slices, end - 1, by_units), p_.loc);
  } catch (...) {
    context_->pace().submitted(timer, 0, 0, nullptr);
    throw;
  }
  context_->pace().submitted(timer, value_, part, p_.spirv.data());
}

// Of the arguments' arrays; all else is the call's own.
std::vector<Turns::Use> Launch::uses() const {
  std::vector<Turns::Use> all;
  for (size_t i = 0; i < buffers_.size(); ++i)
    all.push_back({given_buffers_[i].get(), i >= inputs_.size() || inputs_[i].donated()});
  return all;
}

// Slices up to one that ends a submission, then the next ones; with the lock held but where it waits.
void Launch::submit_slices(std::unique_lock<std::mutex>& lock) {
  const std::vector<GroupSlice>& slices = bound_.slices;
  try {
    for (size_t first = 0, n = 0; n < slices.size(); ++n) {
      if (!slices[n].ends) continue;
      submit_slices(first, n + 1);
      first = n + 1;
      if (!slices[n].tells) continue;
      lock.unlock();
      context_->wait(value_);
      lock.lock();
      first = after_telling(slices, n, context_->steps_left(*report_));
      n = first - 1;
    }
  } catch (...) {
    if (value_) give();  // what the first slices have changed is no argument any more
    throw;
  }
}

double Launch::work_of_slice(const GroupSlice& s, int64_t parts) const {
  const double steps = p_.steps_extent < 0 ? 1
                       : p_.open_ended
                           ? 1.0 / kOpenDispatches
                           : static_cast<double>(s.end_step - s.first_step) /
                                 static_cast<double>(bound_.sizes[static_cast<size_t>(p_.steps_extent) + 1]);
  return work_ * steps * static_cast<double>(s.count) / static_cast<double>(parts);
}

void Launch::give() {
  for (size_t i = 0; i < inputs_.size() && !in_graph_; ++i)
    if (inputs_[i].donated()) inputs_[i].give_to(p_.name);
}

// The outcomes of the calls that made what this call reads, unless they are known to be good; with the mutex held. A
// call that the device may leave out leaves its outputs as they are: those of what made them and of what decided.
std::vector<std::shared_ptr<Outcome>> Launch::doubts() const {
  std::vector<std::shared_ptr<Outcome>> found;
  const auto add = [&](const std::shared_ptr<Outcome>& o) {
    if (o && (!o->settled || o->error) && std::find(found.begin(), found.end(), o) == found.end()) found.push_back(o);
  };
  for (size_t i = 0; i < inputs_.size(); ++i)
    if (given_buffers_[i] && depends_on(p_, i)) add(given_buffers_[i]->outcome);
  if (!in_graph_ || !in_graph_->groups) return found;
  add(in_graph_->groups->outcome);
  for (size_t i = inputs_.size(); i < buffers_.size(); ++i)
    if (buffers_[i]) add(buffers_[i]->outcome);
  return found;
}

// Errors of what the outputs' memory held before are forgotten.
void Launch::set_outcome(std::vector<std::shared_ptr<Outcome>> from) {
  std::shared_ptr<Outcome> outcome;
  if (report_ || !from.empty()) {
    outcome = outcome_of(p_, dims_, bound_.longest_loop, std::move(report_));
    outcome->value = value_;
    outcome->inputs = std::move(from);
  }
  for (size_t i = inputs_.size(); i < buffers_.size(); ++i)
    if (buffers_[i]) buffers_[i]->outcome = outcome;
  if (outcome) context_->follow(outcome);
}

}  // namespace tessera::vulkan
