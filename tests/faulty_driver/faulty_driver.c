/* An OpenCL driver that misbehaves: a library over a real driver, which OpenCL's loader finds by an .icd file.
 *
 *     program -> OpenCL's loader -> the objects' dispatch table, changed here -> the real driver
 *
 * Every OpenCL object begins with a pointer to a table of its driver's functions, by which the loader calls them. This
 * library loads the driver FAULTY_DRIVER_LIBRARY, hands its platforms to the loader, and changes functions in the table
 * of their driver. So whoever uses OpenCL in the process meets the faults: Python, build workers, the native player.
 *
 * FAULTY_DRIVER lists the faults; __init__.py says what each of them does.
 */
#include "faults.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

struct _cl_icd_dispatch real;
static void *library;

enum { CONTEXT_PERF_HINT = 0x40C2, CONTEXT_PRIORITY_HINT = 0x40C9, MOST_WORK_ITEMS_OF_ADRENO = 1024 };
#define QUEUE_RECORDABLE (1ul << 30)

/* Functions that only fail or stall: NAME(parameters) returns a status, or an object. */
#define STATUS(name, parameters, arguments)                 \
  static cl_int CL_API_CALL faulty_##name parameters {      \
    const cl_int status = before(#name);                    \
    return status ? status : real.name arguments;           \
  }
#define OBJECT(type, name, parameters, arguments)           \
  static type CL_API_CALL faulty_##name parameters {        \
    const cl_int refused = before(#name);                   \
    if (!refused) return real.name arguments;               \
    if (status) *status = refused;                          \
    return NULL;                                            \
  }
#define WAITS cl_uint waits, const cl_event *events, cl_event *event
#define SIZES(x) const size_t x[3]

STATUS(clGetSupportedImageFormats, (cl_context a, cl_mem_flags b, cl_mem_object_type c, cl_uint d, cl_image_format *e,
                                    cl_uint *f), (a, b, c, d, e, f))
STATUS(clGetProgramBuildInfo, (cl_program a, cl_device_id b, cl_program_build_info c, size_t d, void *e, size_t *f),
       (a, b, c, d, e, f))
STATUS(clSetKernelArgSVMPointer, (cl_kernel a, cl_uint b, const void *c), (a, b, c))
STATUS(clEnqueueUnmapMemObject, (cl_command_queue a, cl_mem b, void *c, WAITS), (a, b, c, waits, events, event))
STATUS(clEnqueueMarkerWithWaitList, (cl_command_queue a, WAITS), (a, waits, events, event))
STATUS(clEnqueueBarrierWithWaitList, (cl_command_queue a, WAITS), (a, waits, events, event))
STATUS(clGetEventProfilingInfo, (cl_event a, cl_profiling_info b, size_t c, void *d, size_t *e), (a, b, c, d, e))
STATUS(clFlush, (cl_command_queue a), (a))
STATUS(clReleaseKernel, (cl_kernel a), (a))
STATUS(clReleaseProgram, (cl_program a), (a))
STATUS(clReleaseContext, (cl_context a), (a))

static cl_int CL_API_CALL faulty_clReleaseMemObject(cl_mem memory) {
  const cl_int refused = before("clReleaseMemObject");
  return refused ? refused : (forget_external(memory), real.clReleaseMemObject(memory));
}

/* Waiting. A launch that hangs blocks the caller; after one that failed, events and what waits for them say so. What
 * fails has waited before: no command runs any more. */

static struct handles ran;  /* the events of launches before one that hangs or has failed */

static cl_int CL_API_CALL faulty_clReleaseEvent(cl_event event) {
  const cl_int refused = before("clReleaseEvent");
  forget(&ran, event);
  return refused ? refused : real.clReleaseEvent(event);
}

static cl_int ended(void) {
  if (state == CL_RUNNING) block(-1);
  return state ? CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST : CL_SUCCESS;
}

static cl_int CL_API_CALL faulty_clFinish(cl_command_queue queue) {
  const cl_int refused = before("clFinish"), status = real.clFinish(queue);
  ended();
  return refused ? refused : status;  /* OpenCL gives clFinish no status for commands that have failed */
}

