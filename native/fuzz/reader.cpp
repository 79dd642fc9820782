// Reads damaged files: each is refused with an Error, or read. Build it with sanitizers; see native/CMakeLists.txt.
//
//     fuzz-reader FILE COUNT SEED    COUNT files with bytes of FILE changed or cut, half of them with right checksums
//
// With -DIMGCONV_LIBFUZZER it is a target of clang's libFuzzer instead.
#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>

#include "error.h"
#include "file.h"
#include "plan.h"

namespace {

// A device that everything fits, so that all of a plan is looked at.
imgconv::DeviceInfo large_device() {
  imgconv::DeviceInfo info;
  info.max_image_width = info.max_image_height = info.max_image_layers = 1 << 20;
  info.max_read_images = info.max_work_group_size = 1 << 20;
  info.max_work_item_sizes = {1 << 20, 1 << 20, 1 << 20};
  info.max_allocation_bytes = uint64_t(1) << 40;
  info.half_images = info.byte_images = true;
  info.image_row_alignment = info.image_base_alignment = 1;
  info.extensions = {"cl_khr_fp16"};
  return info;
}

// Whether the file was read to its end.
bool read(const uint8_t *data, size_t size) {
  try {
    const imgconv::File file = imgconv::File::in_memory({data, size});
    const imgconv::DeviceInfo device = large_device();
    const imgconv::Plan plan = imgconv::PlanChoice(file, device, "").next();
    for (const imgconv::ProgramParts &program : plan.programs) {
      plan.source(program.kernels);
      if (program.binary >= 0) file.checked_blob(static_cast<uint32_t>(program.binary));
    }
    for (const imgconv::Storage &storage : plan.storages) {
      if (storage.content < 0) continue;
      const imgconv::Span blob = file.checked_blob(static_cast<uint32_t>(storage.content));
      std::vector<uint8_t> made;
      if (storage.view.is_used && !imgconv::gather(storage.view, blob, storage.dtype, made)) return false;
    }
    for (const imgconv::Output &output : plan.outputs) {
      if (output.is_constant()) file.checked_blob(output.blob);
    }
    return true;
  } catch (const imgconv::Error &) {
    return false;
  }
}

// Makes the checksum of the FlatBuffer right, so that what it holds is looked at.
void mend(std::vector<uint8_t> &file) {
  uint64_t length = 0;
  if (file.size() < 64) return;
  std::memcpy(&length, &file[16], sizeof length);
  if (length > file.size() - 64) return;
  const uint32_t checksum = imgconv::crc32({&file[64], static_cast<size_t>(length)});
  std::memcpy(&file[12], &checksum, sizeof checksum);
}

}  // namespace

#ifdef IMGCONV_LIBFUZZER

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  std::vector<uint8_t> file(data, data + size);
  mend(file);
  read(file.data(), file.size());
  return 0;
}

#else

int main(int count, char **given) {
  if (count != 4) return 2;
  std::ifstream stream(given[1], std::ios::binary);
  const std::vector<uint8_t> whole((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
  if (!read(whole.data(), whole.size())) return 3;
  std::mt19937 random(static_cast<uint32_t>(std::atoi(given[3])));
  const auto below = [&](size_t limit) { return static_cast<size_t>(random()) % limit; };
  uint64_t length = 0;
  std::memcpy(&length, &whole[16], sizeof length);
  const int files = std::atoi(given[2]);
  int kept = 0;
  for (int number = 0; number < files; ++number) {
    std::vector<uint8_t> file = whole;
    // Mostly in the FlatBuffer. A small number is the likeliest to look like an offset or an index.
    for (size_t changes = 1 + below(4); changes > 0; --changes) {
      const size_t at = below(4) ? 64 + below(length) : below(file.size());
      file[at] = static_cast<uint8_t>(below(2) ? below(256) : below(8) * 36);
    }
    if (below(8) == 0) file.resize(below(file.size()));
    if (below(2)) mend(file);
    file.shrink_to_fit();  // so that a read past the end is found
    kept += read(file.data(), file.size());
  }
  struct rusage usage {};
  getrusage(RUSAGE_SELF, &usage);
  std::printf("%d files: %d read, %d refused; at most %ld MB\n", files, kept, files - kept, usage.ru_maxrss / 1024);
  return 0;
}

#endif
