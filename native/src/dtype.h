// Element types, and arrays of the caller to and from the types that a device keeps. As imgconv/runtime/io_binding.py.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "imgconv.h"

namespace imgconv {

// The dtype of numpy's name; false if the library has none.
bool read_dtype(const std::string &name, imgconv_dtype &dtype);
const char *dtype_name(imgconv_dtype dtype);
size_t dtype_bytes(imgconv_dtype dtype);
bool is_float(imgconv_dtype dtype);

// A value of the model: an input or an output.
struct Value {
  std::string name;
  imgconv_dtype dtype = IMGCONV_FLOAT32;
  std::vector<int64_t> shape;
  size_t elements = 0;

  size_t bytes() const { return elements * dtype_bytes(dtype); }
};

// Whether values of a dtype can be kept as `stored`: as they are, or as float32.
bool can_store(imgconv_dtype dtype, imgconv_dtype stored);

// Throws Error if an integer is over 2**24 in magnitude, where floats are not exact.
void check_exact(const Value &value, const void *array);

// A number of an array.
double number_at(imgconv_dtype dtype, const void *array, size_t number);

// The nearest half, of two the even one.
uint16_t to_half(float number);

// An integer or a bool of an array, and setting one. Integers wrap around.
int64_t integer_at(imgconv_dtype dtype, const void *array, size_t number);
void set_integer(imgconv_dtype dtype, void *array, size_t number, int64_t value);

// Converts the array of an input to float32. Throws Error for a float64 beyond it.
void to_float(const Value &value, const void *array, float *stored);

// Converts float32 to the dtype of an output. Throws Error for a number outside of it, and for NaN in integers.
void from_float(const Value &value, const float *stored, void *array);

}  // namespace imgconv
