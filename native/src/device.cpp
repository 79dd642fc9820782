#include "device.h"

#include <algorithm>
#include <cctype>
#include <sstream>
#include <type_traits>

#include "error.h"
#include "instruction_set.h"

namespace imgconv {
namespace {

// cl_ext.h: alignments of cl_khr_image2d_from_buffer.
constexpr cl_device_info IMAGE_PITCH_ALIGNMENT = 0x104A, IMAGE_BASE_ADDRESS_ALIGNMENT = 0x104B;
// Qualcomm's cl_ext_qcom.h: CL_CONTEXT_PERF_HINT_QCOM, CL_CONTEXT_PRIORITY_HINT_QCOM. "High", "normal" and "low" follow
// each.
constexpr cl_context_properties PERFORMANCE_HINT = 0x40C2, PRIORITY_HINT = 0x40C9;
// cl_ext.h: CL_QUEUE_PRIORITY_KHR.
constexpr cl_ulong QUEUE_PRIORITY = 0x1096;

template <class Get, class Object>
std::string text(Get get, Object object, cl_uint parameter) {
  size_t size = 0;
  if (get(object, parameter, 0, nullptr, &size) != CL_SUCCESS || size == 0) return "";
  std::string value(size, '\0');
  return get(object, parameter, size, &value[0], nullptr) == CL_SUCCESS ? words(value) : "";
}

std::string kind_of(cl_device_type type) {
  if (type & CL_DEVICE_TYPE_GPU) return "gpu";
  return type & CL_DEVICE_TYPE_CPU ? "cpu" : "accelerator";
}

// Throws Error if a call failed; open_device says what to do then.
void check_opening(cl_int status, const std::string &what) {
  if (status != CL_SUCCESS) throw Error(kind_of_failure(status), what, ": ", status_name(status));
}

// Whether RGBA of a type can be read and written, as image2d_t and as image2d_array_t. Throws Error.
bool offers(const Opencl &cl, cl_context context, cl_channel_type type) {
  constexpr cl_mem_object_type IMAGES[] = {CL_MEM_OBJECT_IMAGE2D, CL_MEM_OBJECT_IMAGE2D_ARRAY};
  for (const cl_mem_object_type image : IMAGES) {
    cl_uint count = 0;
    const auto get = cl.clGetSupportedImageFormats;
    check_opening(get(context, CL_MEM_READ_WRITE, image, 0, nullptr, &count), "listing the formats of images");
    std::vector<cl_image_format> formats(count);
    const cl_int status = get(context, CL_MEM_READ_WRITE, image, count, formats.data(), nullptr);
    check_opening(status, "listing the formats of images");
    const bool found = std::any_of(formats.begin(), formats.end(), [&](const cl_image_format &each) {
      return each.image_channel_order == CL_RGBA && each.image_channel_data_type == type;
    });
    if (!found) return false;
  }
  return true;
}

void describe_images(const Opencl &cl, DeviceInfo &info) {
  const cl_device_id id = info.device_id;
  if (!device_number<cl_bool>(cl, id, CL_DEVICE_IMAGE_SUPPORT)) return;
  info.max_image_width = device_number<size_t>(cl, id, CL_DEVICE_IMAGE2D_MAX_WIDTH);
  info.max_image_height = device_number<size_t>(cl, id, CL_DEVICE_IMAGE2D_MAX_HEIGHT);
  info.max_image_layers = device_number<size_t>(cl, id, CL_DEVICE_IMAGE_MAX_ARRAY_SIZE);
  info.max_read_images = device_number<cl_uint>(cl, id, CL_DEVICE_MAX_READ_IMAGE_ARGS);
  info.max_write_images = device_number<cl_uint>(cl, id, CL_DEVICE_MAX_WRITE_IMAGE_ARGS);
  // Mesa's images in a part of a buffer (25.0) start where the whole buffer starts.
  if (info.has("cl_khr_image2d_from_buffer") && info.platform != "rusticl") {
    const uint64_t base = device_number<cl_uint>(cl, id, IMAGE_BASE_ADDRESS_ALIGNMENT);
    const uint64_t bits = device_number<cl_uint>(cl, id, CL_DEVICE_MEM_BASE_ADDR_ALIGN);
    info.image_row_alignment = device_number<cl_uint>(cl, id, IMAGE_PITCH_ALIGNMENT);
    // A part of a buffer starts at a multiple of `bits`; the smallest texel has 4 bytes.
    info.image_base_alignment = std::max(base, bits / 8 / 4);
  }
  try {
    const ContextHandle context = new_context(cl, info, IMGCONV_PRIORITY_DEFAULT);
    info.float_images = offers(cl, context.get(), CL_FLOAT);
    info.half_images = offers(cl, context.get(), CL_HALF_FLOAT);
    info.byte_images = offers(cl, context.get(), CL_SNORM_INT8);
  } catch (const Error &error) {
    // It is listed all the same; open_device refuses it.
    info.refused_with = error.status();
    info.problem = error.what();
  }
}

DeviceInfo describe(const Opencl &cl, cl_platform_id platform, cl_device_id id) {
  DeviceInfo info;
  info.platform_id = platform;
  info.device_id = id;
  info.platform = text(cl.clGetPlatformInfo, platform, CL_PLATFORM_NAME);
  info.name = text(cl.clGetDeviceInfo, id, CL_DEVICE_NAME);
  info.vendor = text(cl.clGetDeviceInfo, id, CL_DEVICE_VENDOR);
  info.kind = kind_of(device_number<cl_device_type>(cl, id, CL_DEVICE_TYPE));
  info.driver_version = text(cl.clGetDeviceInfo, id, CL_DRIVER_VERSION);
  info.opencl_version = text(cl.clGetDeviceInfo, id, CL_DEVICE_VERSION);
  info.opencl_c_version = text(cl.clGetDeviceInfo, id, CL_DEVICE_OPENCL_C_VERSION);
  info.compute_units = device_number<cl_uint>(cl, id, CL_DEVICE_MAX_COMPUTE_UNITS);
  // Mesa's driver for Adreno (CL_DEVICE_VENDOR_ID 0x5143) does not know the number and says 9999.
  const bool is_qualcomm = device_number<cl_uint>(cl, id, CL_DEVICE_VENDOR_ID) == 0x5143;
  if (is_qualcomm && info.compute_units == 9999) info.compute_units = 2;
  const uint64_t alignment = device_number<cl_uint>(cl, id, CL_DEVICE_MEM_BASE_ADDR_ALIGN) / 8;
  info.buffer_alignment = std::max<uint64_t>(alignment, 1);
  info.max_work_group_size = device_number<size_t>(cl, id, CL_DEVICE_MAX_WORK_GROUP_SIZE);
  info.max_work_item_sizes.resize(device_number<cl_uint>(cl, id, CL_DEVICE_MAX_WORK_ITEM_DIMENSIONS));
  cl.clGetDeviceInfo(id, CL_DEVICE_MAX_WORK_ITEM_SIZES, info.max_work_item_sizes.size() * sizeof(size_t),
                     info.max_work_item_sizes.data(), nullptr);
  info.local_memory_bytes = device_number<cl_ulong>(cl, id, CL_DEVICE_LOCAL_MEM_SIZE);
  info.global_memory_bytes = device_number<cl_ulong>(cl, id, CL_DEVICE_GLOBAL_MEM_SIZE);
  info.max_allocation_bytes = device_number<cl_ulong>(cl, id, CL_DEVICE_MAX_MEM_ALLOC_SIZE);
  info.shares_memory = device_number<cl_bool>(cl, id, CL_DEVICE_HOST_UNIFIED_MEMORY);
  info.vector_floats = std::max<uint64_t>(4, device_number<cl_uint>(cl, id, CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT));
  if (info.kind == "cpu") info.instruction_set = instruction_set(info.vector_floats);
  std::istringstream names(text(cl.clGetDeviceInfo, id, CL_DEVICE_EXTENSIONS));
  for (std::string name; names >> name;) info.extensions.push_back(name);
  std::sort(info.extensions.begin(), info.extensions.end());
  describe_images(cl, info);
  return info;
}

std::string lower(std::string text) {
  for (char &letter : text) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  return text;
}

std::string json(const std::string &text) { return quoted(text); }

// A number, or a bool.
template <class Value>
std::string json(Value value) {
  if constexpr (std::is_same_v<Value, bool>) return value ? "true" : "false";
  else return std::to_string(value);
}

template <class Item>
std::string json(const std::vector<Item> &items) {
  std::string made = "[";
  for (const Item &each : items) made += (made.size() > 1 ? ", " : "") + json(each);
  return made + "]";
}

std::string fields(const DeviceInfo &info, bool is_default) {
  std::string made;
#define IMGCONV_FIELD(name) made += "\"" #name "\": " + json(info.name) + ", ";
  IMGCONV_FIELD(index) IMGCONV_FIELD(platform) IMGCONV_FIELD(name) IMGCONV_FIELD(vendor) IMGCONV_FIELD(kind)
  IMGCONV_FIELD(driver_version) IMGCONV_FIELD(opencl_version) IMGCONV_FIELD(opencl_c_version)
  IMGCONV_FIELD(max_image_width) IMGCONV_FIELD(max_image_height) IMGCONV_FIELD(max_image_layers)
  IMGCONV_FIELD(max_read_images) IMGCONV_FIELD(max_write_images) IMGCONV_FIELD(compute_units)
  IMGCONV_FIELD(max_work_group_size) IMGCONV_FIELD(max_work_item_sizes) IMGCONV_FIELD(local_memory_bytes)
  IMGCONV_FIELD(global_memory_bytes) IMGCONV_FIELD(max_allocation_bytes) IMGCONV_FIELD(extensions)
  IMGCONV_FIELD(image_row_alignment) IMGCONV_FIELD(image_base_alignment) IMGCONV_FIELD(buffer_alignment)
  IMGCONV_FIELD(shares_memory) IMGCONV_FIELD(vector_floats) IMGCONV_FIELD(instruction_set)
  IMGCONV_FIELD(problem)
  if (info.problem.empty()) {
    IMGCONV_FIELD(float_images) IMGCONV_FIELD(half_images) IMGCONV_FIELD(byte_images)
  }
#undef IMGCONV_FIELD
  return made + "\"fp16_arithmetic\": " + json(info.has("cl_khr_fp16")) +
         ", \"command_buffer\": " + json(info.has("cl_khr_command_buffer")) + ", \"default\": " + json(is_default);
}

}  // namespace

std::string quoted(const std::string &text) {
  std::string made = "\"";
  for (const char letter : text) {
    if (letter == '"' || letter == '\\') made += '\\';
    made += static_cast<unsigned char>(letter) < 0x20 ? ' ' : letter;
  }
  return made + '"';
}

std::string DeviceInfo::full_name() const {
  return platform + " | " + name + " | " + opencl_c_version + " | " + driver_version;
}

std::string DeviceInfo::key() const { return full_name() + (instruction_set.empty() ? "" : " | " + instruction_set); }

bool DeviceInfo::has(const std::string &extension) const {
  return std::binary_search(extensions.begin(), extensions.end(), extension);
}

std::vector<DeviceInfo> list_devices(const Opencl &cl) {
  cl_uint count = 0;
  if (cl.clGetPlatformIDs(0, nullptr, &count) != CL_SUCCESS) return {};
  std::vector<cl_platform_id> platforms(count);
  if (count == 0 || cl.clGetPlatformIDs(count, platforms.data(), nullptr) != CL_SUCCESS) return {};
  // The loader's own order depends on the order of files in a folder; a device's index must not.
  const auto order = [&](cl_platform_id id) {
    return std::make_pair(text(cl.clGetPlatformInfo, id, CL_PLATFORM_NAME),
                          text(cl.clGetPlatformInfo, id, CL_PLATFORM_VERSION));
  };
  std::stable_sort(platforms.begin(), platforms.end(), [&](auto a, auto b) { return order(a) < order(b); });
  std::vector<DeviceInfo> devices;
  for (cl_platform_id platform : platforms) {
    cl_uint found = 0;
    if (cl.clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 0, nullptr, &found) != CL_SUCCESS || found == 0) continue;
    std::vector<cl_device_id> ids(found);
    if (cl.clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, found, ids.data(), nullptr) != CL_SUCCESS) continue;
    for (cl_device_id id : ids) {
      devices.push_back(describe(cl, platform, id));
      devices.back().index = devices.size() - 1;
    }
  }
  return devices;
}

