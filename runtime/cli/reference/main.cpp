// Writes the HTML reference: the op table, the headers' doc comments, and the repository's pages. Part of the build
// (target `reference`), not installed. With --snippets it takes the code out of a page instead, for the tests that
// compile and run it.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <set>

#include "engine/base/error.h"
#include "engine/base/write_file.h"
#include "engine/ir/kernel.h"
#include "runtime/cli/reference/markdown.h"
#include "tessera/version.h"

namespace fs = std::filesystem;

namespace tessera::reference {
namespace {

void write(const fs::path& file, std::string_view text) { write_file(file.string(), text); }
std::string read(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) throw Error(file.string() + ": cannot be read");
  return {std::istreambuf_iterator<char>(in), {}};
}

constexpr const char* kStyle =
    R"(body { max-width: 60em; margin: 2em auto; padding: 0 1em; font: 16px/1.5 sans-serif; color: #222; background: #fff }
pre, code { font-family: monospace; font-size: 14px; background: #f4f4f0 }
pre { padding: 0.6em; overflow-x: auto; line-height: 1.35 }
table { border-collapse: collapse; margin: 1em 0 }
td, th { border-bottom: 1px solid #ddd; padding: 0.3em 0.8em 0.3em 0; text-align: left; vertical-align: top }
dt { margin-top: 1em } dd { margin: 0 0 0 1em; white-space: pre-line } img { max-width: 100% } a { color: #06c }
@media (prefers-color-scheme: dark) { body { color: #ddd; background: #181818 } pre, code { background: #262626 } td, th { border-color: #444 } a { color: #7bf } }
)";

std::string page(const std::string& title, const std::string& body) {
  return "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>" + escape(title) +
         " - Tessera</title>\n<style>\n" + kStyle +
         "</style>\n</head>\n<body>\n<p><a href=\"index.html\">Tessera " TESSERA_VERSION "</a></p>\n" + body +
         "</body>\n</html>\n";
}

/// The repository's pages and their names here.
std::string page_name(const std::string& path) {
  std::string s = path.substr(0, path.size() - 3);
  std::replace(s.begin(), s.end(), '/', '-');
  std::transform(s.begin(), s.end(), s.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return s + ".html";
}

std::string title_of(const std::string& markdown) { return markdown.substr(2, markdown.find('\n') - 2); }

// -- ops
std::string operand_text(const ir::OpInfo& row) {
  switch (row.operands) {
    case ir::OperandRule::num: return "integers, floats";
    case ir::OperandRule::flt: return "floats";
    case ir::OperandRule::int_: return "integers";
    case ir::OperandRule::ibl: return "integers, bool";
    case ir::OperandRule::any: return "any";
    case ir::OperandRule::select: return "bool, then any";
    case ir::OperandRule::none: return "";
  }
  return "";
}

std::string ops_page(const std::string& readme) {
  std::map<std::string, std::string> examples;  // by name, from the table of engine/language.md
  for (size_t at = 0; (at = readme.find("\n| `", at)) != std::string::npos; ++at) {
    const size_t name = at + 4, name_end = readme.find('`', name), example = readme.find("| `", name_end),
                 end = readme.find("` |", example + 3);
    if (end != std::string::npos)
      examples.emplace(readme.substr(name, name_end - name), readme.substr(example + 3, end - example - 3));
  }
  std::string body =
      "<h1>Every op</h1>\n<p>From the op table, engine/ir/ops.def, with the examples of <a "
      "href=\"engine-language.html#every-op-by-example\">engine/language.md</a>. "
      "The last column of the first table bounds a device's error for floats, in units in the last place. A family "
      "is what ops have in common for the compiler (engine/ir/opcode.h).</p>\n";
  const auto table = [&](const char* heading, bool elementwise, auto belongs) {
    body += "<h2>" + std::string(heading) + "</h2>\n<table>\n<tr><th>op</th><th>meaning</th><th>example</th>" +
            (elementwise ? "<th>dtypes</th><th>ulp</th>" : "<th>family</th><th>effect</th>") + "</tr>\n";
    for (int i = 0; i < ir::kNumOpcodes; ++i) {
      const ir::OpInfo& row = ir::info(static_cast<ir::Opcode>(i));
      if (!belongs(row)) continue;
      const std::string name(row.name);
      body += "<tr id=\"" + name + "\"><td><code>" + name + "</code></td><td>" + escape(row.doc) + "</td><td><code>" +
              escape(examples[name]) + "</code></td>";
      constexpr const char* kEffects[] = {"pure", "reads", "writes", "ordered"};
      const auto number = [](double x) {
        std::string text = std::to_string(x);
        text.erase(text.find_last_not_of('0') + 1);
        if (text.back() == '.') text.pop_back();
        return text;
      };
      std::string ulp = number(row.ulp);
      if (row.relaxed_ulp != row.ulp || !row.relaxed_doc.empty())
        ulp += "; on GPUs, unless strict: " + number(row.relaxed_ulp) +
               (row.relaxed_doc.empty() ? "" : ", " + std::string(row.relaxed_doc));
      body += elementwise ? "<td>" + operand_text(row) + "</td><td>" + escape(ulp) + "</td>"
                          : "<td>" + std::string(ir::name(row.family)) + "</td><td>" +
                                kEffects[static_cast<size_t>(row.effect)] + "</td>";
      body += "</tr>\n";
    }
    body += "</table>\n";
  };
  const auto elementwise_row = [](const ir::OpInfo& r) { return r.family == ir::Family::elementwise; };
  table("Elementwise", true, elementwise_row);
  table("Structured, in kernels over blocks", false,
        [&](const ir::OpInfo& r) { return !elementwise_row(r) && r.tile; });
  table("Structured, made by the compiler", false, [&](const ir::OpInfo& r) { return !elementwise_row(r) && !r.tile; });
  return page("Every op", body);
}

// -- headers
std::string trimmed(const std::string& s) {
  const size_t begin = s.find_first_not_of(' ');
  return begin == std::string::npos ? "" : s.substr(begin, s.find_last_not_of(' ') - begin + 1);
}

/// What a header says of itself, and its documented declarations.
std::string header_section(const std::string& path, const std::string& text) {
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  std::string intro, entries;
  size_t i = 0;
  for (; i < lines.size() && lines[i].starts_with("//"); ++i)
    intro += lines[i].substr(std::min<size_t>(3, lines[i].size())) + "\n";
  const auto entry = [&](const std::string& declaration, const std::string& doc) {
    entries += "<dt><pre><code>" + escape(declaration) + "</code></pre></dt>\n<dd>" + escape(doc) + "</dd>\n";
  };
  std::string doc;
  bool fields = false;  // in a documented struct, whose fields are shown with or without comments
  for (; i < lines.size(); ++i) {
    const std::string line = trimmed(lines[i]);
    if (line.starts_with("}")) fields = false;
    if (line.starts_with("/// ")) {
      doc += (doc.empty() ? "" : " ") + line.substr(4);
      continue;
    }
    if (const size_t behind = line.find("///< "); behind != std::string::npos) {
      entry(trimmed(line.substr(0, behind)), (doc.empty() ? "" : doc + " ") + line.substr(behind + 5));
      doc.clear();
      continue;
    }
    if (doc.empty()) {
      if (fields && line.ends_with(";") && !line.starts_with("//")) entry(line, "");
      continue;
    }
    if (line.starts_with("struct ") && line.ends_with("{")) fields = true;
    // The declaration goes on to the line that ends it or opens its body; what the body holds has comments of its own.
    std::string declaration;
    for (size_t n = 0; n < 12 && i < lines.size(); ++n, ++i) {
      std::string part = lines[i].substr(0, lines[i].find(" // "));
      part = part.substr(
          std::min(part.find_first_not_of(' ') == std::string::npos ? 0 : part.find_first_not_of(' '), part.size()));
      declaration += (declaration.empty() ? "" : "\n") + part;
      const std::string now = trimmed(part);
      if (now.empty() || now.ends_with(";") || now.ends_with("{") || now.ends_with("}") || now.ends_with(",")) {
        if (now.ends_with(",") && declaration.find('(') != std::string::npos) continue;
        break;
      }
    }
    if (declaration.ends_with(" {")) declaration.resize(declaration.size() - 2);
    entry(declaration, doc);
    doc.clear();
  }
  if (entries.empty()) return "";
  return "<h2 id=\"" + anchor(path) + "\">" + escape(path) + "</h2>\n<pre>" + escape(intro) + "</pre>\n<dl>\n" +
         entries + "</dl>\n";
}

// In this order on the first page; a page that is missing is an error.
const std::vector<std::string> kPages{"README.md",
                                      "samples/pallas.md",
                                      "samples/glossary.md",
                                      "samples/limits.md",
                                      "samples/README.md",
                                      "engine/README.md",
                                      "engine/language.md",
                                      "engine/base/README.md",
                                      "engine/ir/README.md",
                                      "engine/passes/README.md",
                                      "engine/lint/README.md",
                                      "engine/graph/README.md",
                                      "engine/front/README.md",
                                      "engine/front/differences.md",
                                      "engine/front/pallas.md",
                                      "engine/front/mosaic_gpu.md",
                                      "engine/call/README.md",
                                      "engine/interpreter/README.md",
                                      "engine/jax/README.md",
                                      "engine/jax/primitives.md",
                                      "engine/jax/format.md",
                                      "codegen/README.md",
                                      "codegen/lowering.md",
                                      "codegen/rules.md",
                                      "codegen/bounds.md",
                                      "codegen/loops.md",
                                      "codegen/program/README.md",
                                      "codegen/tile/README.md",
                                      "codegen/plan/README.md",
                                      "codegen/lower/README.md",
                                      "codegen/lane/README.md",
                                      "codegen/lane/guide.md",
                                      "codegen/spirv/README.md",
                                      "codegen/spirv/choices.md",
                                      "codegen/spirv/precision.md",
                                      "codegen/spirv/builder/README.md",
                                      "codegen/expand/README.md",
                                      "codegen/nvidia/README.md",
                                      "codegen/nvidia/products.md",
                                      "codegen/nvidia/threads.md",
                                      "codegen/nvidia/choices.md",
                                      "codegen/tpu/README.md",
                                      "codegen/tpu/choices.md",
                                      "runtime/README.md",
                                      "runtime/rules.md",
                                      "runtime/headers.md",
                                      "runtime/device/README.md",
                                      "runtime/memory/README.md",
                                      "runtime/submit/README.md",
                                      "runtime/submit/guide.md",
                                      "runtime/array/README.md",
                                      "runtime/launch/README.md",
                                      "runtime/bundle/README.md",
                                      "runtime/nvidia/README.md",
                                      "runtime/nvidia/guide.md",
                                      "runtime/image/README.md",
                                      "runtime/record/README.md",
                                      "runtime/record/guide.md",
                                      "runtime/call/README.md",
                                      "runtime/call/graphs.md",
                                      "runtime/c/README.md",
                                      "runtime/cli/README.md",
                                      "runtime/cli/reference/README.md",
                                      "runtime/python/README.md",
                                      "runtime/python/guide.md",
                                      "shaders/README.md",
                                      "tests/README.md",
                                      "CONTRIBUTING.md",
                                      "CHANGELOG.md"};

// A page of each, and their rows of the first page.
std::string write_pages(const fs::path& root, const fs::path& out) {
  std::string list;
  for (const std::string& path : kPages) {
    const std::string markdown = read(root / path);
    const fs::path folder = fs::path(path).parent_path();
    const auto link = [&](std::string to) {
      if (to.empty() || to[0] == '#' || to.find("://") != std::string::npos) return to;
      const size_t hash = std::min(to.find('#'), to.size());
      const std::string file = (folder / to.substr(0, hash)).lexically_normal().generic_string();
      for (const std::string& candidate : {file, file + (file.ends_with('/') ? "" : "/") + "README.md"})
        if (std::find(kPages.begin(), kPages.end(), candidate) != kPages.end())
          return page_name(candidate) + to.substr(hash);
      if (file.ends_with(".png")) {
        write(out / fs::path(file).filename(), read(root / file));
        return fs::path(file).filename().string();
      }
      return fs::relative(root / file, out).generic_string();  // a source file
    };
    write(out / page_name(path), page(title_of(markdown), to_html(markdown, link)));
    list += "<tr><td><a href=\"" + page_name(path) + "\">" + escape(title_of(markdown)) + "</a></td><td>" +
            escape(path) + "</td></tr>\n";
  }
  return list;
}

void write_headers(const fs::path& root, const fs::path& out) {
  std::vector<std::string> headers;
  for (const char* folder : {"engine", "codegen", "runtime"})
    for (const auto& e : fs::recursive_directory_iterator(root / folder))
      if (e.path().extension() == ".h" && e.path().generic_string().find("/cli/") == std::string::npos)
        headers.push_back(fs::relative(e.path(), root).generic_string());
  const auto rank = [](const std::string& path) {
    return path.starts_with("engine/front") || path.starts_with("engine/call/") ? 0
           : path.starts_with("engine/")                                        ? 1
           : path.starts_with("codegen/")                                       ? 3
                                                                                : 2;
  };
  std::sort(headers.begin(), headers.end(),
            [&](const std::string& a, const std::string& b) { return std::pair{rank(a), a} < std::pair{rank(b), b}; });
  std::string sections, contents;
  for (const std::string& h : headers) {
    const std::string section = header_section(h, read(root / h));
    if (section.empty()) continue;
    sections += section;
    contents += "<li><a href=\"#" + anchor(h) + "\">" + escape(h) + "</a></li>\n";
  }
  write(out / "api.html", page("Headers",
                               "<h1>Headers</h1>\n<p>What the headers' comments say; <code>#include "
                               "&lt;tessera/tessera.hpp&gt;</code> is all that a program includes.</p>\n<ul>\n" +
                                   contents + "</ul>\n" + sections));
}

void make(const fs::path& root, const fs::path& out) {
  fs::create_directories(out);
  const std::string list = write_pages(root, out);
  write(out / "ops.html", ops_page(read(root / "engine/language.md")));
  write_headers(root, out);
  write(out / "index.html", page("Reference",
                                 "<h1>Reference</h1>\n<table>\n<tr><td><a href=\"ops.html\">Every "
                                 "op</a></td><td>engine/ir/ops.def</td></tr>\n<tr><td><a "
                                 "href=\"api.html\">Headers</a></td><td>*.h</td></tr>\n" +
                                     list + "</table>\n"));
}

// -- snippets
/// Each heading's C++ block becomes a function that returns `result`; blocks under "Names" stand before all. Python
/// likewise.
void snippets(const fs::path& markdown, const fs::path& cpp, const fs::path& python) {
  std::string names, functions, table, python_names, calls;
  std::map<std::string, std::set<std::string>> languages;  // by heading
  for (const CodeBlock& b : code_blocks(read(markdown))) {
    const std::string where = markdown.string() + ":" + std::to_string(b.line), name = anchor(b.heading);
    if (b.language != "cpp" && b.language != "python")
      throw Error(where + ": a block in \"" + b.language + "\", not cpp or python");
    if (!languages[b.heading].insert(b.language).second)
      throw Error(where + ": a second " + b.language + " block under \"" + b.heading + "\"");
    const std::string line = "#line " + std::to_string(b.line) + " \"" + markdown.string() + "\"\n";
    if (b.language == "cpp") {
      if (b.heading == "Names") names += line + b.text;
      else {
        std::string function = name;
        std::replace(function.begin(), function.end(), '-', '_');
        functions += "static ts::Array " + function + "_() {\n" + line + b.text + "return result;\n}\n";
        table += "    {\"" + name + "\", " + function + "_},\n";
      }
    } else if (b.heading == "Names") {
      python_names = b.text;
    } else {
      calls += "SNIPPETS[\"" + name + "\"] = (" + std::to_string(b.line) + ", r'''" + b.text + "''')\n";
    }
  }
  for (const auto& [heading, two] : languages)
    if (two.size() != 2) throw Error(markdown.string() + ": \"" + heading + "\" has a block in one language only");
  write(cpp, names + functions + "#line 1 \"" + cpp.filename().string() +
                 "\"\n#include \"tests/docs/snippets.h\"\nconst std::vector<Snippet>& snippets() {\n  static const "
                 "std::vector<Snippet> list{\n" +
                 table + "  };\n  return list;\n}\n");
  write(python, "SNIPPETS = {}\nNAMES = r'''" + python_names + "'''\n" + calls);
}

}  // namespace
}  // namespace tessera::reference

int main(int argc, char** argv) try {
  const std::vector<std::string> a(argv + 1, argv + argc);
  if (a.size() == 4 && a[0] == "--snippets") tessera::reference::snippets(a[1], a[2], a[3]);
  else if (a.size() == 2 && !a[0].starts_with("-")) tessera::reference::make(a[0], a[1]);
  else {
    std::cerr << "usage: tessera_reference ROOT FOLDER   or   tessera_reference --snippets FILE.md OUT.cpp OUT.py\n";
    return 2;
  }
  return 0;
} catch (const std::exception& e) {
  std::cerr << "error: " << e.what() << "\n";
  return 1;
}
