// Times a run of the library beside the least that a run can be: the same kernels in a bare loop of
// clEnqueueNDRangeKernel, between the same uploads and downloads. benchmarks/native.py runs it.
//
//     imgconv-bare MODEL DEVICE RUNS     prints "bare <s> run <s> replay <extension>", medians of runs that take turns
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "device.h"
#include "error.h"
#include "file.h"
#include "frame.h"
#include "model.h"

namespace {

using imgconv::check;
using Clock = std::chrono::steady_clock;

struct Arrays {
  std::vector<std::vector<char>> contents;
  std::vector<imgconv_array> arrays;

  template <class Values>
  explicit Arrays(const Values &values) {
    for (const auto &each : values) contents.emplace_back(each.value.bytes());
    for (auto &each : contents) arrays.push_back({each.data(), each.size(), nullptr, nullptr});
  }
};

// Only what OpenCL needs, with a frame's buffers and kernels.
void run_bare(const imgconv::Context &context, const imgconv::Plan &plan, imgconv::Frame &frame, Arrays &inputs,
              Arrays &outputs) {
  frame.upload(inputs.arrays.data(), false);
  for (const imgconv::BoundLaunch &each : frame.launches()) {
    check(context.cl->clEnqueueNDRangeKernel(context.queue.get(), each.kernel.get(), each.dimensions(), nullptr,
                                             each.global_size(), each.local_size(), 0, nullptr, nullptr), plan.device);
  }
  frame.download(outputs.arrays.data());
  check(context.cl->clFinish(context.queue.get()), "a run");
}

double median(std::vector<double> &found) {
  std::sort(found.begin(), found.end());
  return found[found.size() / 2];
}

}  // namespace

int main(int count, char **given) try {
  if (count != 4) return 2;
  const imgconv::File file = imgconv::File::map(given[1]);
  imgconv_options options{};
  options.device = given[2];
  const imgconv::Activity activity;
  imgconv::Model model(file, imgconv::Settings(options), activity);
  const imgconv::Context &context = model.context();
  imgconv::Plan plan = imgconv::PlanChoice(file, context.info, "").next();
  const imgconv::Programs programs(context, file, plan, "", activity);
  const imgconv::DeviceMemory memory(context, file, plan);
  const imgconv::Shared shared{context, plan, memory, programs};
  imgconv::Frame frame(shared);
  Arrays inputs(plan.inputs), outputs(plan.outputs);
  std::vector<double> bare, run;
  for (int number = 0; number < std::atoi(given[3]); ++number) {
    const auto start = Clock::now();
    run_bare(context, plan, frame, inputs, outputs);
    const auto middle = Clock::now();
    model.run(inputs.arrays.data(), outputs.arrays.data());
    bare.push_back(std::chrono::duration<double>(middle - start).count());
    run.push_back(std::chrono::duration<double>(Clock::now() - middle).count());
  }
  std::printf("bare %.6f run %.6f replay %s\n", median(bare), median(run), model.replay());
  return 0;
} catch (const imgconv::Error &error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
