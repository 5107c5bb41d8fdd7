#include "engine/write_file.h"

#include <fstream>

#include "engine/error.h"

namespace tessera {

void write_file(const std::string& file, std::string_view bytes) {
  std::ofstream out(file, std::ios::binary);
  out << bytes;
  out.close();
  if (!out) throw Error(file + ": cannot be written");
}

}  // namespace tessera
