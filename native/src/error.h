// Error: what the library throws inside, and the C interface turns into a status and a text.
#pragma once

#include <exception>
#include <locale>
#include <sstream>
#include <string>

#include "imgconv.h"

namespace imgconv {

// The parts as one text: join("a ", 1) is "a 1".
template <class... Parts>
std::string join(const Parts &...parts) {
  std::ostringstream made;
  made.imbue(std::locale::classic());
  (made << ... << parts);
  return made.str();
}

class Error : public std::exception {
 public:
  template <class... Parts>
  explicit Error(imgconv_status status, const Parts &...message) : status_(status), message_(join(message...)) {}
  imgconv_status status() const { return status_; }
  const char *what() const noexcept override { return message_.c_str(); }

 private:
  imgconv_status status_;
  std::string message_;
};

}  // namespace imgconv
