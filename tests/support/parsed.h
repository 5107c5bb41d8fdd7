// What tests that write kernels as text share.
#pragma once
#include <string>

#include "engine/ir/text.h"
#include "engine/ir/verify.h"

namespace tessera::test {

/// Of the text behind "tir 1", verified; its place in messages is k.tir.
inline ir::Kernel parse(const std::string& text) {
  ir::Kernel k = ir::parse("tir 1\n" + text, "k.tir");
  ir::verify(k, "parsing");
  return k;
}

}  // namespace tessera::test
