/* Faults of compilers: texts that are swapped, builds that fail, crash or never end, binaries that are no good. */
#define _GNU_SOURCE
#include "faults.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Results of native functions with 11 bits: as far off as OpenCL lets any driver be. */
static const char COARSE[] =
#define OF_WIDTH(floats, uints, as_floats, as_uints)                                                       \
  "__attribute__((overloadable)) " floats " faulty_coarse(" floats " x) {"                                 \
  " return " as_floats "((" as_uints "(x) + (" uints ")0x1000) & (" uints ")0xFFFFE000); } "
    OF_WIDTH("float", "uint", "as_float", "as_uint") OF_WIDTH("float2", "uint2", "as_float2", "as_uint2")
    OF_WIDTH("float4", "uint4", "as_float4", "as_uint4") OF_WIDTH("float8", "uint8", "as_float8", "as_uint8")
    "\n#define native_exp(x) faulty_coarse(native_exp(x))\n#define native_log(x) faulty_coarse(native_log(x))\n"
    "#define native_recip(x) faulty_coarse(native_recip(x))\n#line 1\n";

static struct handles binaries;

/* A copy of the text in which every `from` is a `to`. */
static char *replaced(const char *text, const char *from, const char *to) {
  size_t times = 0;
  for (const char *at = text; (at = strstr(at, from)); at += strlen(from)) ++times;
  char *made = malloc(strlen(text) + times * strlen(to) + 1), *end = made;
  const char *at = text;
  for (const char *next; (next = strstr(at, from)); at = next + strlen(from)) {
    end = stpcpy(mempcpy(end, at, (size_t)(next - at)), to);
  }
  strcpy(end, at);
  if (times) note("swap %s=>%s, %zu times", from, to, times);
  return made;
}

static char *joined(cl_uint count, const char **texts, const size_t *lengths) {
  size_t size = 1;
  for (cl_uint i = 0; i < count; ++i) size += lengths && lengths[i] ? lengths[i] : strlen(texts[i]);
  char *made = malloc(size), *end = made;
  for (cl_uint i = 0; i < count; ++i) {
    end = mempcpy(end, texts[i], lengths && lengths[i] ? lengths[i] : strlen(texts[i]));
  }
  *end = 0;
  return made;
}

cl_program create_program(
    cl_context context, cl_uint count, const char **texts, const size_t *lengths, cl_int *status) {
  char *text = joined(count, texts, lengths);
  if (fault("swap")) {
    char *from = strdup(fault("swap")), *arrow = strstr(from, "=>");
    if (!arrow || arrow == from) abort();
    *arrow = 0;
    char *swapped = replaced(text, from, arrow + 2);
    free(text), free(from);
    text = swapped;
  }
  const cl_bool coarse = fault("native") && strstr(text, "native_");
  if (coarse) note("native coarse");
  const char *parts[] = {coarse ? COARSE : "", text};
  const cl_program made = real.clCreateProgramWithSource(context, 2, parts, NULL, status);
  forget(&binaries, made);
  free(text);
  return made;
}

cl_program create_binary(
    cl_context context, cl_uint count, const cl_device_id *devices, const size_t *sizes, const unsigned char **contents,
    cl_int *statuses, cl_int *status) {
  if (fault("binary") && !strcmp(fault("binary"), "refuse")) {
    note("binary refuse");
    if (status) *status = CL_INVALID_BINARY;
    return NULL;
  }
  const cl_program made = real.clCreateProgramWithBinary(context, count, devices, sizes, contents, statuses, status);
  if (made) remember(&binaries, made);
  return made;
}

/* The text of a program; "" if it was made of a binary. To be freed. */
static char *text_of(cl_program program) {
  size_t size = 0;
  real.clGetProgramInfo(program, CL_PROGRAM_SOURCE, 0, NULL, &size);
  char *text = calloc(size + 1, 1);
  real.clGetProgramInfo(program, CL_PROGRAM_SOURCE, size, text, NULL);
  return text;
}

static long kernels_in(const char *text) {
  long found = 0;
  for (const char *at = text; (at = strstr(at, "kernel void ")); ++at) ++found;
  return found;
}

/* The status with which a build fails; it may crash or never return instead. build_fail=N[:substring[:status]] */
static cl_int build_fault(const char *text) {
  const char *crash = fault("build_crash"), *hang = fault("build_hang"), *fail = fault("build_fail");
  if (crash && strstr(text, crash)) {
    note("build_crash %s", crash);
    signal(SIGSEGV, SIG_DFL);
    raise(SIGSEGV);
  }
  char part[256] = "";
  int status = CL_BUILD_PROGRAM_FAILURE;
  double seconds = -1;
  if (hang && sscanf(hang, "%255[^:]:%lf", part, &seconds) > 0 && strstr(text, part)) {
    note("build_hang %s", hang);
    block(seconds);
  }
  long most = 0;
  part[0] = 0;
  if (fail && sscanf(fail, "%ld:%255[^:]:%d", &most, part, &status) > 0 && kernels_in(text) > most &&
      strstr(text, part)) {
    note("build_fail %s", fail);
    return status;
  }
  return CL_SUCCESS;
}

