// A compiled file: the container of imgconv/files/container.py around the FlatBuffer of imgconv/stored/model.fbs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "error.h"

namespace imgconv {

namespace stored {
struct Model;
}

struct Span {
  const uint8_t *data = nullptr;
  size_t bytes = 0;
};

// CRC-32 as zlib computes it.
uint32_t crc32(Span span);

// An opened file, whose start and FlatBuffer are checked. All errors name it.
class File {
 public:
  // Maps the file. Throws Error.
  static File map(const std::string &path);
  // A file in memory, which must stay.
  static File in_memory(Span content);

  const stored::Model &model() const { return *model_; }
  // What the outputs mean, as JSON; "" if the file does not say it.
  std::string description() const;
  // Of the file, with its FlatBuffer decompressed.
  size_t bytes() const { return content_.bytes + head_bytes_; }
  // Of the FlatBuffer, which has the checksums of all blobs.
  uint32_t checksum() const { return checksum_; }
  // Where a blob is; its content is not read. Throws Error if it is not in the file.
  Span blob(uint32_t number) const;
  // The same, whose checksum was compared.
  Span checked_blob(uint32_t number) const;
  template <class... Parts>
  [[noreturn]] void refuse(const Parts &...problem) const {
    throw Error(IMGCONV_ERROR_FILE, name_, ": ", problem...);
  }

 private:
  File(std::string name, Span content, std::shared_ptr<void> mapping);
  Span decompressed_head(Span stored);
  // The content of each compressed blob; nothing for the others.
  std::vector<std::vector<uint8_t>> decompressed_blobs() const;
  Span stored_blob(uint32_t number) const;

  std::string name_;
  Span content_;
  std::shared_ptr<void> mapping_;
  // Decompressed; or a copy, if the content does not begin at a multiple of 8 bytes.
  std::vector<uint64_t> aligned_head_;
  size_t head_bytes_ = 0;
  size_t first_blob_ = 0;
  std::vector<std::vector<uint8_t>> decompressed_;
  uint32_t checksum_ = 0;
  const stored::Model *model_ = nullptr;
};

}  // namespace imgconv
