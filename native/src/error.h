// Error: what the library throws inside, and the C interface turns into a status and a text.
#pragma once

#include <exception>
#include <string>
#include <utility>

#include "imgconv.h"

namespace imgconv {

class Error : public std::exception {
 public:
  Error(imgconv_status status, std::string message) : status_(status), message_(std::move(message)) {}
  imgconv_status status() const { return status_; }
  const char *what() const noexcept override { return message_.c_str(); }

 private:
  imgconv_status status_;
  std::string message_;
};

}  // namespace imgconv