static cl_int CL_API_CALL faulty_clWaitForEvents(cl_uint count, const cl_event *events) {
  const cl_int refused = before("clWaitForEvents"), status = real.clWaitForEvents(count, events), failed = ended();
  return refused ? refused : status ? status : failed;
}

static cl_int CL_API_CALL faulty_clGetEventInfo(
    cl_event event, cl_event_info parameter, size_t size, void *value, size_t *needed) {
  const cl_int refused = before("clGetEventInfo");
  const cl_int status = refused ? refused : real.clGetEventInfo(event, parameter, size, value, needed);
  const cl_bool asked = value && parameter == CL_EVENT_COMMAND_EXECUTION_STATUS;
  if (!status && asked && state && !knows(&ran, event)) *(cl_int *)value = state;
  return status;
}

#define READ(name, parameters, arguments)                        \
  static cl_int CL_API_CALL faulty_##name parameters {           \
    const cl_int refused = before(#name);                        \
    const cl_int status = refused ? refused : real.name arguments; \
    return status || !blocking ? status : ended();               \
  }
READ(clEnqueueReadBuffer, (cl_command_queue a, cl_mem b, cl_bool blocking, size_t d, size_t e, void *f, WAITS),
     (a, b, blocking, d, e, f, waits, events, event))
READ(clEnqueueReadImage, (cl_command_queue a, cl_mem b, cl_bool blocking, SIZES(d), SIZES(e), size_t f, size_t g, void *h,
                          WAITS), (a, b, blocking, d, e, f, g, h, waits, events, event))

/* What the driver says about itself. */

static cl_int answer(const void *found, size_t found_size, size_t size, void *value, size_t *needed) {
  if (value && size < found_size) return CL_INVALID_VALUE;
  if (value) memcpy(value, found, found_size);
  if (needed) *needed = found_size;
  return CL_SUCCESS;
}

static cl_int CL_API_CALL faulty_clGetPlatformInfo(
    cl_platform_id platform, cl_platform_info parameter, size_t size, void *value, size_t *needed) {
  const void *found;
  size_t found_size;
  if (adreno_info(NULL, parameter, &found, &found_size)) return answer(found, found_size, size, value, needed);
  return real.clGetPlatformInfo(platform, parameter, size, value, needed);
}

static cl_int CL_API_CALL faulty_clGetDeviceInfo(
    cl_device_id device, cl_device_info parameter, size_t size, void *value, size_t *needed) {
  const void *found;
  size_t found_size;
  if (adreno_info(device, parameter, &found, &found_size)) return answer(found, found_size, size, value, needed);
  return real.clGetDeviceInfo(device, parameter, size, value, needed);
}

static cl_int CL_API_CALL faulty_clGetDeviceIDs(
    cl_platform_id platform, cl_device_type type, cl_uint count, cl_device_id *devices, cl_uint *found) {
  if (!fault("adreno")) return real.clGetDeviceIDs(platform, type, count, devices, found);
  if (!(type & (CL_DEVICE_TYPE_GPU | CL_DEVICE_TYPE_DEFAULT))) return CL_DEVICE_NOT_FOUND;
  return real.clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, count, devices, found);
}

/* Contexts and queues. */

static cl_context CL_API_CALL faulty_clCreateContext(
    const cl_context_properties *properties, cl_uint count, const cl_device_id *devices,
    void(CL_CALLBACK *notify)(const char *, const void *, size_t, void *), void *data, cl_int *status) {
  cl_context_properties known[32] = {0};
  int used = 0;
  cl_int refused = before("clCreateContext");
  for (const cl_context_properties *each = properties; each && each[0] && used < 30; each += 2) {
    const cl_bool is_priority = each[0] == CONTEXT_PRIORITY_HINT && fault("priority");
    if (is_priority || (each[0] == CONTEXT_PERF_HINT && fault("perf_hint"))) {
      note("context hint %lx: %lx", (long)each[0], (long)each[1]);
      if (fault("refuse_hint")) note("refuse_hint"), refused = CL_INVALID_PROPERTY;
    } else {
      known[used++] = each[0], known[used++] = each[1];
    }
  }
  if (!refused) return real.clCreateContext(properties ? known : NULL, count, devices, notify, data, status);
  if (status) *status = refused;
  return NULL;
}

