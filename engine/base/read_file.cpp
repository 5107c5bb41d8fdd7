#include "engine/base/read_file.h"

#include "engine/base/error.h"
#include "engine/base/platform.h"

namespace tessera {

InputFile::InputFile(const std::string& path, Links links) : path_(path) {
  using What = platform::Opened::What;
  const platform::Opened opened = platform::open_file(path, links == Links::followed);
  stream_.reset(opened.stream);
  bytes_ = left_ = opened.bytes;
  switch (opened.what) {
    case What::file: return;
    case What::missing: throw SpecError(path + ": no such file");
    case What::no_file: throw SpecError(path + ": not a regular file");
    case What::link:
      throw SpecError(path + ": is a symbolic link", {},
                      "put the file itself there (cp -L): nothing outside the folder is read");
    case What::denied: break;
  }
  throw SpecError(path + ": cannot be opened");
}

void InputFile::read(void* to, uint64_t bytes) {
  if (bytes == 0) return;
  if (bytes > left_ || std::fread(to, 1, static_cast<size_t>(bytes), stream_.get()) != bytes)
    throw SpecError(path_ + ": cannot be read");
  left_ -= bytes;
}

std::string InputFile::rest(uint64_t most) {
  if (left_ > most)
    throw SpecError(path_ + ": has " + std::to_string(bytes_) + " bytes, and at most " + std::to_string(most) +
                    " are read");
  std::string text(static_cast<size_t>(left_), '\0');
  read(text.data(), left_);
  return text;
}

}  // namespace tessera
