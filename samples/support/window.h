// A window that shows pictures one after another, for C and C++: what the demos do under --window. It is drawn by the
// host of samples/renderer (Vulkan and GLFW), and has nothing to do with where the pictures come from. Where there is
// no display, or GLFW was not there when this was built, sample_window_open() says so.
#pragma once
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sample_window sample_window;

/// A window for pictures of width x height pixels: 1 to 16 times as large, so that it is at least 512 pixels high or
/// wide. NULL if there can be none: sample_window_error() says why.
sample_window* sample_window_open(const char* title, int width, int height);
/// Shows rows of 8-bit red, green and blue, of the size given to open, and from the second picture on, above them, how
/// many there are per second. 1; 0 once the user has closed the window; -1 if it failed: sample_window_error() says
/// why.
int sample_window_show(sample_window* window, const uint8_t* rgb);
/// The window stays for so many seconds, or until the user closes it, with the last picture alone.
void sample_window_hold(sample_window* window, double seconds);
void sample_window_close(sample_window* window);
/// The sentence of the last error on this thread.
const char* sample_window_error(void);

#ifdef __cplusplus
}
#endif
