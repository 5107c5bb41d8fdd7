#include "engine/base/write_file.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <fstream>
#include <random>

#include "engine/base/error.h"
#include "engine/base/platform.h"

namespace tessera {

void write_file(const std::string& file, std::string_view bytes) {
  std::ofstream out(file, std::ios::binary);
  out << bytes;
  out.close();
  if (!out) throw Error(file + ": cannot be written");
}

bool put_file(const std::string& file, std::initializer_list<std::string_view> parts, bool others) {
  std::random_device random;  // the system's
  std::string temporary = file + ".";
  for (int i = 0; i < 4; ++i) {
    char digits[9];
    std::snprintf(digits, sizeof digits, "%08x", random() & 0xffffffffu);
    temporary += digits;
  }
  std::FILE* const out = platform::create_file(temporary, others);
  if (!out) return false;
  bool good = true;
  for (const std::string_view part : parts) good = good && std::fwrite(part.data(), 1, part.size(), out) == part.size();
  good = std::fclose(out) == 0 && good;
  if (good && platform::replace_file(temporary, file)) return true;
  std::remove(temporary.c_str());
  return false;
}

std::string file_stem(std::string_view name) {
  std::string s(name.substr(0, 160));
  for (char& c : s)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '-') c = '_';
  return s.empty() ? "kernel" : s;
}

}  // namespace tessera