/* A real queue for an ordinary one, or one that records. As with Qualcomm's driver, it has no other property then. */
static cl_command_queue new_queue(
    const char *function, cl_context context, cl_device_id device, cl_command_queue_properties bits,
    const cl_queue_properties *properties, cl_int *status) {
  const cl_bool records = fault("recordable") && bits & QUEUE_RECORDABLE;
  cl_int refused = before(function);
  if (!refused && records && bits != QUEUE_RECORDABLE) refused = CL_INVALID_QUEUE_PROPERTIES;
  if (refused) {
    if (status) *status = refused;
    return NULL;
  }
  const cl_queue_properties known[] = {CL_QUEUE_PROPERTIES, bits, 0};
  const cl_command_queue made = properties && !records
      ? real.clCreateCommandQueueWithProperties(context, device, fault("priority") ? known : properties, status)
      : real.clCreateCommandQueue(context, device, records ? 0 : bits, status);
  note_queue(made, records);
  return made;
}

static cl_command_queue CL_API_CALL faulty_clCreateCommandQueue(
    cl_context context, cl_device_id device, cl_command_queue_properties bits, cl_int *status) {
  return new_queue("clCreateCommandQueue", context, device, bits, NULL, status);
}

static cl_command_queue CL_API_CALL faulty_clCreateCommandQueueWithProperties(
    cl_context context, cl_device_id device, const cl_queue_properties *properties, cl_int *status) {
  cl_command_queue_properties bits = 0;
  for (const cl_queue_properties *each = properties; each && each[0]; each += 2) {
    if (each[0] == CL_QUEUE_PROPERTIES) bits = each[1];
    if (each[0] == CL_QUEUE_PRIORITY_KHR && fault("priority")) note("queue priority: %lx", (long)each[1]);
  }
  return new_queue("clCreateCommandQueueWithProperties", context, device, bits, properties, status);
}

/* Memory. late=N: the Nth allocation succeeds, and everything that uses it fails. */

static struct handles without_memory, kernels_without_memory;

static cl_bool fails_late(cl_mem memory) {
  const cl_bool fails = (cl_bool)knows(&without_memory, memory);
  if (fails) note("late %s", fault("late"));
  return fails;
}

static cl_mem made(cl_mem memory, cl_mem inside) {
  static long allocations;
  if (!memory || !fault("late")) return memory;
  const cl_bool shares = inside && knows(&without_memory, inside);
  if (shares || (!inside && __atomic_add_fetch(&allocations, 1, __ATOMIC_SEQ_CST) == fault_number("late"))) {
    real.clRetainMemObject(memory);  /* so that no other memory gets the same handle */
    remember(&without_memory, memory);
  }
  return memory;
}

#define MEMORY(name, inside, parameters, arguments)                    \
  static cl_mem CL_API_CALL faulty_##name parameters {                 \
    const cl_int refused = before(#name);                              \
    if (!refused) return made(real.name arguments, inside);            \
    if (status) *status = refused;                                     \
    return NULL;                                                       \
  }
MEMORY(clCreateSubBuffer, a, (cl_mem a, cl_mem_flags b, cl_buffer_create_type c, const void *d, cl_int *status),
       (a, b, c, d, status))

static cl_mem CL_API_CALL faulty_clCreateBufferWithProperties(
    cl_context context, const cl_mem_properties *properties, cl_mem_flags flags, size_t size, void *content,
    cl_int *status) {
  const cl_int refused = before("clCreateBufferWithProperties");
  if (!refused) return create_external(context, properties, flags, size, content, status);
  if (status) *status = refused;
  return NULL;
}

