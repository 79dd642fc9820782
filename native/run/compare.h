// How far an output is from a reference.
#pragma once

#include <cstddef>
#include <vector>

#include "imgconv.h"

struct Difference {
  size_t elements = 0;  // whose bits differ
  double largest = 0;   // difference of two numbers, divided by the largest number of the reference; may be infinite
};

// found, expected: contents of the tensor.
Difference difference_of(
    const imgconv_tensor &tensor, const std::vector<char> &found, const std::vector<char> &expected);
