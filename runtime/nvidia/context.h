// Context: what the handles of one CudaDevice share: the driver's primary context of the GPU, a stream, memory, and the
// modules that the driver has made of Programs. Internal to runtime/. Read next: driver.h, call.cpp.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "runtime/cuda.h"
#include "runtime/nvidia/driver.h"
#include "runtime/nvidia/memory.h"

namespace tessera::cuda {

/// Shared memory that a block has without asking for more (codegen/nvidia/README.md); all of a larger one is dynamic.
constexpr int64_t kMostStaticShared = 48 << 10;

class Context : public std::enable_shared_from_this<Context> {
 public:
  /// Retains the primary context of the device that `info` describes.
  Context(std::shared_ptr<const Driver> driver, CudaDeviceInfo info, const CudaOptions& options);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const CudaDeviceInfo& info() const { return info_; }
  std::string name() const { return "cuda:" + std::to_string(info_.index); }
  std::vector<Array> run(const Program& program, const std::vector<Array>& inputs, const DimValues& dims);
  void run_into(const Program& program, std::span<const HostArray> inputs, std::span<const HostArray> outputs,
                const DimValues& dims);
  std::vector<CudaArray> launch(const CudaDevice& device, const Program& program, const std::vector<CudaArray>& inputs,
                                const DimValues& dims);
  bool lost();
  /// Of a lost device: gives up what it has of the driver's context, which ends when nobody else in the process has it.
  void let_go() noexcept;
  /// The same device opened anew, with what has been compiled for it; of a lost one, which lets go.
  std::shared_ptr<Context> again();

  // Each takes its turn, and makes the context current.
  void wait();
  void wait_for(uint64_t stream);  ///< of another library
  uint64_t stream();
  void finish() noexcept;  ///< the same, whatever comes of it
  void upload(Address to, const Array& from, const std::string& what);
  void download(Array& to, Address from, const std::string& what);
  /// Memory for so many bytes (at least one), the array or what else is named taking it.
  std::shared_ptr<Block> allocate(int64_t bytes, const std::string& what);
  void give_back(Address address, size_t bytes) noexcept;

  // What runtime/call has compiled for this device, by the kernel's text.
  std::mutex programs_mutex;
  std::map<std::string, std::shared_ptr<const Program>, std::less<>> programs;

 private:
  friend class Call;
  /// The program's entry, of a module that is made when a program is run for the first time.
  FunctionHandle* function(const Program& program);
  // With mutex_ held.

  /// Driver::check() for what is done in the context. A status that ends it makes the device lost: the error then says
  /// what was running, as every later call does.
  void check(Status status, const char* function, const std::string& what, Loc loc = {}, const std::string& note = {});
  /// With the context current: until what is queued has been done. An error is that of a kernel: the driver then
  /// refuses all work of the process on this device.
  void wait_for_stream();
  void require_alive() const;
  [[noreturn]] void lose(Status status, const char* function);
  /// Work that has been queued, for the error that says what was running.
  void note_queued(const std::string& name, Loc loc) { running_.push_back({name, loc}); }
  std::shared_ptr<Block> allocate_in_turn(int64_t bytes, const std::string& what, Loc loc);

  std::shared_ptr<const Driver> driver_;
  CudaDeviceInfo info_;
  CudaOptions options_;
  std::mutex mutex_;  // calls run one after another; guards what follows
  Ordinal ordinal_ = 0;
  ContextHandle* handle_ = nullptr;
  StreamHandle* stream_ = nullptr;
  struct Module {
    ModuleHandle* handle = nullptr;
    FunctionHandle* function = nullptr;
  };
  std::map<std::string, Module, std::less<>> modules_;  // by the PTX
  std::string lost_;                                    // what was running, and why it ended; empty: it is not lost
  Loc lost_loc_ = {};
  std::string lost_note_;  // what to do
  struct Running {
    std::string name;
    Loc loc;
  };
  std::vector<Running> running_;  // kernels that were launched since the stream was waited for
  MemoryPool pool_;
};

/// Makes the context current for the calling thread, whose own one comes back afterwards.
class Current {
 public:
  Current(const Driver& driver, ContextHandle* context);
  ~Current();
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

 private:
  const Driver& driver_;
};

}  // namespace tessera::cuda