static cl_mem CL_API_CALL faulty_clCreateBuffer(
    cl_context context, cl_mem_flags flags, size_t size, void *content, cl_int *status) {
  const cl_int refused = before("clCreateBuffer");
  if (!refused && flags & CL_MEM_EXT_HOST_PTR_QCOM) {
    return create_over_host_pointer(context, flags, size, content, status);
  }
  if (!refused) return made(real.clCreateBuffer(context, flags, size, content, status), NULL);
  if (status) *status = refused;
  return NULL;
}

/* An image in a buffer, of cl_khr_image2d_from_buffer, also counts as a call of "image_in_buffer". */
static cl_mem CL_API_CALL faulty_clCreateImage(
    cl_context context, cl_mem_flags flags, const cl_image_format *format, const cl_image_desc *desc, void *content,
    cl_int *status) {
  cl_int refused = before("clCreateImage");
  if (!refused && desc->mem_object) refused = before("image_in_buffer");
  if (!refused) return made(real.clCreateImage(context, flags, format, desc, content, status), desc->mem_object);
  if (status) *status = refused;
  return NULL;
}

#define USING(name, memory, parameters, arguments)                     \
  static cl_int CL_API_CALL faulty_##name parameters {                 \
    const cl_int status = before(#name);                               \
    if (status) return status;                                         \
    return fails_late(memory) ? CL_MEM_OBJECT_ALLOCATION_FAILURE : real.name arguments; \
  }
USING(clEnqueueWriteBuffer, b, (cl_command_queue a, cl_mem b, cl_bool c, size_t d, size_t e, const void *f, WAITS),
      (a, b, c, d, e, f, waits, events, event))
USING(clEnqueueFillBuffer, b, (cl_command_queue a, cl_mem b, const void *c, size_t d, size_t e, size_t f, WAITS),
      (a, b, c, d, e, f, waits, events, event))
USING(clEnqueueWriteImage, b, (cl_command_queue a, cl_mem b, cl_bool c, SIZES(d), SIZES(e), size_t f, size_t g,
                               const void *h, WAITS), (a, b, c, d, e, f, g, h, waits, events, event))
USING(clEnqueueFillImage, b, (cl_command_queue a, cl_mem b, const void *c, SIZES(d), SIZES(e), WAITS),
      (a, b, c, d, e, waits, events, event))
USING(clEnqueueCopyBufferToImage, c, (cl_command_queue a, cl_mem b, cl_mem c, size_t d, SIZES(e), SIZES(f), WAITS),
      (a, b, c, d, e, f, waits, events, event))
USING(clEnqueueCopyImageToBuffer, c, (cl_command_queue a, cl_mem b, cl_mem c, SIZES(d), SIZES(e), size_t f, WAITS),
      (a, b, c, d, e, f, waits, events, event))
USING(clEnqueueCopyImage, c, (cl_command_queue a, cl_mem b, cl_mem c, SIZES(d), SIZES(e), SIZES(f), WAITS),
      (a, b, c, d, e, f, waits, events, event))

static cl_int CL_API_CALL faulty_clEnqueueCopyBuffer(
    cl_command_queue queue, cl_mem source, cl_mem destination, size_t from, size_t to, size_t size, WAITS) {
  const cl_int status = before("clEnqueueCopyBuffer");
  if (status) return status;
  if (is_with_others(source) || is_with_others(destination)) return CL_INVALID_OPERATION;
  if (fails_late(destination)) return CL_MEM_OBJECT_ALLOCATION_FAILURE;
  return real.clEnqueueCopyBuffer(queue, source, destination, from, to, size, waits, events, event);
}

static void *CL_API_CALL faulty_clEnqueueMapBuffer(
    cl_command_queue queue, cl_mem buffer, cl_bool blocking, cl_map_flags flags, size_t offset, size_t size, WAITS,
    cl_int *status) {
  cl_int refused = before("clEnqueueMapBuffer");
  if (!refused && fails_late(buffer)) refused = CL_MAP_FAILURE;
  if (!refused) {
    return real.clEnqueueMapBuffer(queue, buffer, blocking, flags, offset, size, waits, events, event, status);
  }
  if (status) *status = refused;
  return NULL;
}

