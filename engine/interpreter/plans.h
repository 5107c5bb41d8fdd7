// Plans: what interpret() plans for a kernel before it runs, kept from call to call by those who call one often. Read next: interpreter.h.
#pragma once
#include <memory>
#include <mutex>
#include <vector>

#include "engine/interpreter/interpreter.h"

namespace tessera {

namespace interpreter { struct Machine; }

/// Of one kernel, which stays where it is and does not change. Any number of threads may use it.
class Plans {
 public:
  Plans();
  ~Plans();

 private:
  friend std::vector<Array> interpret(const ir::Kernel& k, const std::vector<Array>& inputs, const InterpretOptions& options, Plans& plans);
  std::unique_ptr<interpreter::Machine> take(const std::vector<int32_t>& programs, int fill);  // one that was planned for this and is idle, or null
  void give_back(std::unique_ptr<interpreter::Machine> machine);                              // of a call that has come to its end

  std::mutex mutex_;
  std::vector<std::unique_ptr<interpreter::Machine>> idle_;
};

/// As without `plans`.
std::vector<Array> interpret(const ir::Kernel& k, const std::vector<Array>& inputs, const InterpretOptions& options, Plans& plans);

}  // namespace tessera
