// write_file: a whole file at once.
#pragma once
#include <string>
#include <string_view>

namespace tessera {

/// Makes or replaces `file`. Throws Error "FILE: cannot be written".
void write_file(const std::string& file, std::string_view bytes);

}  // namespace tessera
