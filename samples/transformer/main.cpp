// A small language model, from a .safetensors file to the tokens of a text, which it prints as numbers:
//   transformer [--file FILE] [--prompt TEXT] [--tokens N] [--dtype f32|f16|bf16] [--answers FILE]
// Without --file the weights are made up, from a seed, and written to transformer.safetensors first (in --dtype), so
// the text is none that a person would write. The prompt goes through the model at once, and then one token at a time,
// the likeliest each: one graph for each of both, one submission per step. At the end the whole text goes through it
// once more, which must give the logits that the steps gave. --answers writes those, for check.py to compare with JAX.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <stdexcept>

#include "samples/support/sample.h"
#include "samples/transformer/weights.h"

namespace {
using namespace transformer;

struct Options {
  std::string file, prompt = "In the beginning", answers;
  int64_t tokens = 24;
  ts::DType dtype = ts::f32;
};

Options parse(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (i + 1 == argc) throw std::runtime_error(name + ": unknown option, or one without its value");
    const std::string value = argv[++i];
    if (name == "--file") o.file = value;
    else if (name == "--prompt") o.prompt = value;
    else if (name == "--answers") o.answers = value;
    else if (name == "--tokens") {
      size_t read = 0;
      o.tokens = value.empty() || value[0] < '0' || value[0] > '9' ? 0 : std::stoll(value.substr(0, 9), &read);
      if (read != value.size() || o.tokens < 1 || o.tokens > 4096)
        throw std::runtime_error("--tokens " + value + " is no number from 1 to 4096");
    } else if (name == "--dtype") {
      const auto t = ts::dtype_from_name(value);
      if (!t || (*t != ts::f32 && *t != ts::f16 && *t != ts::bf16))
        throw std::runtime_error("--dtype " + value + " is not f32, f16 or bf16");
      o.dtype = *t;
    } else {
      throw std::runtime_error(name + ": unknown option, or one without its value");
    }
  }
  if (o.prompt.empty()) throw std::runtime_error("--prompt is empty");
  return o;
}

/// Where the model runs: on the default device, whose arrays stay there between steps, or interpreted.
template <class A>
struct Place {
  std::function<A(const ts::Array&)> put;
  std::function<ts::Array(const A&)> get;
  std::function<std::vector<A>(const ts::Jit&, const std::vector<A>&)> call;
};

ts::Array numbers(const ts::Shape& shape, std::vector<int32_t> n) { return ts::Array(shape, n); }

/// The logits of all tokens at once against those of the steps: the largest, and the largest difference.
struct Differences {
  double largest = 0, difference = 0;
  void add(const std::vector<double>& whole, const std::vector<double>& step) {
    for (size_t t = 0; t < whole.size(); ++t) {
      const double d = std::fabs(whole[t] - step[t]);
      difference = std::isnan(d) ? INFINITY : std::max(difference, d);
      largest = std::max(largest, std::fabs(whole[t]));
    }
  }
};