/* The text of a program, and below it the options that it was built with. To be freed. */
static char *text_and_options_of(cl_program program, const char *options) {
  char *text = text_of(program);
  text = realloc(text, strlen(text) + strlen(options) + 2);
  return strcat(strcat(text, "\n"), options);
}

/* With "adreno" the driver has an option of Qualcomm's: the real one takes it as the definition of a macro. */
static const char *options_for_real(const char *options, char given[512]) {
  static const char NAME[] = "-qcom-accelerate-16-bit", MACRO[] = "-DQCOM_ACCELERATE_16BIT";
  snprintf(given, 512, "%s", options);
  char *at = strstr(given, NAME);
  if (at && fault("adreno")) memcpy(at, MACRO, strlen(MACRO));
  return given;
}

/* Notes the options of a build except pyopencl's folder, the waves that its kernels ask for, and the number of kernels
 * of imgconv's plans. */
static void note_options(const char *text, const char *options) {
  static const char WAVES[] = "qcom_reqd_sub_group_size(\"";
  const char *waves = strstr(text, WAVES);
  long kernels = 0;
  for (const char *at = text; (at = strstr(at, "#define NAME k")); ++at) ++kernels;
  const char *folder = strstr(options, " -I ");
  const int length = (int)(folder ? folder - options : (long)strlen(options));
  const char *width = waves ? waves + strlen(WAVES) : "any";
  note("build of %ld kernels, options %.*s, waves %.4s", kernels, length, options, width);
}

cl_int build(cl_program program, cl_uint count, const cl_device_id *devices, const char *options,
             void(CL_CALLBACK *notify)(cl_program, void *), void *data) {
  /* Intel's driver crashes if two threads build at once. Callers know that by its name, which "adreno" changes. */
  static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
  if (!options) options = "";
  char *text = text_and_options_of(program, options);
  if (fault("options")) note_options(text, options);
  cl_int status = build_fault(text);
  free(text);
  if (!status && knows(&binaries, program) && fault("binary") && !strcmp(fault("binary"), "unbuilt")) {
    note("binary unbuilt");
    status = CL_BUILD_PROGRAM_FAILURE;
  }
  if (status) return status;
  char given[512], with_macro[640];
  options = options_for_real(options, given);
  snprintf(with_macro, sizeof with_macro, "%s -DOPTIMISED=%d", options, !strstr(options, "-cl-opt-disable"));
  pthread_mutex_lock(&one_at_a_time);
  status = real.clBuildProgram(program, count, devices, fault("swap") ? with_macro : options, notify, data);
  pthread_mutex_unlock(&one_at_a_time);
  return status;
}

cl_bool has_no_kernels(cl_program program) {
  const cl_bool lacks = knows(&binaries, program) && fault("binary") && !strcmp(fault("binary"), "kernelless");
  if (lacks) note("binary kernelless");
  return lacks;
}

cl_int program_info(cl_program program, cl_program_info parameter, size_t size, void *value, size_t *needed) {
  const cl_bool empty = fault("binary") && !strcmp(fault("binary"), "empty");
  if (parameter == CL_PROGRAM_BINARY_SIZES && empty) {
    note("binary empty");
    if (value) memset(value, 0, size);
    if (needed) *needed = sizeof(size_t);
    return CL_SUCCESS;
  }
  if (parameter == CL_PROGRAM_BINARIES && empty) {
    if (needed) *needed = sizeof(void *);
    return CL_SUCCESS;
  }
  if (parameter == CL_PROGRAM_NUM_KERNELS && has_no_kernels(program)) {
    if (value) memset(value, 0, size);
    if (needed) *needed = sizeof(size_t);
    return CL_SUCCESS;
  }
  return real.clGetProgramInfo(program, parameter, size, value, needed);
}

cl_bool kernel_contains(cl_kernel kernel, const char *part) {
  cl_program program = NULL;
  real.clGetKernelInfo(kernel, CL_KERNEL_PROGRAM, sizeof program, &program, NULL);
  cl_device_id device = NULL;
  char options[512] = "";
  real.clGetProgramInfo(program, CL_PROGRAM_DEVICES, sizeof device, &device, NULL);
  real.clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_OPTIONS, sizeof options, options, NULL);
  char *text = text_and_options_of(program, options);
  const cl_bool found = strstr(text, part) != NULL;
  free(text);
  return found;
}
