#include "engine/graph/picture.h"

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include "engine/graph/order.h"

namespace tessera {
namespace {

using Place = GraphPlan::Place;
using Command = GraphPlan::Command;

struct Picture {
  struct Node {
    std::vector<std::string> lines;  // the first is its name
    enum class Kind { argument, call, copy, result } kind;
    std::string around;  // "repeat 12", "branch 1", or nothing
  };
  std::vector<Node> nodes;
  std::set<std::pair<size_t, size_t>> edges;
};

std::string bytes(int64_t n) { return std::to_string(n) + (n == 1 ? " byte" : " bytes"); }

class Drawing {
 public:
  Drawing(const Graph& g, const GraphPlan& p) : g_(g), p_(p) {}
  Picture run() {
    for (size_t i = 0; i < p_.storages.size(); ++i) {
      const GraphPlan::Storage& s = p_.storages[i];
      if (const auto* input = s.input())
        argument(i, "argument " + std::to_string(input->index), g_.values[g_.body.inputs[input->index]]);
      else if (const auto* constant = s.constant())
        argument(i, "constant " + std::to_string(constant->index), g_.values[g_.constants[constant->index].first]);
    }
    nodes(p_.nodes, "");
    for (size_t i = 0; i < p_.outputs.size(); ++i) {
      picture_.nodes.push_back(
          {{"result " + std::to_string(i), to_string(g_.values[g_.body.outputs[i]])}, Picture::Node::Kind::result, ""});
      reads(p_.outputs[i], picture_.nodes.size() - 1);
    }
    return std::move(picture_);
  }

 private:
  struct Write {
    Place place;
    size_t node;
  };
  void argument(size_t storage, const std::string& name, const Graph::Type& t) {
    picture_.nodes.push_back(
        {{name, to_string(t), bytes(p_.storages[storage].bytes)}, Picture::Node::Kind::argument, ""});
    writes_.push_back({{storage, 0, p_.storages[storage].bytes}, picture_.nodes.size() - 1});
  }
  /// The last writers of the bytes come before the node.
  void reads(const Place& p, size_t node) {
    for (const Write& w : writes_)
      if (w.node != node && overlap(w.place, p)) picture_.edges.emplace(w.node, node);
  }
  void writes(const Place& p, size_t node) {
    std::erase_if(writes_, [&](const Write& w) {
      return w.place.storage == p.storage && w.place.offset >= p.offset &&
             w.place.offset + w.place.bytes <= p.offset + p.bytes;
    });
    writes_.push_back({p, node});
  }
  std::string where(const Place& p) const {
    const GraphPlan::Storage& s = p_.storages[p.storage];
    if (const auto* output = s.output()) return "result " + std::to_string(output->index);
    if (!s.arena()) return "an argument";
    const int64_t from = s.arena()->offset + p.offset;
    return "arena " + std::to_string(from) + " to " + std::to_string(from + p.bytes) + ", commands " +
           std::to_string(s.first) + " to " + std::to_string(s.last);
  }
  void nodes(const std::vector<GraphPlan::Node>& list, const std::string& around) {
    for (const GraphPlan::Node& n : list) {
      if (const GraphPlan::Node::Commands* c = n.commands()) {
        for (size_t i = n.begin; i < c->end; ++i) command(i, around);
      } else if (const auto* counted = std::get_if<GraphPlan::Node::CountedLoop>(&n.what)) {
        nodes(counted->body, "repeat " + std::to_string(counted->count));
      } else if (const GraphPlan::Node::While* loop = n.loop()) {
        const std::string most = loop->at_most ? "at most " + std::to_string(*loop->at_most) : "";
        nodes(loop->test, loop->at_most ? most : "the test of a while");
        nodes(loop->body, loop->at_most ? most : "while");
      } else {
        const auto& branches = std::get<GraphPlan::Node::Switch>(n.what).branches;
        for (size_t b = 0; b < branches.size(); ++b) nodes(branches[b], "branch " + std::to_string(b));
      }
    }
  }
  void command(size_t at, const std::string& outside) {
    const Command& c = p_.commands[at];
    const size_t node = picture_.nodes.size();
    const std::string around = c.guard && !c.set_gate()
                                   ? "gate " + std::to_string(c.guard->gate) + ", body " + std::to_string(c.guard->body)
                                   : outside;
    if (const Command::SetGate* set = c.set_gate()) {
      const GraphPlan::Gate& gate = p_.gates[set->gate];
      picture_.nodes.push_back(
          {{"gate " + std::to_string(set->gate),
            std::to_string(gate.members.size()) + (gate.members.size() == 1 ? " command" : " commands"),
            where(gate.groups)},
           Picture::Node::Kind::call,
           around});
      if (set->decides) reads(*set->decides, node);
      if (c.guard) reads(p_.gates[c.guard->gate].state, node);
      writes(gate.state, node);
      writes(gate.groups, node);
      return;
    }
    if (c.guard) reads(p_.gates[c.guard->gate].groups, node);
    if (const Command::Copy* copy = c.copy()) {
      picture_.nodes.push_back({{"copy", bytes(copy->to.bytes), where(copy->to)}, Picture::Node::Kind::copy, around});
      reads(copy->from, node);
      writes(copy->to, node);
      return;
    }
    call(*c.call(), node, around);
  }
  void call(const Command::Call& c, size_t node, const std::string& around) {
    const ir::Kernel& k = g_.kernels[c.kernel];
    picture_.nodes.push_back({{k.name}, Picture::Node::Kind::call, around});
    const auto inputs = static_cast<size_t>(k.num_inputs);
    for (size_t i = 0; i < inputs; ++i) reads(c.arguments[i], node);
    for (const auto& [name, p] : c.sizes) reads(p, node);
    const DimValues dims = c.sizes.empty() ? bind_dims_of(k, c) : DimValues{};
    for (size_t i = inputs; i < c.arguments.size(); ++i) {
      if (k.blocks[i].alias >= 0) reads(c.arguments[i], node);
      std::string shape;
      for (const Extent& e : k.blocks[i].array_shape)
        shape += (shape.empty() ? "" : ", ") + (e.is_static()  ? std::to_string(*e.value())
                                                : dims.empty() ? to_string(e)
                                                               : std::to_string(e.eval(dims)));
      picture_.nodes.back().lines.push_back(std::string(name(k.blocks[i].dtype)) + "[" + shape + "], " +
                                            bytes(c.arguments[i].bytes));
      picture_.nodes.back().lines.push_back(where(c.arguments[i]));
      writes(c.arguments[i], node);
    }
    if (c.scratch) picture_.nodes.back().lines.push_back("scratch: " + bytes(c.scratch->bytes));
  }
  static DimValues bind_dims_of(const ir::Kernel& k, const Command::Call& c) {
    DimValues dims = c.dims;
    for (size_t i = 0; i < c.inputs.size(); ++i)
      for (size_t d = 0; d < c.inputs[i].second.size(); ++d)
        if (const auto n = k.blocks[i].array_shape[d].as_name()) dims[*n] = c.inputs[i].second[d];
    return dims;
  }

