// The library's functions, whose errors become exceptions.
#pragma once

#include <stdexcept>

#include "imgconv.h"

// Throws std::runtime_error. Example: call(imgconv_reset, model).
template <class Function, class... Given>
void call(Function function, Given... given) {
  imgconv_error error;
  if (function(given..., &error)) throw std::runtime_error(error.message);
}
