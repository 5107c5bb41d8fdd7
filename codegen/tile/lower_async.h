// Rewrites run_scoped, semaphores and asynchronous copies into scratch, loads and stores. An early step of compile().
//   run_scoped  its Refs become private scratch, its body replaces it
//   semaphores  become counters, i32 scratch of their own, 0 at the start of their scope; each wait tests its counter
//               and reports (op report) if nothing can ever raise it so far. Counters that are not read after the
//               passes are removed, with all code that counts in them
//   copies      happen at their start, which a kernel without races cannot tell from a later moment. Or, from arrays to
//               scratch on devices where loads take long, they are loaded at their start into a tile of private scratch
//               (meant to become registers) and stored at the wait
#pragma once
#include <map>
#include <string>
#include <vector>

#include "codegen/program/program.h"
#include "engine/ir/kernel.h"

namespace tessera::lowering {

/// Copies of at most so many elements are prefetched; 0: none.
struct PrefetchedCopies {
  int64_t most_elements = 0;
  std::vector<uint32_t> copies = {};             // gets the ops that are
  std::map<uint32_t, std::string> refused = {};  // and why others are not
};
/// True if the kernel had any of these. `sites` gets what failing waits report by number.
bool lower_async(ir::Kernel& k, std::vector<WaitSite>& sites, PrefetchedCopies* prefetch = nullptr);
/// After the passes: throws CompileError for a wait that is certain to fail.
void check_waits(const ir::Kernel& k, const std::vector<WaitSite>& sites);
/// After the passes: removes private scratch that is never read. True if there was any.
bool drop_unread_scratch(ir::Kernel& k);
/// For `tessera explain`: the copies of the source, and what has become of its waits in the kernel that is lowered.
std::string explain_copies(const ir::Kernel& source, const ir::Kernel& lowered, size_t waits,
                           const PrefetchedCopies& prefetch);

}  // namespace tessera::lowering
