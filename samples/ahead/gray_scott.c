// Patterns of two substances that react and spread: gray_scott [-o FILE] [--size WxH] [--steps N] [--exposure
// PERCENT] [--window] [--hold SECONDS]. A program in C through tessera.h alone: its three kernels (gray_scott_*.tir)
// were compiled when it was built (tessera_add_kernels), into the bundle at KERNELS. Two arrays take turns: each step
// reads one and writes the other, and thousands are started without waiting.
#include <math.h>
#include <png.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tessera/tessera.h>

#include "samples/support/window.h"

enum { FRAME = 24 };  // steps from picture to picture in a window
static const char usage[] =
    "gray_scott [-o FILE] [--size WxH] [--steps N] [--exposure PERCENT] [--window] [--hold SECONDS]\n";
static const char help[] =
    "Patterns of two substances that react and spread, by kernels compiled ahead of time, in C.\n"
    "  -o, --output  the PNG file (gray_scott.png)\n"
    "  --size        columns and rows of cells, which are pixels (192x192)\n"
    "  --steps       of the reaction (2000); 0 in a window: until it is closed\n"
    "  --exposure    how bright the lamp is (100)\n"
    "  --window      shows it in a window, with the frames per second\n"
    "  --hold        seconds that a window stays after the last step (0)\n";

static tessera_bundle* bundle;
static tessera_device* device;
static tessera_kernel *seed, *react, *paint;

static void fail(const char* text) {
  fprintf(stderr, "gray_scott: %s\n", text);
  exit(1);
}
static void or_exit(tessera_result result) {
  if (result != TESSERA_OK) fail(tessera_last_error());
}
static void* or_no_memory(void* p) {
  if (!p) fail("the host's memory is used up");
  return p;
}

/// The state of h x w cells, the one before it, and what does not change.
typedef struct {
  int64_t h, w;
  float* rates;  // [2, w]: what feeds and what kills
  tessera_array *at_columns, *exposure, *cells, *others;
} reaction;

static reaction begin(int64_t h, int64_t w, float exposure) {
  reaction r = {h, w, or_no_memory(malloc(sizeof(float) * 2 * (size_t)w)), NULL, NULL, NULL, NULL};
  for (int64_t x = 0; x < w; ++x) {  // from cells that divide, on the left, to a labyrinth
    const float part = ((float)x + 0.5f) / (float)w;
    r.rates[x] = 0.0300f + 0.0240f * part;
    r.rates[w + x] = 0.0635f - 0.0020f * part;
  }
  const int64_t columns[2] = {2, w};
  or_exit(tessera_array_create(device, TESSERA_F32, 2, columns, r.rates, &r.at_columns));
  or_exit(tessera_scalar_create(TESSERA_F32, &exposure, &r.exposure));  // a number, which paint takes by value
  const tessera_size sizes[2] = {{"h", h}, {"w", w}};                   // no input of this kernel shows them
  or_exit(tessera_launch(seed, NULL, 0, &r.cells, 1, sizes, 2));
  return r;
}

static void step(reaction* r) {
  tessera_array* inputs[2] = {r->at_columns, r->cells};
  or_exit(tessera_launch(react, inputs, 2, &r->others, 1, NULL, 0));  // makes the second array the first time
  tessera_array* const before = r->cells;
  r->cells = r->others;
  r->others = before;
}

/// Paints the cells into `rgb`, [h, w, 3].
static void picture(const reaction* r, tessera_array** painted, uint8_t* rgb) {
  tessera_array* inputs[2] = {r->cells, r->exposure};
  or_exit(tessera_launch(paint, inputs, 2, painted, 1, NULL, 0));
  or_exit(tessera_array_read(*painted, rgb, (size_t)(3 * r->h * r->w)));
}

static void end(reaction* r) {
  tessera_array_destroy(r->at_columns);
  tessera_array_destroy(r->exposure);
  tessera_array_destroy(r->cells);
  tessera_array_destroy(r->others);
  free(r->rates);
}

/// The greatest difference of cells after some steps from what the definition says, in double precision.
static double difference(void) {
  enum { H = 37, W = 70, STEPS = 30, CELLS = H * W };
  static float cells[2][H][W];
  static double now[2][H][W], next[2][H][W];
  reaction r = begin(H, W, 1);
  or_exit(tessera_array_read(r.cells, cells, sizeof cells));
  for (int i = 0; i < 2 * CELLS; ++i) now[i / CELLS][i % CELLS / W][i % W] = cells[i / CELLS][i % CELLS / W][i % W];
  for (int s = 0; s < STEPS; ++s) {
    step(&r);
    for (int y = 0; y < H; ++y)
      for (int x = 0; x < W; ++x) {
        double spread[2] = {0, 0};
        for (int dy = -1; dy <= 1; ++dy)
          for (int dx = -1; dx <= 1; ++dx) {
            const int beyond = y + dy < 0 || y + dy >= H || x + dx < 0 || x + dx >= W, away = abs(dy) + abs(dx);
            const double weight = away == 0 ? -1 : away == 1 ? 0.2 : 0.05;
            for (int c = 0; c < 2; ++c) spread[c] += weight * (beyond ? now[c][y][x] : now[c][y + dy][x + dx]);
          }
        const double u = now[0][y][x], v = now[1][y][x], feed = r.rates[x], kill = r.rates[W + x];
        next[0][y][x] = u + spread[0] - u * v * v + feed * (1 - u);
        next[1][y][x] = v + 0.5 * spread[1] + u * v * v - (feed + kill) * v;
      }
    memcpy(now, next, sizeof now);
  }
  or_exit(tessera_array_read(r.cells, cells, sizeof cells));
  double worst = 0;
  for (int i = 0; i < 2 * CELLS; ++i)
    worst = fmax(worst, fabs(cells[i / CELLS][i % CELLS / W][i % W] - now[i / CELLS][i % CELLS / W][i % W]));
  end(&r);
  return worst;
}