template <class A>
int run(const Options& o, const Config& c, const std::vector<ts::Array>& w, const Place<A>& place) {
  std::vector<int32_t> text(o.prompt.begin(), o.prompt.end());
  for (int32_t& t : text) t = static_cast<uint8_t>(t) % static_cast<int32_t>(c.vocabulary);
  const auto prompt = static_cast<int64_t>(text.size()), most = prompt + o.tokens;
  const ts::Shape cache = {1, most, c.kv_heads, c.head_dim};
  std::vector<A> held;
  for (const ts::Array& a : w) held.push_back(place.put(a));
  const A empty = place.put(ts::Array(cache, w[0].dtype()));

  // One step: the tokens from `begin` on; their logits [tokens, vocabulary].
  const ts::Jit model = graph(c);  // traced and compiled for each number of tokens that it gets
  const auto step = [&](const std::vector<int32_t>& tokens, int64_t begin, std::vector<A>& caches) {
    const auto n = static_cast<int64_t>(tokens.size());
    std::vector<int32_t> positions;
    for (int64_t i = 0; i < n; ++i) positions.push_back(static_cast<int32_t>(begin + i));
    std::vector<A> arguments = {place.put(numbers({1, n}, tokens)), place.put(numbers({1, n}, positions)),
                                place.put(numbers({2, 1}, {static_cast<int32_t>(n), static_cast<int32_t>(begin + n)})),
                                place.put(numbers({1}, {static_cast<int32_t>(begin)}))};
    arguments.insert(arguments.end(), held.begin(), held.end());
    arguments.insert(arguments.end(), caches.begin(), caches.end());
    std::vector<A> results = place.call(model, arguments);
    caches.assign(results.begin() + 1, results.end());
    return place.get(results[0]);
  };
  const auto row = [&](const ts::Array& logits, int64_t i) {
    std::vector<double> r;
    for (int64_t t = 0; t < c.vocabulary; ++t) r.push_back(logits.at(i * c.vocabulary + t));
    return r;
  };
  const auto likeliest = [](const std::vector<double>& r) {
    return static_cast<int32_t>(std::max_element(r.begin(), r.end()) - r.begin());
  };
  const auto now = [] { return std::chrono::steady_clock::now(); };
  const auto seconds = [](auto from, auto to) { return std::chrono::duration<double>(to - from).count(); };

  std::vector<A> caches(static_cast<size_t>(2 * c.layers), empty);
  {
    std::vector<A> unused = caches;  // the first run of each is the driver's compiler
    step(text, 0, unused);
    step({0}, 0, unused);
  }
  const auto begin = now();
  ts::Array logits = step(text, 0, caches);
  const auto prompted = now();
  std::vector<std::vector<double>> of_steps = {row(logits, prompt - 1)};
  text.push_back(likeliest(of_steps.back()));
  for (int64_t i = 1; i < o.tokens; ++i) {
    of_steps.push_back(row(step({text.back()}, prompt + i - 1, caches), 0));
    text.push_back(likeliest(of_steps.back()));
  }
  const auto end = now();

  // The same text at once: the steps, which took keys and values from the caches, must have seen the same.
  text.pop_back();
  std::vector<A> fresh(static_cast<size_t>(2 * c.layers), empty);
  logits = step(text, 0, fresh);
  Differences seen;
  for (int64_t i = 0; i < o.tokens; ++i) seen.add(row(logits, prompt - 1 + i), of_steps[static_cast<size_t>(i)]);
  if (!o.answers.empty())
    write_safetensors(o.answers, {{{"tokens", numbers({most - 1}, text)}, {"logits", logits}}, {}});
  std::printf("transformer: %lld layers of %lld, %s; \"%s\" continues ", static_cast<long long>(c.layers),
              static_cast<long long>(c.dim), std::string(ts::name(w[0].dtype())).c_str(), o.prompt.c_str());
  for (size_t i = static_cast<size_t>(prompt); i < text.size(); ++i) std::printf("%d ", text[i]);
  std::printf("\ntransformer: prompt %.0f tokens/s", static_cast<double>(prompt) / seconds(begin, prompted));
  if (o.tokens > 1) std::printf(", then %.1f tokens/s", static_cast<double>(o.tokens - 1) / seconds(prompted, end));
  // Sums in another order round otherwise: in f32 each of some hundred terms; in a narrower dtype only results, and not
  // often.
  const double unit = w[0].dtype() == ts::f32 ? 32 * std::ldexp(1.0, -24)
                                              : 2 * std::ldexp(1.0, -ts::float_format(w[0].dtype()).mantissa - 1);
  const double allowed = seen.largest * unit * std::sqrt(static_cast<double>(c.layers));
  const bool good = seen.difference <= allowed;
  std::printf("; steps differ from the whole by at most %.3g, allowed %.3g: %s\n", seen.difference, allowed,
              good ? "ok" : "WRONG");
  return good ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) try {
  const Options o = parse(argc, argv);
  std::string path = o.file;
  if (path.empty()) write_safetensors(path = "transformer.safetensors", made_up({}, o.dtype));
  const SafeTensors file = read_safetensors(path);
  Config c;
  std::vector<ts::Array> w;
  try {
    c = from_metadata(file.metadata);
    w = weights_of(file, c);
  } catch (const std::runtime_error& e) {
    throw std::runtime_error(path + ": " + e.what());
  }
  const char* device = std::getenv("TESSERA_DEVICE");
  if (device && std::string(device) == "interpreter") {
    const Place<ts::Array> host = {
        [](const ts::Array& a) { return a; }, [](const ts::Array& a) { return a; },
        [](const ts::Jit& f, const std::vector<ts::Array>& arguments) { return ts::interpret(f, arguments); }};
    return run(o, c, w, host);
  }
  const Place<ts::DeviceArray> place = {[](const ts::Array& a) { return ts::DeviceArray(ts::default_device(), a); },
                                        [](const ts::DeviceArray& a) { return a.download(); },
                                        [](const ts::Jit& f, const std::vector<ts::DeviceArray>& arguments) {
                                          return ts::launch(ts::default_device(), f, arguments);
                                        }};
  const int result = run(o, c, w, place);
  const std::vector<std::string> said = ts::default_device().validation_messages();
  for (const std::string& s : said) std::fprintf(stderr, "transformer: validation: %s\n", s.c_str());
  return said.empty() ? result : 1;
} catch (const std::exception& e) {
  return sample::fail("transformer", e);
}
