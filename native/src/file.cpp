#include "file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "lzma.h"
#include "model_generated.h"

namespace imgconv {
namespace {

constexpr char MAGIC[8] = {'i', 'm', 'g', 'c', 'o', 'n', 'v', 0};
constexpr uint32_t PLAIN = 2, CONTAINER = 3;  // VERSION in imgconv/files/container.py; PLAIN: of uncompressed heads
constexpr uint64_t LARGEST_HEAD = 1 << 28;    // the same there
constexpr uint64_t MOST_COMPRESSED = 1 << 19;  // the same there, of all blobs
constexpr uint32_t READS = 7;  // READS in imgconv/stored/compiled_file.py
constexpr size_t ALIGNMENT = 64, START = 24, LENGTH = 8;

constexpr uint64_t aligned(uint64_t length) { return (length + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

template <class T>
T number_at(const uint8_t *data) {
  T value;
  std::memcpy(&value, data, sizeof value);
  return value;
}

// tables[k][byte]: the checksum of a byte with k zeros after it.
using Tables = std::array<std::array<uint32_t, 256>, 8>;

constexpr Tables checksum_tables() {
  Tables tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = value & 1 ? value >> 1 ^ 0xEDB88320u : value >> 1;
    tables[0][byte] = value;
  }
  for (size_t zeros = 1; zeros < 8; ++zeros) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t before = tables[zeros - 1][byte];
      tables[zeros][byte] = before >> 8 ^ tables[0][before & 255];
    }
  }
  return tables;
}

constexpr Tables TABLES = checksum_tables();

}  // namespace

uint32_t crc32(Span span) {
  uint32_t value = 0xFFFFFFFFu;
  const uint8_t *data = span.data, *end = span.data + span.bytes;
  for (; end - data >= 8; data += 8) {
    const uint32_t low = number_at<uint32_t>(data) ^ value, high = number_at<uint32_t>(data + 4);
    value = TABLES[7][low & 255] ^ TABLES[6][low >> 8 & 255] ^ TABLES[5][low >> 16 & 255] ^ TABLES[4][low >> 24] ^
            TABLES[3][high & 255] ^ TABLES[2][high >> 8 & 255] ^ TABLES[1][high >> 16 & 255] ^ TABLES[0][high >> 24];
  }
  for (; data != end; ++data) value = value >> 8 ^ TABLES[0][(value ^ *data) & 255];
  return ~value;
}

File File::map(const std::string &path) {
  const auto refused = [&](const char *what) { return Error(IMGCONV_ERROR_FILE, "file '", path, "': ", what); };
  struct stat status {};
  // Looked at before it is opened: opening a pipe would wait.
  if (stat(path.c_str(), &status)) throw refused(std::strerror(errno));
  if (!S_ISREG(status.st_mode)) throw refused("it is not a plain file");
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) throw refused(std::strerror(errno));
  void *mapped = MAP_FAILED;
  if (fstat(file, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0) {
    mapped = mmap(nullptr, static_cast<size_t>(status.st_size), PROT_READ, MAP_PRIVATE, file, 0);
  }
  close(file);
  if (mapped == MAP_FAILED) throw refused("it cannot be mapped, or is empty");
  const size_t bytes = static_cast<size_t>(status.st_size);
  std::shared_ptr<void> mapping(mapped, [bytes](void *begin) { munmap(begin, bytes); });
  return File("file '" + path + "'", {static_cast<const uint8_t *>(mapped), bytes}, std::move(mapping));
}

File File::in_memory(Span content) { return File("the file in memory", content, nullptr); }

