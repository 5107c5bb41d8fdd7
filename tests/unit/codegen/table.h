// A table of tests/data that a test computes anew and compares row by row. TESSERA_BLESS=1 writes it instead, and the
// difference belongs in the review of the change.
#pragma once
#include <doctest/doctest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "engine/base/function.h"

namespace tessera::test {

class Table {
 public:
  /// The first `keys` columns say which row it is.
  Table(std::string path, std::string columns, size_t keys) : path_(std::move(path)), columns_(std::move(columns)) {
    std::ifstream in(path_);
    std::string line;
    std::getline(in, line);
    if (!blesses()) CHECK_MESSAGE(line == columns_, path_);
    while (std::getline(in, line)) {
      size_t end = 0;
      for (size_t i = 0; i < keys; ++i) end = line.find('\t', end + (i ? 1 : 0));
      stored_[line.substr(0, end)] = line.substr(end + 1);
    }
  }
  /// Compares what has been computed with the file, or writes it there. `mine`: which rows of the file are to be among
  /// those; others stay.
  void finish(FunctionRef<bool(const std::string& key)> mine = [](const std::string&) { return true; }) {
    for (const auto& [key, row] : stored_) {
      const auto it = rows_.find(key);
      if (it == rows_.end() && !mine(key)) rows_[key] = row;
      else if (!blesses()) compare(key, row, it == rows_.end() ? "no row" : it->second);
    }
    if (!blesses()) {
      for (const auto& [key, row] : rows_)
        if (!stored_.contains(key)) compare(key, "no row", row);
      return;
    }
    std::ofstream out(path_);
    out << columns_ << "\n";
    for (const auto& [key, row] : rows_) out << key << "\t" << row << "\n";
  }
  void add(const std::string& key, std::string row) { rows_[key] = std::move(row); }

 private:
  static bool blesses() {
    const char* bless = std::getenv("TESSERA_BLESS");
    return bless && std::string_view(bless) == "1";
  }
  void compare(const std::string& key, const std::string& expected, const std::string& now) const {
    CHECK_MESSAGE(expected == now, path_, ": ", key,
                  " has changed. If that is meant: TESSERA_BLESS=1 build/tests/test_codegen -tc='costs*'\n", columns_);
  }
  std::string path_, columns_;
  std::map<std::string, std::string> stored_, rows_;  // by key
};

}  // namespace tessera::test
