// Call: one call of a Program, whatever its arrays are: what it needs beside them, the launch, and what came of it.
// Internal to runtime/. Read next: context.h, call.cpp.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/nvidia/context.h"

namespace tessera::cuda {

using Types = std::vector<std::pair<DType, Shape>>;
inline int64_t bytes_of(const std::pair<DType, Shape>& t) { return size_bytes(t.first) * num_elements(t.second); }

class Call {
 public:
  /// Throws SpecError where the inputs do not fit.
  Call(Context& context, const Program& program, const Types& inputs, const DimValues& dims);

  const Types outputs;
  std::vector<Address> addresses;                // per argument, then of the arena, then of the report
  bool is_empty() const { return count_ == 0; }  ///< without work for the device
  bool aliased(size_t input) const;              ///< to an output

  // What follows is done in the call's turn, with the device's context current.

  /// Memory for argument i; none without elements.
  std::shared_ptr<Block> allocate(size_t i, int64_t bytes);
  void copy(Address to, Address from, int64_t bytes);
  void upload(Address to, const void* from, int64_t bytes);
  void download(void* to, Address from, int64_t bytes);
  /// With the addresses of all arguments.
  void launch();
  void wait() { c_.wait_for_stream(); }
  /// Waits for the kernel, if it reports: the report's header, and then as much of its records as it says.
  void read_report();
  /// The arena and the report are the next call's.
  void give_back_room() { room_blocks_.clear(); }

  /// What the kernel printed, said, and what it failed with, thrown; when the turn is over.
  void tell();

 private:
  void make_room();
  void room_for(int64_t bytes, const std::string& what);

  Context& c_;
  const Driver& d_;
  const Program& p_;
  DimValues dims_;
  int64_t count_;  // workgroups
  std::vector<int64_t> sizes_;
  std::vector<std::shared_ptr<Block>> room_blocks_;
  int64_t room_ = 0;       // words for records
  uint32_t capacity_ = 0;  // the same, where the driver copies it from
  std::vector<uint32_t> report_, records_;
};

}  // namespace tessera::cuda
