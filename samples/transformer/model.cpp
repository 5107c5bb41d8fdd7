#include "samples/transformer/model.h"

#include <charconv>
#include <cstdio>
#include <stdexcept>

namespace transformer {
namespace {
constexpr std::pair<const char*, int64_t Config::*> kSizes[] = {
    {"vocabulary", &Config::vocabulary}, {"dim", &Config::dim},           {"layers", &Config::layers},
    {"heads", &Config::heads},           {"kv_heads", &Config::kv_heads}, {"head_dim", &Config::head_dim},
    {"hidden", &Config::hidden}};
constexpr std::pair<const char*, double Config::*> kNumbers[] = {{"norm_epsilon", &Config::norm_epsilon},
                                                                 {"rope_base", &Config::rope_base}};
}  // namespace

std::map<std::string, std::string> to_metadata(const Config& c) {
  std::map<std::string, std::string> m;
  for (const auto& [name, member] : kSizes) m[name] = std::to_string(c.*member);
  for (const auto& [name, member] : kNumbers) {
    char text[32];
    std::snprintf(text, sizeof text, "%.17g", c.*member);
    m[name] = text;
  }
  return m;
}

Config from_metadata(const std::map<std::string, std::string>& metadata) {
  Config c;
  const auto read = [&](const char* name, auto& number) {
    const auto at = metadata.find(name);
    if (at == metadata.end()) throw std::runtime_error(std::string("the metadata says nothing of ") + name);
    const std::string& text = at->second;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size() || !(number > 0) || number > 1e9)
      throw std::runtime_error("the metadata's " + std::string(name) + " is \"" + text +
                               "\", which is no number from 0 to 1e9");
  };
  for (const auto& [name, member] : kSizes) read(name, c.*member);
  for (const auto& [name, member] : kNumbers) read(name, c.*member);
  if (c.heads % c.kv_heads != 0)
    throw std::runtime_error("the metadata's heads, " + std::to_string(c.heads) +
                             ", are no multiple of its kv_heads, " + std::to_string(c.kv_heads));
  if (c.head_dim % 2 != 0)
    throw std::runtime_error("the metadata's head_dim, " + std::to_string(c.head_dim) + ", is odd");
  return c;
}

std::vector<std::pair<std::string, ts::Shape>> weight_shapes(const Config& c) {
  std::vector<std::pair<std::string, ts::Shape>> w = {{"embedding", {c.vocabulary, c.dim}}};
  for (int64_t i = 0; i < c.layers; ++i) {
    const std::string layer = "layers." + std::to_string(i) + ".";
    const int64_t q = c.heads * c.head_dim, kv = c.kv_heads * c.head_dim;
    const std::pair<const char*, ts::Shape> of_layer[] = {
        {"attention_norm", {c.dim}}, {"wq", {c.dim, q}},        {"wk", {c.dim, kv}},
        {"wv", {c.dim, kv}},         {"wo", {q, c.dim}},        {"mlp_norm", {c.dim}},
        {"gate", {c.dim, c.hidden}}, {"up", {c.dim, c.hidden}}, {"down", {c.hidden, c.dim}}};
    for (const auto& [name, shape] : of_layer) w.emplace_back(layer + name, shape);
  }
  w.emplace_back("norm", ts::Shape{c.dim});
  w.emplace_back("head", ts::Shape{c.dim, c.vocabulary});
  return w;
}

}  // namespace transformer
