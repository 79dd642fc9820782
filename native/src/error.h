// Error: what the library throws inside, and the C interface turns into a status and a text.
#pragma once

#include <cstdint>
#include <exception>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>

#include "imgconv.h"

namespace imgconv {

// A text or a number of a message. It does not own the text.
class Part {
 public:
  Part(const char *text) : text_(text) {}
  Part(const std::string &text) : text_(text) {}
  template <class Number, class = std::enable_if_t<std::is_arithmetic_v<Number>>>
  Part(Number number) {
    if constexpr (std::is_floating_point_v<Number>) kind_ = Kind::real, real_ = number;
    else if constexpr (std::is_signed_v<Number>) kind_ = Kind::integer, integer_ = number;
    else kind_ = Kind::natural, natural_ = number;
  }
  void add_to(std::string &text) const;

 private:
  enum class Kind { text, integer, natural, real };

  Kind kind_ = Kind::text;
  std::string_view text_;
  union {
    int64_t integer_;
    uint64_t natural_;
    double real_;
  };
};

std::string join_parts(std::initializer_list<Part> parts);

// The parts as one text: join("a ", 1) is "a 1".
template <class... Parts>
std::string join(const Parts &...parts) {
  return join_parts({Part(parts)...});
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