const DeviceInfo &select_device(const std::vector<DeviceInfo> &devices, const char *choice) {
  if (devices.empty()) {
    throw Error(IMGCONV_ERROR_DEVICE, "no OpenCL device is found: install the driver of the GPU's vendor");
  }
  if (choice == nullptr) {
    const auto rank = [](const DeviceInfo &info) {
      return std::make_pair(!info.float_images, info.kind == "gpu" ? 0 : info.kind == "cpu" ? 2 : 1);
    };
    return *std::min_element(devices.begin(), devices.end(),
                             [&](const auto &a, const auto &b) { return rank(a) < rank(b); });
  }
  const std::string wanted = choice;
  const bool is_index = !wanted.empty() && std::all_of(wanted.begin(), wanted.end(), [](unsigned char letter) {
    return std::isdigit(letter);
  });
  const DeviceInfo *found = nullptr;
  size_t fitting = 0;
  for (const DeviceInfo &each : devices) {
    const bool fits = is_index ? std::to_string(each.index) == wanted
                               : lower(each.full_name()).find(lower(wanted)) != std::string::npos;
    if (fits && ++fitting == 1) found = &each;
  }
  if (fitting == 1) return *found;
  std::string message = fitting ? "more than one OpenCL device fits '" : "no OpenCL device fits '";
  message += wanted + "'; choose by index or by a part of one name:";
  for (const DeviceInfo &each : devices) message += join("\n  [", each.index, "] ", each.full_name());
  throw Error(IMGCONV_ERROR_DEVICE, message);
}

