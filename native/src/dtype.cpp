#include "dtype.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "error.h"

namespace imgconv {
namespace {

constexpr int64_t EXACT = 1 << 24;
constexpr uint32_t HALF_INFINITY = 0x7C00;

template <class To, class From>
To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

// The types of C of every dtype but half, which is kept as it is.
#define IMGCONV_C_TYPES(X)                                                                              \
  X(FLOAT32, float) X(FLOAT64, double) X(BOOL, bool) X(INT8, int8_t) X(UINT8, uint8_t) X(INT16, int16_t) \
  X(UINT16, uint16_t) X(INT32, int32_t) X(UINT32, uint32_t) X(INT64, int64_t) X(UINT64, uint64_t)

// In the order of imgconv_dtype.
constexpr struct {
  const char *name;
  size_t bytes;
} TYPES[] = {{"float32", 4}, {"float16", 2}, {"float64", 8}, {"bool", 1},   {"int8", 1},  {"uint8", 1},
             {"int16", 2},   {"uint16", 2},  {"int32", 4},   {"uint32", 4}, {"int64", 8}, {"uint64", 8}};

// Calls `work` with a number of the C type of a dtype that is no half.
template <class Work>
void with_type(imgconv_dtype dtype, Work work) {
#define IMGCONV_CASE(name, type) \
  if (dtype == IMGCONV_##name) return work(type());
  IMGCONV_C_TYPES(IMGCONV_CASE)
#undef IMGCONV_CASE
  throw Error(IMGCONV_ERROR_UNSUPPORTED, "float16 is kept as it is only");
}

template <class T>
T element(const void *array, size_t number) {
  // A byte other than 0 and 1 is no bool of C++.
  if constexpr (std::is_same_v<T, bool>) return static_cast<const uint8_t *>(array)[number] != 0;
  else return static_cast<const T *>(array)[number];
}

// Whether a rounded float is an integer of type T that a float holds exactly. NaN is none.
template <class T>
bool holds(float whole) {
  const float low = static_cast<float>(std::numeric_limits<T>::min());
  // As a float, the largest int32 rounds to 2**31, which is no int32.
  const float high = static_cast<float>(std::numeric_limits<T>::max());
  return low <= whole && (whole < high || (whole == high && high < static_cast<float>(EXACT)));
}

template <class T>
void convert_output(const Value &value, const float *stored, T *array) {
  for (size_t i = 0; i < value.elements; ++i) {
    if constexpr (std::is_floating_point_v<T>) {
      array[i] = static_cast<T>(stored[i]);
    } else {
      const float whole = std::nearbyint(stored[i]);
      if (!holds<T>(whole)) {
        throw Error(IMGCONV_ERROR_RANGE, "output '", value.name, "' depends on an integer that reached 2**24, where ",
                    "fp32 values are not exact, or on a value outside the range of ", dtype_name(value.dtype));
      }
      array[i] = static_cast<T>(whole);
    }
  }
}

}  // namespace

bool read_dtype(const std::string &name, imgconv_dtype &dtype) {
  for (size_t i = 0; i < sizeof TYPES / sizeof *TYPES; ++i) {
    if (name != TYPES[i].name) continue;
    dtype = static_cast<imgconv_dtype>(i);
    return true;
  }
  return false;
}

const char *dtype_name(imgconv_dtype dtype) { return TYPES[dtype].name; }

size_t dtype_bytes(imgconv_dtype dtype) { return TYPES[dtype].bytes; }

bool is_float(imgconv_dtype dtype) { return dtype <= IMGCONV_FLOAT64; }

bool can_store(imgconv_dtype dtype, imgconv_dtype stored) {
  return dtype == stored || (stored == IMGCONV_FLOAT32 && dtype != IMGCONV_FLOAT16);
}

void check_exact(const Value &value, const void *array) {
  if (is_float(value.dtype) || dtype_bytes(value.dtype) <= 2) return;
  with_type(value.dtype, [&](auto type) {
    using T = decltype(type);
    for (size_t i = 0; i < value.elements; ++i) {
      const T number = element<T>(array, i);
      const bool below = std::is_signed_v<T> && number < static_cast<T>(-EXACT);
      if (!below && (number < T() || number <= static_cast<T>(EXACT))) continue;
      throw Error(IMGCONV_ERROR_RANGE, "input '", value.name, "' holds ", number,
                  ": integers that are computed with are fp32 values on the device, exact up to 2**24 = 16777216");
    }
  });
}

void to_float(const Value &value, const void *array, float *stored) {
  with_type(value.dtype, [&](auto type) {
    using T = decltype(type);
    for (size_t i = 0; i < value.elements; ++i) {
      const T number = element<T>(array, i);
      if constexpr (std::is_same_v<T, double>) {
        if (std::isfinite(number) && std::abs(number) > std::numeric_limits<float>::max()) {
          throw Error(IMGCONV_ERROR_RANGE, "input '", value.name, "' holds ", number,
                      ": it is computed in float32, which ends at 3.403e+38");
        }
      }
      stored[i] = static_cast<float>(number);
    }
  });
}

double number_at(imgconv_dtype dtype, const void *array, size_t number) {
  if (dtype != IMGCONV_FLOAT16) {
    double found = 0;
    with_type(dtype, [&](auto type) { found = static_cast<double>(element<decltype(type)>(array, number)); });
    return found;
  }
  const uint16_t bits = static_cast<const uint16_t *>(array)[number];
  const uint32_t magnitude = bits & 0x7FFF;
  if (magnitude >= HALF_INFINITY) return magnitude > HALF_INFINITY ? NAN : bits >> 15 ? -INFINITY : INFINITY;
  const double found = bits_as<float>(magnitude << 13) * 0x1p112;  // the exponent of a float is 112 larger
  return bits >> 15 ? -found : found;
}

uint16_t to_half(float number) {
  const uint32_t bits = bits_as<uint32_t>(number), magnitude = bits & 0x7FFFFFFF;
  uint32_t half = 0;
  if (std::isnan(number)) {
    half = HALF_INFINITY + 1;
  } else if (magnitude >= bits_as<uint32_t>(65520.0f)) {  // half way from the largest half to the next power of two
    half = HALF_INFINITY;
  } else if (magnitude < bits_as<uint32_t>(0x1p-14f)) {  // a multiple of 2**-24, the last digit of 0.5 .. 1
    half = bits_as<uint32_t>(bits_as<float>(magnitude) + 0.5f) - bits_as<uint32_t>(0.5f);
  } else {
    half = (magnitude - (112u << 23) + 0xFFF + (magnitude >> 13 & 1)) >> 13;
  }
  return static_cast<uint16_t>(bits >> 31 << 15 | half);
}

int64_t integer_at(imgconv_dtype dtype, const void *array, size_t number) {
  int64_t found = 0;
  with_type(dtype, [&](auto type) { found = static_cast<int64_t>(element<decltype(type)>(array, number)); });
  return found;
}

void set_integer(imgconv_dtype dtype, void *array, size_t number, int64_t value) {
  with_type(dtype, [&](auto type) {
    static_cast<decltype(type) *>(array)[number] = static_cast<decltype(type)>(value);
  });
}

void from_float(const Value &value, const float *stored, void *array) {
  with_type(value.dtype, [&](auto type) { convert_output(value, stored, static_cast<decltype(type) *>(array)); });
}

}  // namespace imgconv
