// debug_print and check: the operands as Arrays, the text from base/print_text.h.
#include <cstring>

#include "engine/base/print_text.h"
#include "engine/interpreter/machine.h"

namespace tessera::interpreter {

Step print_step(const ir::Kernel& k, const ir::Op& op) {
  return [&k, &op](Machine& m) {
    const bool check = op.code == ir::Opcode::check;
    if (check && (m.failed || *m.place[op.operands[0].index] != std::byte{0})) return;
    std::vector<Array> arguments;
    for (size_t i = check; i < op.operands.size(); ++i) {
      const ir::Type& t = k.type(op.operands[i]);
      Array a(t.shape, t.dtype);
      if (a.size())
        std::memcpy(a.bytes(), m.place[op.operands[i].index], static_cast<size_t>(a.size() * size_bytes(t.dtype)));
      arguments.push_back(std::move(a));
    }
    std::string text = format_text(k.texts[static_cast<size_t>(op.attr(ir::Attr::text))], arguments);
    if (check) m.failed = check_failed(k.name, program_text(k, m.grid_point.data()), text, op.loc);
    else m.print(std::move(text));
  };
}

}  // namespace tessera::interpreter