/* Programs and kernels: see programs.c. */

static cl_program CL_API_CALL faulty_clCreateProgramWithSource(
    cl_context context, cl_uint count, const char **texts, const size_t *lengths, cl_int *status) {
  const cl_int refused = before("clCreateProgramWithSource");
  if (!refused) return create_program(context, count, texts, lengths, status);
  if (status) *status = refused;
  return NULL;
}

static cl_program CL_API_CALL faulty_clCreateProgramWithBinary(
    cl_context context, cl_uint count, const cl_device_id *devices, const size_t *sizes, const unsigned char **contents,
    cl_int *statuses, cl_int *status) {
  const cl_int refused = before("clCreateProgramWithBinary");
  if (!refused) return create_binary(context, count, devices, sizes, contents, statuses, status);
  if (status) *status = refused;
  return NULL;
}

static cl_int CL_API_CALL faulty_clBuildProgram(
    cl_program program, cl_uint count, const cl_device_id *devices, const char *options,
    void(CL_CALLBACK *notify)(cl_program, void *), void *data) {
  const cl_int refused = before("clBuildProgram");
  return refused ? refused : build(program, count, devices, options, notify, data);
}

static cl_int CL_API_CALL faulty_clGetProgramInfo(
    cl_program program, cl_program_info parameter, size_t size, void *value, size_t *needed) {
  const cl_int refused = before("clGetProgramInfo");
  return refused ? refused : program_info(program, parameter, size, value, needed);
}

static cl_kernel CL_API_CALL faulty_clCreateKernel(cl_program program, const char *name, cl_int *status) {
  cl_int refused = before("clCreateKernel");
  if (!refused && has_no_kernels(program)) refused = CL_INVALID_KERNEL_NAME;
  const cl_kernel made = refused ? NULL : real.clCreateKernel(program, name, status);
  if (refused && status) *status = refused;
  forget(&kernels_without_memory, made);
  if (made) forget_arguments(made);
  return made;
}

static cl_int CL_API_CALL faulty_clCreateKernelsInProgram(
    cl_program program, cl_uint count, cl_kernel *kernels, cl_uint *found) {
  const cl_int refused = before("clCreateKernelsInProgram");
  if (refused || !has_no_kernels(program)) {
    return refused ? refused : real.clCreateKernelsInProgram(program, count, kernels, found);
  }
  if (found) *found = 0;
  return CL_SUCCESS;
}

static cl_int CL_API_CALL faulty_clSetKernelArg(cl_kernel kernel, cl_uint number, size_t size, const void *value) {
  const cl_int refused = before("clSetKernelArg");
  const cl_int status = refused ? refused : real.clSetKernelArg(kernel, number, size, value);
  cl_mem memory = NULL;
  if (value && size == sizeof memory) memcpy(&memory, value, size);
  if (status == CL_SUCCESS && memory && knows(&without_memory, memory)) remember(&kernels_without_memory, kernel);
  if (status == CL_SUCCESS) note_argument(kernel, number, memory);
  return status;
}

/* The most work items of a group: work_group_size=N[:part of the kernel's text]. */
static size_t most_work_items(cl_kernel kernel) {
  const char *limit = fault("work_group_size"), *part = limit ? strchr(limit, ':') : NULL;
  if (limit && (!part || kernel_contains(kernel, part + 1))) return (size_t)fault_number("work_group_size");
  return fault("adreno") ? MOST_WORK_ITEMS_OF_ADRENO : SIZE_MAX;
}

static cl_int CL_API_CALL faulty_clGetKernelWorkGroupInfo(
    cl_kernel kernel, cl_device_id device, cl_kernel_work_group_info parameter, size_t size, void *value,
    size_t *needed) {
  const cl_int refused = before("clGetKernelWorkGroupInfo");
  const cl_int status =
      refused ? refused : real.clGetKernelWorkGroupInfo(kernel, device, parameter, size, value, needed);
  if (status || parameter != CL_KERNEL_WORK_GROUP_SIZE || !value) return status;
  const size_t most = most_work_items(kernel);
  if (*(size_t *)value > most) *(size_t *)value = most;
  return status;
}

