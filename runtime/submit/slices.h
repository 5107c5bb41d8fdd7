// Long calls: a call's workgroups cut into slices, each a submission of its own, so that no driver's watchdog takes the
// device away. codegen/program/program.h says which programs can be cut. Internal to runtime/. Read next: pace.h, which
// estimates how long a call takes.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tessera::vulkan {

/// Workgroups of one dispatch: `base` to `base + groups` in each dimension, which are the linear numbers `first` to
/// `first + count`; or the units of work of that number, which they share. Where loops are cut (Program::steps_extent),
/// of the steps `first_step` to `end_step` alone.
struct GroupSlice {
  std::array<uint32_t, 3> base, groups;
  int64_t first, count;
  int64_t first_step = 0, end_step = 0;
  bool ends = true;    // its submission, which otherwise goes on with the next slice
  bool tells = false;  // Program::open_ended: whether steps are left, so that the rest may be left out
};
/// Workgroups 0 to `count` in slices of about `per`, in order. Where they lie in one dimension (count <= limits[0])
/// none is surplus; else the last ones may be.
std::vector<GroupSlice> slice_workgroups(int64_t count, int64_t per, const std::array<uint32_t, 3>& limits);

/// Units of work 0 to `count` in slices of about `per`, each on at most `workgroups` workgroups, which begin at the
/// slice's first unit. Empty: the limits do not allow it.
std::vector<GroupSlice> slice_units(int64_t count, int64_t per, int64_t workgroups,
                                    const std::array<uint32_t, 3>& limits);

constexpr int kTogether = 64;  // dispatches of a submission at most

/// Each of them again for every `per` of `total` steps, one after another; without any, `all` workgroups.
std::vector<GroupSlice> slice_steps(const std::vector<GroupSlice>& slices, const GroupSlice& all, int64_t total,
                                    int64_t per);

/// Where data decides how many dispatches there are: each of the slices, or `all`, kOpenDispatches times, of `per`
/// steps. Some of them tell whether that was enough.
constexpr int kOpenDispatches = 512;
std::vector<GroupSlice> slice_open(const std::vector<GroupSlice>& slices, const GroupSlice& all, int64_t per);
/// The same where the reports of the earlier slices are not read, as in a recording: only the last ones report, or
/// steps that a later dispatch has run would count as left.
void tell_at_the_end(std::vector<GroupSlice>& slices);
/// The index of the slice that follows `told`, which reported; the number of slices if none follows. While steps are
/// left, the last slices are issued again.
size_t after_telling(const std::vector<GroupSlice>& slices, size_t told, bool steps_left);

/// For errors, of the submission that ends there: "workgroups 8 to 15 of 64 (slice 2 of 8)", "workgroups 0 to 7 of 8
/// (slices 1 to 64 of 70)".
std::string text(const std::vector<GroupSlice>& slices, size_t number, bool units);

}  // namespace tessera::vulkan
