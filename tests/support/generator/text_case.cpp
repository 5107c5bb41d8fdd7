#include "tests/support/generator/text_case.h"

#include <functional>

#include "engine/ir/reference.h"
#include "engine/ir/text.h"

namespace tessera::fuzz {

Case exact_case(const std::string& text, const std::string& file,
                const std::function<int64_t(int i, DType dtype)>& number) {
  Case c;
  c.kernel = ir::parse(text, file);
  for (int i = 0; i < c.kernel.num_inputs; ++i) {
    const ir::BlockMapping& b = c.kernel.blocks[static_cast<size_t>(i)];
    Shape shape;
    for (const Extent& e : b.array_shape) shape.push_back(*e.value());
    Array a(shape, b.dtype);
    for (int64_t e = 0; e < a.size(); ++e)
      a.set_element_bits(e, reference::from_double(b.dtype, static_cast<double>(number(i, b.dtype))));
    c.inputs.push_back(std::move(a));
  }
  c.tolerance.assign(static_cast<size_t>(c.kernel.num_outputs()), {});
  return c;
}

}  // namespace tessera::fuzz