std::string to_json(const std::vector<DeviceInfo> &devices, const DeviceInfo *chosen) {
  std::string made;
  for (const DeviceInfo &each : devices) made += (made.empty() ? "{" : ", {") + fields(each, &each == chosen) + "}";
  return "{\"devices\": [" + made + "]}\n";
}

ContextHandle new_context(const Opencl &cl, const DeviceInfo &info, imgconv_priority priority) {
  const auto platform = reinterpret_cast<cl_context_properties>(info.platform_id);
  const std::vector<cl_context_properties> plain = {CL_CONTEXT_PLATFORM, platform};
  std::vector<cl_context_properties> hinted = plain;
  if (info.has("cl_qcom_perf_hint")) {
    const int number = std::max<int>(priority, IMGCONV_PRIORITY_HIGH);
    hinted.insert(hinted.end(), {PERFORMANCE_HINT, PERFORMANCE_HINT + number});
  }
  if (priority && info.has("cl_qcom_priority_hint")) {
    hinted.insert(hinted.end(), {PRIORITY_HINT, PRIORITY_HINT + priority});
  }
  const auto make = [&](std::vector<cl_context_properties> properties) {
    properties.push_back(0);
    cl_int status = CL_SUCCESS;
    const cl_context made = cl.clCreateContext(properties.data(), 1, &info.device_id, nullptr, nullptr, &status);
    check_opening(status, "opening " + info.name);
    return ContextHandle(made, cl.clReleaseContext);
  };
  try {
    if (hinted != plain) return make(hinted);
  } catch (const Error &) {
    // A driver may list the hint and refuse it.
  }
  return make(plain);
}

