#include "programs.h"

#include <algorithm>
#include <atomic>
#include <future>
#include <mutex>
#include <thread>

#include "error.h"
#include "program_cache.h"

namespace imgconv {
namespace {

// NVIDIA's driver (580) prints "9 warnings generated." on the user's terminal, for code that is never reached.
constexpr char NO_WARNINGS[] = "-w";

// Intel's compiler for CPUs (2026.22) crashes or hangs if two threads of a process build at once. Oclgrind (21.10)
// crashes too.
bool builds_one_at_a_time(const DeviceInfo &info) {
  return info.platform == "Intel(R) OpenCL" || info.platform == "Oclgrind";
}

// Models share this lock.
std::unique_lock<std::mutex> compiler_turn(const DeviceInfo &info) {
  static std::mutex compiler;
  return builds_one_at_a_time(info) ? std::unique_lock<std::mutex>(compiler) : std::unique_lock<std::mutex>();
}

std::string build_log(const Context &context, const Program &program) {
  size_t size = 0;
  const cl_device_id id = context.info.device_id;
  context.cl->clGetProgramBuildInfo(program.get(), id, CL_PROGRAM_BUILD_LOG, 0, nullptr, &size);
  std::string log(size, '\0');
  context.cl->clGetProgramBuildInfo(program.get(), id, CL_PROGRAM_BUILD_LOG, size, &log[0], nullptr);
  return log.substr(0, log.find('\0'));
}

std::string binary_of(const Context &context, const Program &program) {
  size_t size = 0;
  if (context.cl->clGetProgramInfo(program.get(), CL_PROGRAM_BINARY_SIZES, sizeof size, &size, nullptr)) return "";
  std::string binary(size, '\0');
  char *content = &binary[0];
  const bool failed = context.cl->clGetProgramInfo(program.get(), CL_PROGRAM_BINARIES, sizeof content, &content, nullptr);
  return failed ? "" : binary;
}

}  // namespace

Programs::Programs(const Context &context, const File &file, const Plan &plan, const std::string &cache_folder)
    : context_(context), cache_folder_(cache_folder),
      local_memory_fits_(plan.local_memory_bytes && plan.local_memory_bytes <= context.info.local_memory_bytes),
      programs_(plan.programs.size()), program_of_(plan.kernels.size()) {
  const bool own_binaries = plan.device == context.info.key();
  const size_t count = plan.programs.size();
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t number; (number = next++) < count;) {
      const ProgramParts &parts = plan.programs[number];
      for (const uint32_t kernel : parts.kernels) program_of_[kernel] = number;
      const bool has_binary = own_binaries && parts.binary >= 0;
      const Span binary = has_binary ? file.checked_blob(static_cast<uint32_t>(parts.binary)) : Span();
      programs_[number] = build(plan.source(parts), binary);
    }
  };
  const size_t cores = builds_one_at_a_time(context.info) ? 1 : std::thread::hardware_concurrency();
  std::vector<std::future<void>> others;
  for (size_t thread = 1; thread < std::min(cores, count); ++thread) {
    others.push_back(std::async(std::launch::async, work));
  }
  work();
  for (std::future<void> &each : others) each.get();
}

Programs::Built Programs::build(const std::string &source, Span binary) const {
  const std::string kept = binary.bytes ? "" : read_program(cache_folder_, context_.info, source);
  const Span found = binary.bytes ? binary : Span{reinterpret_cast<const uint8_t *>(kept.data()), kept.size()};
  const Program made = found.bytes ? from_binary(found) : nullptr;
  return made ? Built{made, ""} : Built{from_source(source), cache_folder_.empty() ? "" : source};
}

// Null if the driver refuses it.
Program Programs::from_binary(Span binary) const {
  const Opencl &cl = *context_.cl;
  const auto turn = compiler_turn(context_.info);
  cl_int status = CL_SUCCESS;
  const cl_device_id id = context_.info.device_id;
  cl_program made = cl.clCreateProgramWithBinary(
      context_.handle.get(), 1, &id, &binary.bytes, &binary.data, nullptr, &status);
  if (status != CL_SUCCESS) return nullptr;
  Program program(made, cl.clReleaseProgram);
  return cl.clBuildProgram(made, 1, &id, NO_WARNINGS, nullptr, nullptr) == CL_SUCCESS ? program : nullptr;
}

Program Programs::from_source(const std::string &source) const {
  const Opencl &cl = *context_.cl;
  const auto turn = compiler_turn(context_.info);
  const char *text = source.c_str();
  const Program program = own(
      "a program", cl.clReleaseProgram, cl.clCreateProgramWithSource, context_.handle.get(), 1u, &text, nullptr);
  const cl_int status = cl.clBuildProgram(program.get(), 1, &context_.info.device_id, NO_WARNINGS, nullptr, nullptr);
  if (status != CL_SUCCESS) {
    throw Error(IMGCONV_ERROR_BUILD, context_.info.name, " does not compile the kernels: ", status_name(status), "\n",
                build_log(context_, program));
  }
  return program;
}

Kernel Programs::new_kernel(uint32_t number) const {
  const Opencl &cl = *context_.cl;
  const std::string name = "k" + std::to_string(number);
  const Program &program = programs_[program_of_[number]].program;
  const Kernel kernel = own("kernel " + name, cl.clReleaseKernel, cl.clCreateKernel, program.get(), name.c_str());
  // Mesa's rusticl (22.3) says twice what a kernel takes, so that it is asked only if the plan leaves it open.
  if (!local_memory_fits_) check_local_memory(kernel, name);
  return kernel;
}

void Programs::check_local_memory(const Kernel &kernel, const std::string &name) const {
  cl_ulong local = 0;
  const cl_int status = context_.cl->clGetKernelWorkGroupInfo(
      kernel.get(), context_.info.device_id, CL_KERNEL_LOCAL_MEM_SIZE, sizeof local, &local, nullptr);
  if (status == CL_SUCCESS && local > context_.info.local_memory_bytes) {
    throw Error(IMGCONV_ERROR_UNFIT, "bytes of local memory: kernel ", name, " takes ", local, ", ", context_.info.name,
                " has ", context_.info.local_memory_bytes);
  }
}

bool Programs::have_new() const {
  return std::any_of(programs_.begin(), programs_.end(), [](const Built &each) { return !each.source.empty(); });
}

void Programs::keep() const {
  for (const Built &each : programs_) {
    if (each.source.empty()) continue;
    write_program(cache_folder_, context_.info, each.source, binary_of(context_, each.program));
  }
}

}  // namespace imgconv