/* Launches. */

static cl_bool takes_too_much_local_memory(cl_command_queue queue, cl_kernel kernel) {
  cl_device_id device = NULL;
  cl_ulong taken = 0, most = 0;
  real.clGetCommandQueueInfo(queue, CL_QUEUE_DEVICE, sizeof device, &device, NULL);
  real.clGetKernelWorkGroupInfo(kernel, device, CL_KERNEL_LOCAL_MEM_SIZE, sizeof taken, &taken, NULL);
  faulty_clGetDeviceInfo(device, CL_DEVICE_LOCAL_MEM_SIZE, sizeof most, &most, NULL);
  return taken > most;
}

static cl_int CL_API_CALL faulty_clEnqueueNDRangeKernel(
    cl_command_queue queue, cl_kernel kernel, cl_uint dimensions, const size_t *offset, const size_t *global,
    const size_t *local, WAITS) {
  const cl_int refused = before("clEnqueueNDRangeKernel");
  if (refused) return refused;
  size_t items = 1;
  for (cl_uint i = 0; local && i < dimensions; ++i) items *= local[i];
  if (items > most_work_items(kernel)) return note("work_group_size: %zu work items", items), CL_INVALID_WORK_GROUP_SIZE;
  if (knows(&kernels_without_memory, kernel)) return note("late launch"), CL_MEM_OBJECT_ALLOCATION_FAILURE;
  if (reads_what_is_with_others(kernel)) return CL_INVALID_OPERATION;
  if (fault("adreno") && takes_too_much_local_memory(queue, kernel)) return CL_OUT_OF_RESOURCES;
  if (is_recordable(queue)) return record(queue, kernel, dimensions, offset, global, local);
  return launch(queue, kernel, dimensions, offset, global, local, waits, events, event);
}

/* lose=N: every Nth launch is lost. slow=SECONDS:PART: launches of programs with such a text, or without it after a !,
 * wait. Nothing runs after a launch that hangs or has failed. */
cl_int launch(cl_command_queue queue, cl_kernel kernel, cl_uint dimensions, const size_t *offset, const size_t *global,
              const size_t *local, WAITS) {
  static long launches;
  const long number = __atomic_add_fetch(&launches, 1, __ATOMIC_SEQ_CST);
  const char *slow = fault("slow"), *part = slow ? strchr(slow, ':') : NULL;
  const cl_bool without = part && part[1] == '!';
  if (part && kernel_contains(kernel, part + 1 + without) != without) block(strtod(slow, NULL));
  const cl_bool lost = fault("lose") && number % fault_number("lose") == 0;
  if (!executed() && !lost) {
    const cl_int status =
        real.clEnqueueNDRangeKernel(queue, kernel, dimensions, offset, global, local, waits, events, event);
    if (event && !status) remember(&ran, *event);
    return status;
  }
  if (lost) note("lose launch %ld", number);
  return waits || event ? real.clEnqueueMarkerWithWaitList(queue, waits, events, event) : CL_SUCCESS;
}

/* The driver, as the loader sees it. */

static void *CL_API_CALL faulty_clGetExtensionFunctionAddressForPlatform(cl_platform_id platform, const char *name) {
  return extension_function(platform, name);
}