namespace {

// A queue of a priority; null without one, and if the driver does not take it.
Queue new_queue_of_priority(const Context &context, cl_command_queue_properties bits, imgconv_priority priority) {
  using Create = cl_command_queue(CL_API_CALL *)(cl_context, cl_device_id, const cl_ulong *, cl_int *);
  const auto create = context.cl->later<Create>("clCreateCommandQueueWithProperties");
  if (!priority || !create || !context.info.has("cl_khr_priority_hints")) return nullptr;
  const cl_ulong properties[] = {CL_QUEUE_PROPERTIES, bits, QUEUE_PRIORITY, cl_ulong(1) << (priority - 1), 0};
  cl_int status = CL_SUCCESS;
  const cl_command_queue made = create(context.handle.get(), context.info.device_id, properties, &status);
  return status == CL_SUCCESS ? Queue(made, context.cl->clReleaseCommandQueue) : nullptr;
}

}  // namespace

Context open_device(
    std::shared_ptr<const Opencl> cl, const DeviceInfo &info, bool profile, imgconv_priority priority) {
  if (!info.problem.empty()) {
    throw Error(info.refused_with, info.name, " cannot be opened: ", info.problem,
                ". Another process may use all of it, or the driver has to be updated; imgconv-run --devices shows ",
                "what other devices there are");
  }
  if (!info.float_images) {
    throw Error(IMGCONV_ERROR_DEVICE, info.name, " cannot read and write RGBA float images, where tensors are kept");
  }
  Context context{cl, info, profile, new_context(*cl, info, priority), nullptr};
  const cl_command_queue_properties properties = profile ? CL_QUEUE_PROFILING_ENABLE : 0;
  context.queue = new_queue_of_priority(context, properties, priority);
  if (context.queue) return context;
  context.queue = own("opening a queue of " + info.name, cl->clReleaseCommandQueue, cl->clCreateCommandQueue,
                      context.handle.get(), info.device_id, properties);
  return context;
}

cl_int Context::outcome(const Event &event) const {
  cl_int status = CL_COMPLETE;
  const cl_int failed =
      cl->clGetEventInfo(event.get(), CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, nullptr);
  return failed ? failed : std::min(status, CL_COMPLETE);
}

}  // namespace imgconv
