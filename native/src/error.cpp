#include "error.h"

#include <locale>
#include <sstream>

namespace imgconv {

void Part::add_to(std::string &text) const {
  switch (kind_) {
    case Kind::text: text += text_; break;
    case Kind::integer: text += std::to_string(integer_); break;
    case Kind::natural: text += std::to_string(natural_); break;
    case Kind::real: {
      std::ostringstream made;
      made.imbue(std::locale::classic());
      made << real_;
      text += made.str();
    }
  }
}

std::string join_parts(std::initializer_list<Part> parts) {
  std::string made;
  for (const Part &each : parts) each.add_to(made);
  return made;
}

}  // namespace imgconv
