// write_file: writes a whole file at once.
#pragma once
#include <initializer_list>
#include <string>
#include <string_view>

namespace tessera {

/// Makes or replaces `file`. Throws Error "FILE: cannot be written".
void write_file(const std::string& file, std::string_view bytes);
/// The same in place of whatever has the name, which no link can lead elsewhere: the bytes are written to a new file,
/// of a name that cannot be guessed, and that one is renamed. Who reads meanwhile has the old file or the new one.
/// False if it cannot be; then nothing of it is left. `others`: new files may be written by those whom the process lets
/// write its files.
bool put_file(const std::string& file, std::initializer_list<std::string_view> parts, bool others = true);
/// A kernel's name as a part of a file's: letters, digits, - and _, at most 160 of them (file systems take 255 with all
/// that is added).
std::string file_stem(std::string_view name);

}  // namespace tessera
