// Decodes LZMA, in which the FlatBuffer of a compiled file is compressed: see imgconv/files/container.py.
#pragma once

#include <cstddef>
#include <cstdint>

namespace imgconv {

// Fills `out` with exactly `size` bytes of a raw LZMA stream, of lc 3, lp 0 and pb 2. Returns false if the stream is
// damaged or ends before.
bool decode_lzma(const uint8_t *data, size_t bytes, uint8_t *out, size_t size);

}  // namespace imgconv
