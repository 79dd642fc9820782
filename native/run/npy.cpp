#include "npy.h"

#include <fstream>
#include <iterator>
#include <stdexcept>

namespace {

const std::string MAGIC = "\x93NUMPY";

// In the order of imgconv_dtype.
constexpr const char *CODES[] = {"<f4", "<f2", "<f8", "|b1", "|i1", "|u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8"};

std::string header_of(const imgconv_tensor &tensor) {
  std::string shape;
  for (size_t axis = 0; axis < tensor.rank; ++axis) {
    shape += (axis ? ", " : "") + std::to_string(tensor.shape[axis]);
  }
  if (tensor.rank == 1) shape += ",";
  return std::string("{'descr': '") + CODES[tensor.dtype] + "', 'fortran_order': False, 'shape': (" + shape + "), }";
}

}  // namespace

std::vector<char> read_array(const std::string &path, const imgconv_tensor &tensor) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path);
  std::string content((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (content.compare(0, MAGIC.size(), MAGIC) == 0 && content.size() > 12) {
    const auto byte = [&](size_t at) { return static_cast<size_t>(static_cast<unsigned char>(content[at])); };
    const bool is_first = byte(6) == 1;
    const size_t begin = is_first ? 10 : 12;
    const size_t length = byte(8) + (byte(9) << 8) + (is_first ? 0 : (byte(10) << 16) + (byte(11) << 24));
    if (length > content.size() - begin) throw std::runtime_error(path + " is cut off");
    const std::string header = content.substr(begin, length), wanted = header_of(tensor);
    if (header.compare(0, wanted.size(), wanted)) {
      const std::string line = header.substr(0, header.find('\n'));
      throw std::runtime_error(path + " has " + line + "; " + tensor.name + " is " + wanted);
    }
    content.erase(0, begin + length);
  }
  if (content.size() != tensor.bytes) {
    throw std::runtime_error(path + " has " + std::to_string(content.size()) + " bytes of content; " + tensor.name +
                             " has " + std::to_string(tensor.bytes));
  }
  return {content.begin(), content.end()};
}

void write_array(const std::string &path, const imgconv_tensor &tensor, const std::vector<char> &content) {
  std::string header = header_of(tensor);
  header.resize((header.size() + 11 + 63) / 64 * 64 - 11, ' ');
  header += '\n';
  const char length[2] = {static_cast<char>(header.size() & 255), static_cast<char>(header.size() >> 8)};
  std::ofstream file(path, std::ios::binary);
  file << MAGIC << '\1' << '\0';
  file.write(length, 2) << header;
  file.write(content.data(), static_cast<std::streamsize>(content.size()));
  if (!file.flush()) throw std::runtime_error("cannot write " + path);
}