static int64_t number(const char* option, const char* text, long least, long most) {
  char* rest = NULL;
  const long n = text ? strtol(text, &rest, 10) : -1;
  if (!text || rest == text || *rest || n < least || n > most) {
    fprintf(stderr, "gray_scott: %s takes a number from %ld to %ld, not \"%s\"\nusage: %s", option, least, most,
            text ? text : "", usage);
    exit(1);
  }
  return n;
}

static void size(const char* text, int64_t* w, int64_t* h) {
  int a = 0, b = 0;
  char rest = 0;
  if (!text || sscanf(text, "%dx%d%c", &a, &b, &rest) != 2 || a < 1 || a > 8192 || b < 1 || b > 8192) {
    fprintf(stderr, "gray_scott: --size takes two numbers from 1 to 8192, as 640x360, not \"%s\"\nusage: %s",
            text ? text : "", usage);
    exit(1);
  }
  *w = a, *h = b;
}

static void unknown(const char* option) {
  fprintf(stderr, "gray_scott: unknown option %s\nusage: %s", option, usage);
  exit(1);
}

int main(int argc, char** argv) {
  int64_t w = 192, h = 192, steps = -1, hold = 0, percent = 100;
  int in_window = 0;
  const char* out = "gray_scott.png";
  for (int i = 1; i < argc; ++i) {
    if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
      printf("%s%s", usage, help);
      return 0;
    }
    if (!strcmp(argv[i], "--size")) size(argv[++i], &w, &h);
    else if (!strcmp(argv[i], "--steps")) steps = number("--steps", argv[++i], 0, 10000000);
    else if (!strcmp(argv[i], "--exposure")) percent = number("--exposure", argv[++i], 0, 10000);
    else if (!strcmp(argv[i], "--hold")) hold = number("--hold", argv[++i], 0, 3600);
    else if (!strcmp(argv[i], "--window")) in_window = 1;
    else if ((!strcmp(argv[i], "-o") || !strcmp(argv[i], "--output")) && i + 1 < argc) out = argv[++i];
    else unknown(argv[i]);
  }
  if (steps < 0) steps = in_window ? 0 : 2000;

  tessera_device_options options = tessera_device_defaults();
  const char* validation = getenv("TESSERA_VALIDATION");
  options.validation = validation && !strcmp(validation, "1");
  or_exit(tessera_check_version(TESSERA_VERSION_NUMBER));
  or_exit(tessera_bundle_load(KERNELS, &bundle));
  or_exit(tessera_device_create(&options, &device));
  or_exit(tessera_kernel_get(bundle, device, "gray_scott_seed", &seed));
  or_exit(tessera_kernel_get(bundle, device, "gray_scott_react", &react));
  or_exit(tessera_kernel_get(bundle, device, "gray_scott_paint", &paint));

  uint8_t* rgb = or_no_memory(malloc((size_t)(3 * h * w)));
  sample_window* window = in_window ? sample_window_open("gray_scott", (int)w, (int)h) : NULL;
  if (in_window && !window) fail(sample_window_error());
  tessera_array* painted = NULL;
  reaction r = begin(h, w, (float)percent / 100);
  int64_t done = 0;
  for (int open = 1; open && (done < steps || (window && steps == 0)); ++done) {
    step(&r);
    if (!window || done % FRAME != 0) continue;
    picture(&r, &painted, rgb);
    open = sample_window_show(window, rgb);
    if (open < 0) fail(sample_window_error());
  }
  picture(&r, &painted, rgb);
  if (window && sample_window_show(window, rgb) < 0) fail(sample_window_error());
  png_image image;
  memset(&image, 0, sizeof image);
  image.version = PNG_IMAGE_VERSION;
  image.format = PNG_FORMAT_RGB;
  image.width = (png_uint_32)w;
  image.height = (png_uint_32)h;
  if (!png_image_write_to_file(&image, out, 0, rgb, 0, NULL)) {
    fprintf(stderr, "gray_scott: %s: %s\n", out, image.message);
    return 1;
  }
  if (window) sample_window_hold(window, (double)hold);
  sample_window_close(window);

  tessera_device_info info;
  or_exit(tessera_device_get_info(device, &info));
  const double worst = difference();
  const int ok = worst < 2e-6;  // numbers below 1, thirty steps of a few roundings of 2^-24 each
  printf("gray_scott: %d steps of %d x %d cells on %s, wrote %s: largest difference %.2g: %s\n", (int)done, (int)w,
         (int)h, info.name, out, worst, ok ? "ok" : "WRONG");

  free(rgb);
  tessera_array_destroy(painted);
  end(&r);
  tessera_kernel_destroy(seed);
  tessera_kernel_destroy(react);
  tessera_kernel_destroy(paint);
  tessera_bundle_destroy(bundle);
  tessera_device_destroy(device);
  return !ok;
}
