// Reads whole files. Only regular files are read, so that it never waits for a pipe or reads a device without end.
// write_file.h writes them.
#pragma once
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

namespace tessera {

// bytes of a text: no kernel and no graph takes a hundredth of that
inline constexpr uint64_t kMostText = uint64_t{1} << 28;

/// A file, open to be read from its beginning.
class InputFile {
 public:
  enum class Links : uint8_t { followed, refused };
  /// Throws SpecError "PATH: no such file", "... not a regular file", "... cannot be opened" or, of links that are
  /// refused, "... is a symbolic link".
  explicit InputFile(const std::string& path, Links links = Links::followed);

  uint64_t bytes() const { return bytes_; }
  /// The next so many. Throws SpecError "PATH: cannot be read" if there are fewer by now.
  void read(void* to, uint64_t bytes);
  /// All that is left. Throws SpecError if that is more than `most`.
  std::string rest(uint64_t most = kMostText);

 private:
  struct Close {
    void operator()(std::FILE* f) const { std::fclose(f); }
  };
  std::string path_;
  std::unique_ptr<std::FILE, Close> stream_;
  uint64_t bytes_ = 0, left_ = 0;
};

}  // namespace tessera
