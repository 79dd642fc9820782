#include "programs.h"

#include <algorithm>
#include <atomic>
#include <future>
#include <map>
#include <mutex>
#include <thread>

#include "build_mark.h"
#include "error.h"
#include "program_cache.h"

namespace imgconv {
namespace {

// NVIDIA's driver (580) prints "9 warnings generated." on the user's terminal, for code that is never reached.
constexpr char NO_WARNINGS[] = "-w", UNOPTIMISED[] = "-w -cl-opt-disable";

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
  const auto get = context.cl->clGetProgramInfo;
  return get(program.get(), CL_PROGRAM_BINARIES, sizeof content, &content, nullptr) ? "" : binary;
}

Kernel make_kernel(const Context &context, const Program &program, uint32_t number) {
  const Opencl &cl = *context.cl;
  const std::string name = join("k", number);
  return own("kernel " + name, cl.clReleaseKernel, cl.clCreateKernel, program.get(), name.c_str());
}

class Builder {
 public:
  Builder(const Context &context, const Plan &plan, const std::string &cache_folder, const Activity &activity,
          int most_ends, const std::vector<BuiltProgram> &known)
      : context_(context), plan_(plan), cache_folder_(cache_folder), activity_(activity), most_ends_(most_ends) {
    for (const BuiltProgram &each : known) known_[each.source] = each;
  }

  // Whether earlier processes ended while they compiled some of the programs. Throws Error if too many did.
  bool check_marks() const {
    std::string left;
    bool found = false;
    for (const ProgramParts &each : plan_.programs) {
      const int ends = cache_folder_.empty() ? 0 : BuildMark::ends(mark_path(plan_.source(each.kernels)));
      found = found || ends > 0;
      if (ends >= most_ends_) left += (left.empty() ? "" : "; ") + origins_of(each.kernels);
    }
    if (!left.empty()) throw crash(left);
    return found;
  }

  // A program with these kernels. If the driver does not build them together, one for each. Throws Error.
  std::vector<BuiltProgram> build(const std::vector<uint32_t> &kernels, Span binary) const {
    const bool were_alone = !known_.empty() && known_.count(plan_.source({kernels.front()}));
    if (were_alone && !known_.count(plan_.source(kernels))) return build_alone(kernels);
    try {
      return {build_together(kernels, binary)};
    } catch (const Error &problem) {
      if (problem.status() != IMGCONV_ERROR_BUILD || kernels.size() == 1) throw;
    }
    return build_alone(kernels);
  }

 private:
  std::vector<BuiltProgram> build_alone(const std::vector<uint32_t> &kernels) const {
    std::vector<BuiltProgram> alone;
    for (const uint32_t kernel : kernels) alone.push_back(build_together({kernel}, {}));
    return alone;
  }

  // binary: that of the file, or empty. If the driver refuses it, the folder's is tried, then the source.
  BuiltProgram build_together(const std::vector<uint32_t> &kernels, Span binary) const {
    const std::string source = plan_.source(kernels);
    const auto known = known_.find(source);
    if (known != known_.end()) return known->second;
    if (const Program made = from_binary(binary, kernels)) return {kernels, made, source, false};
    const std::string kept = read_program(cache_folder_, context_.info, source);
    const Span found{reinterpret_cast<const uint8_t *>(kept.data()), kept.size()};
    if (const Program made = from_binary(found, kernels)) return {kernels, made, source, false};
    return {kernels, from_source(source, kernels), source, true};
  }