File::File(std::string name, Span content, std::shared_ptr<void> mapping)
    : name_(std::move(name)), content_(content), mapping_(std::move(mapping)) {
  const uint8_t *data = content_.data;
  if (content_.bytes < START || std::memcmp(data, MAGIC, sizeof MAGIC)) refuse("it is not a compiled imgconv model");
  const uint32_t version = number_at<uint32_t>(data + 8);
  if (version != CONTAINER && version != PLAIN) {
    refuse("it has version ", version, " of the format, this library reads ", CONTAINER, ": compile it again");
  }
  const uint64_t length = number_at<uint64_t>(data + 16);
  if (content_.bytes < ALIGNMENT || length > content_.bytes - ALIGNMENT) {
    refuse("it is shorter than it says: it was cut off. Compile it again");
  }
  Span head{data + ALIGNMENT, static_cast<size_t>(length)};
  checksum_ = number_at<uint32_t>(data + 12);
  if (crc32(head) != checksum_) refuse("its head is damaged: the checksum differs. Compile it again");
  if (version == CONTAINER) {
    head = decompressed_head(head);
  } else if (reinterpret_cast<uintptr_t>(head.data) % 8) {
    aligned_head_.resize(head.bytes / 8 + 1);
    std::memcpy(aligned_head_.data(), head.data, head.bytes);
    head.data = reinterpret_cast<const uint8_t *>(aligned_head_.data());
  }
  head_bytes_ = head.bytes;
  flatbuffers::Verifier verifier(head.data, head.bytes);
  if (!stored::VerifyModelBuffer(verifier)) refuse("its content is not a model: compile it again");
  model_ = stored::GetModel(head.data);
  first_blob_ = static_cast<size_t>(ALIGNMENT + aligned(length));
  if (model_->needs() > READS) {
    const std::string writer = model_->written_by() ? model_->written_by()->str() : "?";
    refuse("imgconv ", writer, " compiled it for readers of version ", model_->needs(), ", this library reads ", READS,
           ": compile it again, or use a newer library");
  }
  decompressed_ = decompressed_blobs();
}

Span File::decompressed_head(Span stored) {
  const uint64_t bytes = stored.bytes < LENGTH ? LARGEST_HEAD + 1 : number_at<uint64_t>(stored.data);
  if (bytes > LARGEST_HEAD) refuse("its content is not a model: compile it again");
  aligned_head_.resize(static_cast<size_t>(bytes) / 8 + 1);
  auto *const made = reinterpret_cast<uint8_t *>(aligned_head_.data());
  if (!decode_lzma(stored.data + LENGTH, stored.bytes - LENGTH, made, static_cast<size_t>(bytes))) {
    refuse("its head cannot be decompressed. Compile it again");
  }
  return {made, static_cast<size_t>(bytes)};
}

std::string File::description() const {
  return model_->description() ? model_->description()->str() : std::string();
}

std::vector<std::vector<uint8_t>> File::decompressed_blobs() const {
  std::vector<std::vector<uint8_t>> made(model_->blobs() ? model_->blobs()->size() : 0);
  uint64_t total = 0;
  for (uint32_t number = 0; number < made.size(); ++number) {
    const uint64_t bytes = model_->blobs()->Get(number)->content_bytes();
    if (!bytes) continue;
    total += bytes;
    if (bytes > MOST_COMPRESSED || total > MOST_COMPRESSED) refuse("its blobs are too long: compile it again");
    const Span stored = stored_blob(number);
    made[number].resize(static_cast<size_t>(bytes));
    if (!decode_lzma(stored.data, stored.bytes, made[number].data(), made[number].size())) {
      refuse("blob ", number, " cannot be decompressed. Compile it again");
    }
  }
  return made;
}

Span File::blob(uint32_t number) const {
  if (number >= decompressed_.size() || decompressed_[number].empty()) return stored_blob(number);
  return {decompressed_[number].data(), decompressed_[number].size()};
}

Span File::stored_blob(uint32_t number) const {
  const auto *blobs = model_->blobs();
  if (!blobs || number >= blobs->size()) refuse("it has no blob ", number, ": compile it again");
  const stored::Blob &place = *blobs->Get(number);
  const uint64_t room = content_.bytes > first_blob_ ? content_.bytes - first_blob_ : 0;
  if (place.offset() > room || place.bytes() > room - place.offset() || place.offset() % ALIGNMENT) {
    refuse("it is shorter than it says: it was cut off. Compile it again");
  }
  return {content_.data + first_blob_ + place.offset(), static_cast<size_t>(place.bytes())};
}

Span File::checked_blob(uint32_t number) const {
  if (crc32(stored_blob(number)) != model_->blobs()->Get(number)->checksum()) {
    refuse("blob ", number, " is damaged: the checksum differs. Compile it again");
  }
  return blob(number);
}

}  // namespace imgconv
