#include "compare.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

namespace {

template <class T>
double as(const char *at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return static_cast<double>(value);
}

// An IEEE half: sign, five bits of exponent, ten of fraction.
double half(const char *at) {
  uint16_t bits;
  std::memcpy(&bits, at, sizeof bits);
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const double infinity = std::numeric_limits<double>::infinity();
  const double magnitude = exponent == 31 ? (fraction ? std::nan("") : infinity)
                           : exponent     ? std::ldexp(1024 + fraction, exponent - 25)
                                          : std::ldexp(fraction, -24);
  return bits >> 15 ? -magnitude : magnitude;
}

// How an element is read. In the order of imgconv_dtype.
constexpr double (*READ[])(const char *) = {
    as<float>, half, as<double>, as<uint8_t>, as<int8_t>, as<uint8_t>, as<int16_t>, as<uint16_t>, as<int32_t>,
    as<uint32_t>, as<int64_t>, as<uint64_t>};

size_t elements_of(const imgconv_tensor &tensor) {
  size_t count = 1;
  for (size_t axis = 0; axis < tensor.rank; ++axis) count *= static_cast<size_t>(tensor.shape[axis]);
  return count;
}

}  // namespace

Difference difference_of(
    const imgconv_tensor &tensor, const std::vector<char> &found, const std::vector<char> &expected) {
  Difference made;
  const size_t count = elements_of(tensor), bytes = count ? tensor.bytes / count : 0;
  double magnitude = 0;
  for (size_t i = 0; i < count; ++i) {
    const char *at = &found[i * bytes], *wanted_at = &expected[i * bytes];
    const double value = READ[tensor.dtype](at), wanted = READ[tensor.dtype](wanted_at);
    if (std::isfinite(wanted)) magnitude = std::max(magnitude, std::abs(wanted));
    if (std::memcmp(at, wanted_at, bytes) == 0) continue;
    ++made.elements;
    const bool alike = value == wanted || (std::isnan(value) && std::isnan(wanted));
    const double distance = alike ? 0 : std::abs(value - wanted);
    made.largest = std::isnan(distance) ? std::numeric_limits<double>::infinity() : std::max(made.largest, distance);
  }
  if (magnitude > 0) made.largest /= magnitude;
  return made;
}