static void change(struct _cl_icd_dispatch *table) {
#define CHANGE(name) table->name = faulty_##name;
  CHANGE(clGetPlatformInfo) CHANGE(clGetDeviceIDs) CHANGE(clGetDeviceInfo) CHANGE(clCreateContext)
  CHANGE(clReleaseContext) CHANGE(clCreateCommandQueue) CHANGE(clCreateCommandQueueWithProperties)
  CHANGE(clGetSupportedImageFormats) CHANGE(clCreateBuffer)
  CHANGE(clCreateBufferWithProperties) CHANGE(clCreateSubBuffer) CHANGE(clCreateImage)
  CHANGE(clReleaseMemObject) CHANGE(clCreateProgramWithSource) CHANGE(clCreateProgramWithBinary)
  CHANGE(clBuildProgram) CHANGE(clGetProgramInfo) CHANGE(clGetProgramBuildInfo) CHANGE(clReleaseProgram)
  CHANGE(clCreateKernel) CHANGE(clCreateKernelsInProgram) CHANGE(clSetKernelArg) CHANGE(clSetKernelArgSVMPointer)
  CHANGE(clGetKernelWorkGroupInfo) CHANGE(clReleaseKernel) CHANGE(clEnqueueNDRangeKernel) CHANGE(clEnqueueReadBuffer)
  CHANGE(clEnqueueReadImage) CHANGE(clEnqueueWriteBuffer) CHANGE(clEnqueueWriteImage) CHANGE(clEnqueueFillBuffer)
  CHANGE(clEnqueueFillImage) CHANGE(clEnqueueCopyBuffer) CHANGE(clEnqueueCopyImage) CHANGE(clEnqueueCopyBufferToImage)
  CHANGE(clEnqueueCopyImageToBuffer) CHANGE(clEnqueueMapBuffer) CHANGE(clEnqueueUnmapMemObject)
  CHANGE(clEnqueueMarkerWithWaitList) CHANGE(clEnqueueBarrierWithWaitList) CHANGE(clWaitForEvents)
  CHANGE(clGetEventInfo) CHANGE(clGetEventProfilingInfo) CHANGE(clReleaseEvent) CHANGE(clFlush) CHANGE(clFinish)
  CHANGE(clGetExtensionFunctionAddressForPlatform)
#undef CHANGE
}

/* Drivers may have their table in memory that is only read. All platforms of a driver have one table. */
static void take_over(cl_platform_id platform) {
  struct _cl_icd_dispatch *table = *(struct _cl_icd_dispatch **)platform;
  if (real.clGetPlatformInfo || !table) return;
  real = *table;
  const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), start = (uintptr_t)table / page * page;
  if (mprotect((void *)start, (uintptr_t)(table + 1) - start, PROT_READ | PROT_WRITE)) abort();
  change(table);
}

static cl_int CL_API_CALL platforms(cl_uint count, cl_platform_id *found, cl_uint *available) {
  void *(*find)(const char *) =
      library ? (void *(*)(const char *))dlsym(library, "clGetExtensionFunctionAddress") : NULL;
  const clIcdGetPlatformIDsKHR_fn list = find ? (clIcdGetPlatformIDsKHR_fn)find("clIcdGetPlatformIDsKHR") : NULL;
  cl_platform_id first = NULL;
  if (!list || list(1, &first, NULL)) return CL_PLATFORM_NOT_FOUND_KHR;
  take_over(first);
  return list(count, found, available);
}

EXPORT void *CL_API_CALL clGetExtensionFunctionAddress(const char *name) {
  if (!strcmp(name, "clIcdGetPlatformIDsKHR")) return (void *)platforms;
  if (!strcmp(name, "clGetPlatformInfo")) return (void *)faulty_clGetPlatformInfo;
  return extension_function(NULL, name);
}

/* Some loaders look these up by name. */
EXPORT cl_int CL_API_CALL clIcdGetPlatformIDsKHR(cl_uint count, cl_platform_id *found, cl_uint *available) {
  return platforms(count, found, available);
}

EXPORT cl_int CL_API_CALL clGetPlatformInfo(
    cl_platform_id platform, cl_platform_info parameter, size_t size, void *value, size_t *needed) {
  return faulty_clGetPlatformInfo(platform, parameter, size, value, needed);
}

/* Changes the faults of a process at work. */
EXPORT void faulty_driver_set(const char *list) { set_faults(list); }

__attribute__((constructor)) static void load(void) {
  set_faults(getenv("FAULTY_DRIVER"));
  const char *path = getenv("FAULTY_DRIVER_LIBRARY");
  library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
  if (!library) fprintf(stderr, "faulty driver: FAULTY_DRIVER_LIBRARY cannot be loaded: %s\n", path ? dlerror() : "-");
}
