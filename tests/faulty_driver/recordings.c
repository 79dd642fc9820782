/* Launches that are replayed: an implementation of cl_qcom_recordable_queues, which notes launches and enqueues them one
 * by one, and a layer over the real driver's cl_khr_command_buffer. Both lose what follows the first N launches of a
 * recording, if replay=N is set. */
#include "faults.h"

#include <stdlib.h>
#include <string.h>

struct command { cl_kernel kernel; cl_uint dimensions; size_t offset[3], global[3], local[3]; cl_bool has_local; };
struct recording { cl_command_queue queue; struct command *commands; long count; };

static struct handles recordable;
/* A queue records one recording at a time, and callers use one such queue at a time. */
static struct recording *current;

void note_queue(cl_command_queue queue, cl_bool records) {
  if (records && queue) remember(&recordable, queue);
  else forget(&recordable, queue);  /* one that was released may have had this handle */
}

cl_bool is_recordable(cl_command_queue queue) { return (cl_bool)knows(&recordable, queue); }

static struct recording *new_recording(cl_command_queue queue, cl_int *status) {
  const cl_int refused = before("clNewRecordingQCOM");
  if (status) *status = refused ? refused : is_recordable(queue) ? CL_SUCCESS : CL_INVALID_COMMAND_QUEUE;
  if (refused || !is_recordable(queue)) return NULL;
  current = calloc(1, sizeof *current);
  current->queue = queue;
  return current;
}

/* The kernel's arguments are those of this moment, whatever is set later. */
cl_int record(cl_command_queue queue, cl_kernel kernel, cl_uint dimensions, const size_t *offset, const size_t *global,
              const size_t *local) {
  if (!current || current->queue != queue) return CL_INVALID_OPERATION;
  cl_int status = CL_INVALID_OPERATION;
  cl_kernel kept = real.clCloneKernel ? real.clCloneKernel(kernel, &status) : NULL;
  if (status) real.clRetainKernel(kept = kernel);
  current->commands = realloc(current->commands, (size_t)(current->count + 1) * sizeof *current->commands);
  struct command *made = &current->commands[current->count++];
  *made = (struct command){kept, dimensions, {0}, {0}, {0}, local != NULL};
  memcpy(made->global, global, dimensions * sizeof *global);
  if (offset) memcpy(made->offset, offset, dimensions * sizeof *offset);
  if (local) memcpy(made->local, local, dimensions * sizeof *local);
  return CL_SUCCESS;
}

static cl_int end_recording(struct recording *recording) {
  const cl_int refused = before("clEndRecordingQCOM");
  if (refused) return refused;
  if (recording != current) return CL_INVALID_OPERATION;
  current = NULL;
  return CL_SUCCESS;
}

static long replayed(long count) {
  const long most = fault("replay") ? fault_number("replay") : count;
  if (most < count) note("replay of %ld launches of %ld", most, count);
  return most < count ? most : count;
}

static cl_int enqueue_recording(
    cl_command_queue queue, struct recording *recording, size_t arguments, const void *a, size_t offsets, const void *b,
    size_t globals, const void *c, size_t locals, const void *d, cl_uint waits, const cl_event *events,
    cl_event *event) {
  const cl_int refused = before("clEnqueueRecordingQCOM");
  if (refused) return refused;
  (void)a, (void)b, (void)c, (void)d;
  if (arguments || offsets || globals || locals) return CL_INVALID_OPERATION;  /* nothing is changed in a recording */
  if (waits) real.clEnqueueBarrierWithWaitList(queue, waits, events, NULL);
  const long count = replayed(recording->count);
  for (long i = 0; i < count; ++i) {
    const struct command *each = &recording->commands[i];
    const cl_int status = launch(queue, each->kernel, each->dimensions, each->offset, each->global,
                                 each->has_local ? each->local : NULL, 0, NULL, NULL);
    if (status) return status;
  }
  return event ? real.clEnqueueMarkerWithWaitList(queue, 0, NULL, event) : CL_SUCCESS;
}

static cl_int release_recording(struct recording *recording) {
  for (long i = 0; i < recording->count; ++i) real.clReleaseKernel(recording->commands[i].kernel);
  free(recording->commands);
  free(recording);
  return CL_SUCCESS;
}

/* The real driver's command buffers. */
static clCommandNDRangeKernelKHR_fn command_launch;
static clCreateCommandBufferKHR_fn create_buffer;
static clEnqueueCommandBufferKHR_fn enqueue_buffer;
static long in_buffer;  /* launches of the newest one */

static cl_command_buffer_khr new_buffer(
    cl_uint queues, const cl_command_queue *all, const cl_command_buffer_properties_khr *properties, cl_int *status) {
  const cl_int refused = before("clCreateCommandBufferKHR");
  in_buffer = 0;
  if (!refused) return create_buffer(queues, all, properties, status);
  if (status) *status = refused;
  return NULL;
}

static cl_int launch_in_buffer(
    cl_command_buffer_khr buffer, cl_command_queue queue, const cl_ndrange_kernel_command_properties_khr *properties,
    cl_kernel kernel, cl_uint dimensions, const size_t *offset, const size_t *global, const size_t *local, cl_uint waits,
    const cl_sync_point_khr *points, cl_sync_point_khr *point, cl_mutable_command_khr *handle) {
  const cl_int refused = before("clCommandNDRangeKernelKHR");
  if (refused) return refused;
  ++in_buffer;
  if (replayed(in_buffer) < in_buffer) return CL_SUCCESS;
  return command_launch(buffer, queue, properties, kernel, dimensions, offset, global, local, waits, points, point,
                        handle);
}

static cl_int replay_buffer(cl_uint queues, cl_command_queue *all, cl_command_buffer_khr buffer, cl_uint waits,
                            const cl_event *events, cl_event *event) {
  const cl_int refused = before("clEnqueueCommandBufferKHR");
  return refused ? refused : enqueue_buffer(queues, all, buffer, waits, events, event);
}

void *extension_function(cl_platform_id platform, const char *name) {
  if (fault("recordable")) {
    if (!strcmp(name, "clNewRecordingQCOM")) return (void *)new_recording;
    if (!strcmp(name, "clEndRecordingQCOM")) return (void *)end_recording;
    if (!strcmp(name, "clEnqueueRecordingQCOM")) return (void *)enqueue_recording;
    if (!strcmp(name, "clReleaseRecordingQCOM")) return (void *)release_recording;
  }
  if (import_function(name)) return import_function(name);
  void *found = real.clGetExtensionFunctionAddressForPlatform(platform, name);
  if (!found) return NULL;
#define OVER(function, kept, mine) \
  if (!strcmp(name, function)) return kept = (__typeof__(kept))found, (void *)mine;
  OVER("clCreateCommandBufferKHR", create_buffer, new_buffer)
  OVER("clCommandNDRangeKernelKHR", command_launch, launch_in_buffer)
  OVER("clEnqueueCommandBufferKHR", enqueue_buffer, replay_buffer)
  return found;
}
