/* Buffers of memory that belongs to others. A dma-buf is any file here, such as a memfd, and an AHardwareBuffer a pointer
 * to memory. Those of cl_khr_external_memory_dma_buf may be used while they are acquired only. */
#include "faults.h"

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { DMABUF_HOST_PTR = 0x411D, HARDWARE_BUFFER_HOST_PTR = 0x4119, MOST_ARGUMENTS = 8 };

/* readers: addresses of kernels, each with the number of an argument added to it. */
static struct handles external, acquired, readers;

static cl_mem over_host(cl_context context, cl_mem_flags flags, size_t size, void *place, cl_int *status) {
  return real.clCreateBuffer(context, flags | CL_MEM_USE_HOST_PTR, size, place, status);
}

static cl_mem over_file(cl_context context, cl_mem_flags flags, size_t size, int file, cl_int *status) {
  void *place = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (place == MAP_FAILED) return *status = CL_INVALID_VALUE, NULL;
  return over_host(context, flags, size, place, status);
}

cl_mem create_external(cl_context context, const cl_mem_properties *properties, cl_mem_flags flags, size_t size, void *host,
                       cl_int *status) {
  const cl_bool known = properties && properties[0] == CL_EXTERNAL_MEMORY_HANDLE_DMA_BUF_KHR && fault("external_memory");
  if (!known) return real.clCreateBufferWithProperties(context, properties, flags, size, host, status);
  const int file = (int)properties[1];
  const cl_mem made = over_file(context, flags, size, file, status);
  note("import by cl_khr_external_memory_dma_buf");
  if (!made) return NULL;
  close(file);  /* it is the driver's once it is taken */
  remember(&external, made);
  return made;
}

cl_mem create_over_host_pointer(cl_context context, cl_mem_flags flags, size_t size, void *given, cl_int *status) {
  const cl_mem_flags wanted = CL_MEM_USE_HOST_PTR | CL_MEM_EXT_HOST_PTR_QCOM;
  const cl_mem_ion_host_ptr *about = given;  /* that of a dma-buf is alike */
  const cl_uint type = about->ext_host_ptr.allocation_type;
  void *place = about->ion_hostptr;
  if (type == HARDWARE_BUFFER_HOST_PTR) memcpy(&place, (char *)given + sizeof(cl_mem_ext_host_ptr), sizeof place);
  const char *offered = type == DMABUF_HOST_PTR ? "dmabuf_host_ptr"
                        : type == CL_MEM_ION_HOST_PTR_QCOM ? "ion_host_ptr" : "ahardwarebuffer_host_ptr";
  const cl_bool known = fault(offered) && about->ext_host_ptr.host_cache_policy == CL_MEM_HOST_UNCACHED_QCOM;
  note("import by %s", offered);
  if ((flags & wanted) != wanted || !known) return *status = CL_INVALID_VALUE, NULL;
  return over_host(context, flags & ~(cl_mem_flags)wanted, size, place, status);
}

static cl_mem import_arm(cl_context context, cl_mem_flags flags, const cl_import_properties_arm *properties, void *memory,
                         size_t size, cl_int *status) {
  note("import by clImportMemoryARM, %lx", (long)properties[1]);
  if (properties[0] != CL_IMPORT_TYPE_ARM) return *status = CL_INVALID_PROPERTY, NULL;
  if (properties[1] == CL_IMPORT_TYPE_DMA_BUF_ARM) return over_file(context, flags, size, *(int *)memory, status);
  return over_host(context, flags, size, memory, status);
}

/* Takes or gives back memory, all of which must be in `owned`; change: remember or forget. */
static cl_int hand_over(cl_command_queue queue, cl_uint count, const cl_mem *memory, struct handles *owned,
                        void (*change)(struct handles *, const void *), cl_uint waits, const cl_event *events,
                        cl_event *event) {
  for (cl_uint i = 0; i < count; ++i) {
    if (!knows(owned, memory[i])) return CL_INVALID_MEM_OBJECT;
    change(&acquired, memory[i]);
  }
  return waits || event ? real.clEnqueueMarkerWithWaitList(queue, waits, events, event) : CL_SUCCESS;
}

static cl_int acquire(cl_command_queue queue, cl_uint count, const cl_mem *memory, cl_uint waits, const cl_event *events,
                      cl_event *event) {
  return hand_over(queue, count, memory, &external, remember, waits, events, event);
}

static cl_int give_back(cl_command_queue queue, cl_uint count, const cl_mem *memory, cl_uint waits, const cl_event *events,
                        cl_event *event) {
  return hand_over(queue, count, memory, &acquired, forget, waits, events, event);
}

void *import_function(const char *name) {
  if (fault("external_memory") && !strcmp(name, "clEnqueueAcquireExternalMemObjectsKHR")) return (void *)acquire;
  if (fault("external_memory") && !strcmp(name, "clEnqueueReleaseExternalMemObjectsKHR")) return (void *)give_back;
  if (fault("arm_import") && !strcmp(name, "clImportMemoryARM")) return (void *)import_arm;
  return NULL;
}

void note_argument(cl_kernel kernel, cl_uint number, cl_mem memory) {
  if (number >= MOST_ARGUMENTS) return;
  if (memory && knows(&external, memory)) remember(&readers, (char *)kernel + number);
  else forget(&readers, (char *)kernel + number);
}

/* A new kernel may have the address of one that is no more. */
void forget_arguments(cl_kernel kernel) {
  for (cl_uint number = 0; number < MOST_ARGUMENTS; ++number) note_argument(kernel, number, NULL);
}

void forget_external(cl_mem memory) { forget(&external, memory); }

cl_bool is_with_others(cl_mem memory) {
  return memory && knows(&external, memory) && !knows(&acquired, memory) ? note("not acquired"), CL_TRUE : CL_FALSE;
}

cl_bool reads_what_is_with_others(cl_kernel kernel) {
  for (cl_uint number = 0; number < MOST_ARGUMENTS; ++number) {
    if (knows(&readers, (char *)kernel + number) && !acquired.count) return note("not acquired"), CL_TRUE;
  }
  return CL_FALSE;
}
