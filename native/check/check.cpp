// Uses the whole C interface from several threads, for the sanitizers: see tests/native/check_sanitizers.py.
//
//     imgconv-check MODEL DEVICE CACHE
//
// MODEL takes one float32 input, which can be mapped. Exit status 1 if a result differs from that of a run alone.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "imgconv.h"

namespace {

constexpr int THREADS = 4, ROUNDS = 100, MOST_FRAMES = 3;

#define REQUIRE(condition)                                                   \
  if (!(condition)) {                                                        \
    std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);     \
    std::exit(1);                                                            \
  }

using Bytes = std::vector<char>;

struct Arrays {
  std::vector<Bytes> contents;
  std::vector<imgconv_array> arrays;

  void add(size_t bytes) { contents.emplace_back(bytes); }
  size_t size() const { return contents.size(); }
  const imgconv_array *get() {
    arrays.clear();
    for (Bytes &each : contents) arrays.push_back({each.data(), each.size(), nullptr, nullptr});
    return arrays.data();
  }
};

Arrays outputs_of(const imgconv_model *model) {
  Arrays made;
  imgconv_tensor tensor;
  for (size_t i = 0; imgconv_output(model, i, &tensor) == IMGCONV_OK; ++i) made.add(tensor.bytes);
  return made;
}

// Others for each thread, so that one that takes the inputs of another is found.
Arrays inputs_of(const imgconv_model *model, int thread) {
  Arrays made;
  imgconv_tensor tensor;
  REQUIRE(imgconv_input_count(model) == 1 && imgconv_input(model, 0, &tensor) == IMGCONV_OK);
  made.add(tensor.bytes);
  float *numbers = reinterpret_cast<float *>(made.contents[0].data());
  for (size_t i = 0; i < tensor.bytes / sizeof(float); ++i) {
    numbers[i] = static_cast<float>((i + 5 * static_cast<size_t>(thread)) % 17) / 17;
  }
  return made;
}

imgconv_model *open(const std::string &path, const imgconv_options &options) {
  imgconv_model *model = nullptr;
  imgconv_error error;
  if (imgconv_open_file(path.c_str(), &options, &model, &error)) std::fputs(error.message, stderr);
  REQUIRE(model);
  return model;
}

std::vector<Bytes> run(imgconv_model *model, int thread) {
  Arrays inputs = inputs_of(model, thread), outputs = outputs_of(model);
  REQUIRE(imgconv_run(model, inputs.get(), 1, outputs.get(), outputs.size(), nullptr) == IMGCONV_OK);
  return outputs.contents;
}

std::vector<Bytes> run_mapped(imgconv_model *model, int thread) {
  Arrays inputs = inputs_of(model, thread), outputs = outputs_of(model);
  void *mapped = nullptr;
  REQUIRE(imgconv_map_input(model, 0, &mapped, nullptr) == IMGCONV_OK);
  std::memcpy(mapped, inputs.contents[0].data(), inputs.contents[0].size());
  const imgconv_array given = {mapped, inputs.contents[0].size(), nullptr, nullptr};
  REQUIRE(imgconv_run(model, &given, 1, outputs.get(), outputs.size(), nullptr) == IMGCONV_OK);
  return outputs.contents;
}

// Threads of a shared model may find all frames in flight; then they run.
std::vector<Bytes> submit(imgconv_model *model, int thread) {
  Arrays inputs = inputs_of(model, thread), outputs = outputs_of(model);
  uint64_t frame = 0;
  const imgconv_status status = imgconv_submit(model, inputs.get(), 1, &frame, nullptr);
  if (status == IMGCONV_ERROR_BUSY) return run(model, thread);
  REQUIRE(status == IMGCONV_OK);
  inputs.contents.clear();
  REQUIRE(imgconv_wait(model, frame, outputs.get(), outputs.size(), nullptr) == IMGCONV_OK);
  return outputs.contents;
}

void refuse(const std::string &path, const imgconv_options &options, imgconv_model *model) {
  std::ifstream stream(path, std::ios::binary);
  Bytes whole((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
  imgconv_model *opened = nullptr;
  imgconv_error error;
  REQUIRE(imgconv_open_memory(whole.data(), whole.size() / 2, &options, &opened, &error) == IMGCONV_ERROR_FILE);
  REQUIRE(!opened && std::strlen(error.message));
  REQUIRE(imgconv_open_file("/no/such/file", &options, &opened, &error) == IMGCONV_ERROR_FILE);
  imgconv_options cancelled = options;
  cancelled.progress = [](void *, imgconv_phase, size_t, size_t) { return 1; };
  REQUIRE(imgconv_open_file(path.c_str(), &cancelled, &opened, &error) == IMGCONV_ERROR_CANCELLED && !opened);
  Arrays inputs = inputs_of(model, 0), outputs = outputs_of(model);
  const imgconv_array wrong = {inputs.contents[0].data(), 1, nullptr, nullptr};
  REQUIRE(imgconv_run(model, &wrong, 1, outputs.get(), outputs.size(), &error) == IMGCONV_ERROR_ARGUMENT);
  REQUIRE(imgconv_wait(model, 99999, outputs.get(), outputs.size(), &error) == IMGCONV_ERROR_ARGUMENT);
  REQUIRE(imgconv_run(nullptr, nullptr, 0, nullptr, 0, &error) == IMGCONV_ERROR_ARGUMENT);
}

}  // namespace

int main(int count, char **given) {
  REQUIRE(count == 4);
  const std::string path = given[1];
  imgconv_options options{};
  options.device = given[2];
  options.cache_folder = given[3];
  options.frames = MOST_FRAMES;
  imgconv_model *const shared = open(path, options);
  std::vector<std::vector<Bytes>> results;
  for (int number = 0; number < THREADS; ++number) results.push_back(run(shared, number));
  std::atomic<int> differing{0}, ready{0};
  const auto work = [&](int number) {
    const std::vector<Bytes> &expected = results[static_cast<size_t>(number)];
    imgconv_model *const own = number % 2 ? open(path, options) : nullptr;
    for (++ready; ready < THREADS;) std::this_thread::yield();
    for (int round = 0; round < ROUNDS; ++round) {
      differing += run(shared, number) != expected;
      differing += submit(shared, number) != expected;
      if (own) differing += run_mapped(own, number) != expected;
      if (own) differing += submit(own, number) != expected;
    }
    imgconv_close(own);
  };
  std::vector<std::thread> threads;
  for (int number = 0; number < THREADS; ++number) threads.emplace_back(work, number);
  for (std::thread &each : threads) each.join();
  REQUIRE(imgconv_reset(shared, nullptr) == IMGCONV_OK);
  refuse(path, options, shared);
  size_t needed = 0;
  REQUIRE(imgconv_devices_json(nullptr, 0, &needed, nullptr) == IMGCONV_OK && needed > 100);
  imgconv_close(shared);
  return differing != 0;
}
