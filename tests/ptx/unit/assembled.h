// Whether NVIDIA's assembler takes a text. It is the judge of types and of what each chip has, which the emulator is
// not.
#pragma once
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

/// True where there is no ptxas.
inline bool assembled(const std::string& text, const std::string& chip) {
  if (std::system("ptxas --version > /dev/null 2>&1") != 0) return true;
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / ("assembled_" + std::to_string(getpid()) + ".ptx");
  std::ofstream(file) << text;
  const int status = std::system(("ptxas -arch=" + chip + " -o /dev/null '" + file.string() + "'").c_str());
  std::filesystem::remove(file);
  return status == 0;
}
