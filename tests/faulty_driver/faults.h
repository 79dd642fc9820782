/* The faults that are switched on, and the real driver's functions. See faulty_driver.c. */
#ifndef FAULTS_H
#define FAULTS_H

#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <CL/cl_ext.h>
#include <CL/cl_icd.h>

#include <stddef.h>

/* The dispatch table of the real driver, as it was. */
extern struct _cl_icd_dispatch real;

/* Takes the faults of a list such as "adreno;fail=clFinish:-5@3" in place of those before. */
void set_faults(const char *list);

/* The text after "name=", "" for a fault without "=", NULL if the fault is not in the list. */
const char *fault(const char *name);

/* The number at the start of fault(name); 0 if it is not in the list. */
long fault_number(const char *name);

/* Every call of a function comes here first: stalls it, or returns the status with which it fails. */
cl_int before(const char *function);

/* Whether launches run: CL_COMPLETE, CL_RUNNING once one hangs, or the status with which one has failed. */
extern cl_int state;

/* A launch comes here before it is enqueued, for fail=execution and stall=execution; returns the state. */
cl_int executed(void);

/* Blocks for some seconds, for ever if they are negative. A signal handler runs, but does not end it. */
void block(double seconds);

/* Appends a line to the file FAULTY_DRIVER_LOG, so that a test sees that its fault was met. */
void note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Handles of one kind. */
struct handles { const void *all[4096]; int count; };
void remember(struct handles *set, const void *handle);
void forget(struct handles *set, const void *handle);
int knows(struct handles *set, const void *handle);

/* adreno.c: what the driver says about itself; CL_FALSE if the real one answers. */
cl_bool adreno_info(cl_device_id device, cl_uint parameter, const void **value, size_t *size);

/* programs.c */
cl_program create_program(cl_context, cl_uint, const char **, const size_t *, cl_int *);
cl_program create_binary(
    cl_context, cl_uint, const cl_device_id *, const size_t *, const unsigned char **, cl_int *, cl_int *);
cl_int build(cl_program, cl_uint, const cl_device_id *, const char *, void(CL_CALLBACK *)(cl_program, void *), void *);
cl_int program_info(cl_program, cl_program_info, size_t, void *, size_t *);
cl_bool has_no_kernels(cl_program);
cl_bool kernel_contains(cl_kernel, const char *text);

/* recordings.c: cl_qcom_recordable_queues, and cl_khr_command_buffer between the caller and the real driver. */
void *extension_function(cl_platform_id, const char *name);
void note_queue(cl_command_queue, cl_bool records);
cl_bool is_recordable(cl_command_queue);
cl_int record(cl_command_queue, cl_kernel, cl_uint dimensions, const size_t *, const size_t *, const size_t *);

/* imports.c: memory of others */
cl_mem create_external(cl_context, const cl_mem_properties *, cl_mem_flags, size_t, void *, cl_int *);
cl_mem create_over_host_pointer(cl_context, cl_mem_flags, size_t, void *, cl_int *);
void *import_function(const char *name);
void note_argument(cl_kernel, cl_uint number, cl_mem);
void forget_arguments(cl_kernel);
void forget_external(cl_mem);
cl_bool is_with_others(cl_mem);
cl_bool reads_what_is_with_others(cl_kernel);

/* faulty_driver.c: runs a launch, unless it is one that gets lost. */
cl_int launch(cl_command_queue, cl_kernel, cl_uint dimensions, const size_t *, const size_t *, const size_t *,
              cl_uint, const cl_event *, cl_event *);

#endif