  const Graph& g_;
  const GraphPlan& p_;
  Picture picture_;
  std::vector<Write> writes_;
};

std::string escaped(const std::string& s, bool xml) {
  std::string out;
  for (const char c : s) {
    if (xml && c == '<') out += "&lt;";
    else if (xml && c == '>') out += "&gt;";
    else if (xml && c == '&') out += "&amp;";
    else if (!xml && (c == '"' || c == '\\')) out += std::string("\\") + c;
    else out += c;
  }
  return out;
}
const char* colour(Picture::Node::Kind k) {
  switch (k) {
    case Picture::Node::Kind::argument: return "#dbe9f6";
    case Picture::Node::Kind::call: return "#fdf3d8";
    case Picture::Node::Kind::copy: return "#eeeeee";
    case Picture::Node::Kind::result: return "#dff0d8";
  }
  return "";
}

}  // namespace

std::string dot(const Graph& g, const GraphPlan& p) {
  const Picture picture = Drawing(g, p).run();
  std::ostringstream out;
  out << "digraph tessera {\n  node [shape=box, style=filled, fontname=\"sans-serif\", fontsize=10];\n";
  for (size_t i = 0; i < picture.nodes.size(); ++i) {
    const Picture::Node& n = picture.nodes[i];
    out << "  n" << i << " [fillcolor=\"" << colour(n.kind) << "\", label=\"";
    for (size_t l = 0; l < n.lines.size(); ++l) out << (l ? "\\n" : "") << escaped(n.lines[l], false);
    if (!n.around.empty()) out << "\\n(" << n.around << ")";
    out << "\"];\n";
  }
  for (const auto& [from, to] : picture.edges) out << "  n" << from << " -> n" << to << ";\n";
  out << "  label=\"peak memory " << bytes(p.peak_bytes()) << ", arena " << bytes(p.arena_bytes) << "\";\n}\n";
  return out.str();
}

std::string svg(const Graph& g, const GraphPlan& p) {
  const Picture picture = Drawing(g, p).run();
  const size_t n = picture.nodes.size();
  // Edges lead from lower numbers to higher ones.
  std::vector<std::vector<size_t>> before(n);
  for (const auto& [from, to] : picture.edges) before[std::max(from, to)].push_back(std::min(from, to));
  std::vector<size_t> layer(n, 0);
  size_t layers = 0;
  for (size_t i = 0; i < n; ++i) {
    for (const size_t b : before[i]) layer[i] = std::max(layer[i], layer[b] + 1);
    layers = std::max(layers, layer[i] + 1);
  }
  std::vector<std::vector<size_t>> rows(layers);
  for (size_t i = 0; i < n; ++i) rows[layer[i]].push_back(i);
  constexpr int kLetter = 6, kLine = 14, kGap = 24, kMargin = 20;
  const auto lines = [&](size_t i) {
    return static_cast<int>(picture.nodes[i].lines.size() + !picture.nodes[i].around.empty());
  };
  std::vector<int> x(n), y(n), width(n), height(n);
  int right = 0, top = kMargin;
  for (std::vector<size_t>& row : rows) {
    const auto wish = [&](size_t i) {
      if (before[i].empty()) return static_cast<double>(i);
      double sum = 0;
      for (const size_t b : before[i]) sum += x[b] + width[b] / 2.0;
      return sum / static_cast<double>(before[i].size());
    };
    std::stable_sort(row.begin(), row.end(), [&](size_t a, size_t b) { return wish(a) < wish(b); });
    int at = kMargin, tallest = 0;
    for (const size_t i : row) {
      size_t longest = picture.nodes[i].around.size() + 2;
      for (const std::string& l : picture.nodes[i].lines) longest = std::max(longest, l.size());
      width[i] = static_cast<int>(longest) * kLetter + 16;
      height[i] = lines(i) * kLine + 10;
      x[i] = before[i].empty() ? at : std::max(at, static_cast<int>(wish(i)) - width[i] / 2);
      y[i] = top;
      at = x[i] + width[i] + kGap;
      tallest = std::max(tallest, height[i]);
      right = std::max(right, x[i] + width[i]);
    }
    top += tallest + 2 * kGap;
  }
  std::ostringstream out;
  out << "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" << right + kMargin << "\" height=\"" << top + kMargin
      << "\" font-family=\"monospace\" font-size=\"10\">\n"
      << "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n";
  for (const auto& [a, b] : picture.edges) {
    const size_t from = std::min(a, b), to = std::max(a, b);
    const int x1 = x[from] + width[from] / 2, y1 = y[from] + height[from], x2 = x[to] + width[to] / 2, y2 = y[to],
              middle = (y1 + y2) / 2;
    out << "<path d=\"M" << x1 << "," << y1 << " C" << x1 << "," << middle << " " << x2 << "," << middle << " " << x2
        << "," << y2 << "\" fill=\"none\" stroke=\"#888888\"/>\n";
  }
  for (size_t i = 0; i < n; ++i) {
    const Picture::Node& node = picture.nodes[i];
    out << "<rect x=\"" << x[i] << "\" y=\"" << y[i] << "\" width=\"" << width[i] << "\" height=\"" << height[i]
        << "\" rx=\"3\" fill=\"" << colour(node.kind) << "\" stroke=\"#555555\"/>\n";
    std::vector<std::string> text = node.lines;
    if (!node.around.empty()) text.push_back("(" + node.around + ")");
    for (size_t l = 0; l < text.size(); ++l)
      out << "<text x=\"" << x[i] + 8 << "\" y=\"" << y[i] + kLine * static_cast<int>(l + 1) << "\""
          << (l == 0 ? " font-weight=\"bold\"" : "") << ">" << escaped(text[l], true) << "</text>\n";
  }
  out << "<text x=\"" << kMargin << "\" y=\"" << top + kMargin / 2 << "\">peak memory " << bytes(p.peak_bytes())
      << ", arena " << bytes(p.arena_bytes) << "</text>\n</svg>\n";
  return out.str();
}

}  // namespace tessera