  // Null if there is none, if the driver refuses it, or if it builds without a kernel.
  Program from_binary(Span binary, const std::vector<uint32_t> &kernels) const {
    if (!binary.bytes) return nullptr;
    const Opencl &cl = *context_.cl;
    const auto turn = compiler_turn(context_.info);
    cl_int status = CL_SUCCESS;
    const cl_device_id id = context_.info.device_id;
    cl_program made = cl.clCreateProgramWithBinary(
        context_.handle.get(), 1, &id, &binary.bytes, &binary.data, nullptr, &status);
    if (status != CL_SUCCESS) return nullptr;
    const Program program(made, cl.clReleaseProgram);
    if (cl.clBuildProgram(made, 1, &id, options_of(kernels).c_str(), nullptr, nullptr) != CL_SUCCESS) return nullptr;
    try {
      for (const uint32_t kernel : kernels) make_kernel(context_, program, kernel);
    } catch (const Error &) {
      return nullptr;
    }
    return program;
  }

  Program from_source(const std::string &source, const std::vector<uint32_t> &kernels) const {
    const std::string origins = origins_of(kernels);
    const auto doing = activity_.begin("building " + origins);
    const Opencl &cl = *context_.cl;
    const auto turn = compiler_turn(context_.info);
    BuildMark mark(cache_folder_.empty() ? "" : mark_path(source), origins, most_ends_);
    if (mark.too_many_ends()) throw crash(origins);
    const auto cleanup = activity_.at_abandon([&mark] { mark.remove(); });
    const char *text = source.c_str();
    const Program program = own(
        "a program", cl.clReleaseProgram, cl.clCreateProgramWithSource, context_.handle.get(), 1u, &text, nullptr);
    const cl_device_id id = context_.info.device_id;
    const cl_int status = cl.clBuildProgram(program.get(), 1, &id, options_of(kernels).c_str(), nullptr, nullptr);
    if (status != CL_SUCCESS) {
      const std::string log = build_log(context_, program);
      throw Error(IMGCONV_ERROR_BUILD, origins, ": the driver cannot build this kernel source, status ",
                  status_name(status), "; its log", log.empty() ? " is empty" : ":\n", log);
    }
    return program;
  }

  std::string options_of(const std::vector<uint32_t> &kernels) const {
    const std::string flag = plan_.build_options.flag();
    if (plan_.kernels[kernels.front()].unoptimised) return UNOPTIMISED;
    return join(NO_WARNINGS, flag.empty() ? "" : " ", flag);
  }

  std::string mark_path(const std::string &source) const {
    return program_path(cache_folder_, context_.info, source, "building");
  }

  Error crash(const std::string &origins) const {
    return Error(IMGCONV_ERROR_CRASH, "processes ended while the driver of ", context_.info.name,
                 " compiled one of the kernels below. If it crashed, use another driver, or compile the model for ",
                 "another target; if they were ended from outside, remove the files *.building in '", cache_folder_,
                 "' and open the model again: ", origins);
  }

  std::string origins_of(const std::vector<uint32_t> &kernels) const {
    std::string made;
    for (const uint32_t kernel : kernels) made += (made.empty() ? "" : "; ") + plan_.origin(kernel);
    return made;
  }

  const Context &context_;
  const Plan &plan_;
  const std::string &cache_folder_;
  const Activity &activity_;
  const int most_ends_;
  std::map<std::string, BuiltProgram> known_;  // by their sources
};

}  // namespace

