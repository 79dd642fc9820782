// The library's functions, whose errors become exceptions.
#pragma once

#include <stdexcept>

#include "imgconv.h"

struct CallError : std::runtime_error {
  explicit CallError(const imgconv_error &error) : std::runtime_error(error.message), status(error.status) {}

  imgconv_status status;
};

// Throws CallError. Example: call(imgconv_reset, model).
template <class Function, class... Given>
void call(Function function, Given... given) {
  imgconv_error error;
  if (function(given..., &error)) throw CallError(error);
}