Programs::Programs(const Context &context, const File *file, const Plan &plan, bool is_last,
                   const std::string &cache_folder, const Activity &activity, const std::vector<BuiltProgram> &known)
    : context_(context), cache_folder_(cache_folder), program_of_(plan.kernels.size()) {
  // The system may have ended a process: where no other plan can run, the kernels are compiled once more, one program
  // at a time, so that a second end says which kernels the compiler crashes at.
  const Builder builder(context, plan, cache_folder, activity, is_last ? 2 : 1, known);
  const bool one_at_a_time = builder.check_marks() || builds_one_at_a_time(context.info);
  const auto has_binary = [](const ProgramParts &each) { return each.binary >= 0; };
  const bool own_binaries = file && plan.device == context.info.key() &&
                            std::any_of(plan.programs.begin(), plan.programs.end(), has_binary);
  const size_t count = plan.programs.size();
  std::vector<std::vector<BuiltProgram>> built(count);
  std::atomic<size_t> next{0}, done{0};
  size_t kernels = 0;
  for (const ProgramParts &each : plan.programs) kernels += each.kernels.size();
  const auto work = [&] {
    for (size_t number; (number = next++) < count; done += plan.programs[number].kernels.size()) {
      activity.advance(IMGCONV_PHASE_BUILD, done, kernels);
      const ProgramParts &parts = plan.programs[number];
      const bool is_kept = own_binaries && has_binary(parts);
      const Span binary = is_kept ? file->checked_blob(static_cast<uint32_t>(parts.binary)) : Span();
      built[number] = builder.build(parts.kernels, binary);
    }
  };
  const size_t cores = one_at_a_time ? 1 : std::thread::hardware_concurrency();
  const auto work_at_once = [&] {
    std::vector<std::future<void>> others;
    for (size_t thread = 1; thread < std::min(cores, count); ++thread) {
      others.push_back(std::async(std::launch::async, work));
    }
    work();
    for (std::future<void> &each : others) each.get();
  };
  own_binaries ? work_at_once() : activity.run_abandonable(work_at_once);  // only binaries are read from the file
  for (std::vector<BuiltProgram> &programs : built) {
    for (BuiltProgram &each : programs) {
      for (const uint32_t kernel : each.kernels) program_of_[kernel] = each.program;
      programs_.push_back(std::move(each));
    }
  }
  // Mesa's rusticl (22.3) says twice what a kernel takes, so that it is asked only if the plan leaves it open.
  local_memory_fits_ = plan.local_memory_bytes && plan.local_memory_bytes <= context.info.local_memory_bytes;
  for (const Launch &each : plan.launches) check_launch(each);
}

Kernel Programs::new_kernel(uint32_t number) const { return make_kernel(context_, program_of_[number], number); }

// Asks what is known only once a kernel is built.
void Programs::check_launch(const Launch &launch) const {
  const DeviceInfo &info = context_.info;
  const Kernel kernel = new_kernel(launch.kernel);
  const auto get = context_.cl->clGetKernelWorkGroupInfo;
  cl_ulong local = 0;
  cl_int status = get(kernel.get(), info.device_id, CL_KERNEL_LOCAL_MEM_SIZE, sizeof local, &local, nullptr);
  if (!local_memory_fits_ && status == CL_SUCCESS && local > info.local_memory_bytes) {
    throw Error(IMGCONV_ERROR_UNFIT, "bytes of local memory: kernel k", launch.kernel, " takes ", local, " in launch '",
                launch.name, "', ", info.name, " has ", info.local_memory_bytes);
  }
  // NVIDIA's driver (580) says 256 for every kernel, whatever work group it requires and works with.
  if (info.platform == "NVIDIA CUDA") return;
  size_t items = 1, most = 0;
  for (const size_t size : launch.local_size) items *= size;
  status = get(kernel.get(), info.device_id, CL_KERNEL_WORK_GROUP_SIZE, sizeof most, &most, nullptr);
  if (status == CL_SUCCESS && most && items > most) {
    throw Error(IMGCONV_ERROR_UNFIT, "work items of a work group: kernel k", launch.kernel, " takes ", items,
                " in launch '", launch.name, "', ", info.name, " allows it ", most, " (CL_KERNEL_WORK_GROUP_SIZE)");
  }
}

bool Programs::have_new() const {
  const auto is_new = [](const BuiltProgram &each) { return each.is_new; };
  return !cache_folder_.empty() && std::any_of(programs_.begin(), programs_.end(), is_new);
}

void Programs::keep() const {
  for (const BuiltProgram &each : programs_) {
    if (!each.is_new) continue;
    write_program(cache_folder_, context_.info, each.source, binary_of(context_, each.program));
  }
}

void Programs::forget_sources() {
  for (BuiltProgram &each : programs_) std::string().swap(each.source);
}

}  // namespace imgconv
