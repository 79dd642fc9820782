/* libimgconv: runs compiled models (`imgconv compile`, Model.save) without Python.
 *
 *     imgconv_error error;
 *     imgconv_model *model;
 *     if (imgconv_open_file("model.imgconv", NULL, &model, &error)) { puts(error.message); exit(1); }
 *     imgconv_array input = {pixels, sizeof pixels, NULL}, output = {scores, sizeof scores, NULL};
 *     if (imgconv_run(model, &input, 1, &output, 1, &error)) puts(error.message);
 *     imgconv_close(model);
 *
 * Arrays are row-major and without gaps, in the dtypes and shapes that imgconv_input and imgconv_output give.
 *
 * Errors: a function that may fail returns a status, 0 for success, and fills `error` unless it is NULL. No exception
 * leaves the library.
 *
 * Time: a call that takes longer than options.timeout_ms is IMGCONV_ERROR_TIMEOUT, because a driver may never return.
 * Then the model is of no use: every call returns this at once, imgconv_close frees nothing, and what the call was given
 * must stay until the process ends, for the driver may still use it. A driver may also wait when the process ends: _exit
 * does not.
 *
 * Threads: models do not depend on each other. The functions of one model may be called by several threads; the
 * threads take turns. Only imgconv_close must be the last call, with no other one under way. The library makes calls
 * of the driver in threads of its own. It has no global state, except a lock for compilers that fail if two threads
 * build: Intel's for CPUs and Oclgrind's.
 *
 * A file's kernels run on the device as they are: open files of sources that you trust. Checksums find damage only.
 */
#ifndef IMGCONV_H
#define IMGCONV_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define IMGCONV_API __attribute__((visibility("default")))
#else
#define IMGCONV_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this header. The one place for the player's version; it is that of the Python package. */
#define IMGCONV_VERSION_MAJOR 0
#define IMGCONV_VERSION_MINOR 1
#define IMGCONV_VERSION_PATCH 0

typedef enum imgconv_status {
  IMGCONV_OK = 0,
  IMGCONV_ERROR_ARGUMENT = 1,    /* what the caller gave does not fit */
  IMGCONV_ERROR_FILE = 2,        /* it cannot be read, is damaged, is not a compiled model, or needs a newer library */
  IMGCONV_ERROR_DEVICE = 3,      /* no OpenCL library, no device, or the driver refused */
  IMGCONV_ERROR_UNFIT = 4,       /* the file has no plan for such a device; the message names the limit */
  IMGCONV_ERROR_MEMORY = 5,      /* host or device lacks memory */
  IMGCONV_ERROR_BUILD = 6,       /* the driver does not compile a kernel; the message names it and has the log's start */
  IMGCONV_ERROR_RANGE = 7,       /* an integer is not exact, or not in its dtype */
  IMGCONV_ERROR_BUSY = 8,        /* as many frames are in flight as were asked for */
  IMGCONV_ERROR_UNSUPPORTED = 9, /* the model needs something that this library leaves to Python */
  IMGCONV_ERROR_TIMEOUT = 10,    /* a call took longer than options.timeout_ms: see Time above */
  IMGCONV_ERROR_CRASH = 11,      /* processes ended while the driver compiled kernels of the file: see
                                    options.cache_folder; the message names them and what to remove */
  IMGCONV_ERROR_WRONG = 12,      /* the driver computes a launch wrongly, and what could replace it, or loses launches;
                                    the message names launch, node, kernel, device and driver */
  IMGCONV_ERROR_CANCELLED = 13   /* options.progress ended the opening of a model */
} imgconv_status;

typedef struct imgconv_error {
  imgconv_status status;
  char message[1024]; /* UTF-8, one or more lines */
} imgconv_error;

typedef enum imgconv_dtype {
  IMGCONV_FLOAT32, IMGCONV_FLOAT16, IMGCONV_FLOAT64, IMGCONV_BOOL, IMGCONV_INT8, IMGCONV_UINT8, IMGCONV_INT16,
  IMGCONV_UINT16, IMGCONV_INT32, IMGCONV_UINT32, IMGCONV_INT64, IMGCONV_UINT64
} imgconv_dtype;

/* An input or an output. Pointers are valid until imgconv_close. */
typedef struct imgconv_tensor {
  const char *name;
  imgconv_dtype dtype;
  const char *dtype_name; /* numpy's: "float32", "int64", "bool" ... */
  size_t rank;
  const int64_t *shape;   /* `rank` numbers */
  size_t bytes;           /* of the array; a bool is a byte */
} imgconv_tensor;

/* A plane of a frame, as Image.Plane of Android or a plane of V4L2 has it. Offset and strides are in bytes. */
typedef struct imgconv_plane {
  const void *data;
  size_t bytes;         /* of its memory, which planes may share */
  size_t offset;        /* of the first pixel */
  int32_t row_stride;   /* from a row to the next; 0: without gaps. Rows do not overlap */
  int32_t pixel_stride; /* from a pixel to the next in its row; 0: without gaps */
  void *memory;         /* if not NULL, an OpenCL buffer (a cl_mem of imgconv_opencl_context) in place of `data`, which
                           the device reads as it is. All planes of a frame have the same one */
} imgconv_plane;

/* A frame of a camera or a video, as it is in memory, for the picture of a model of `imgconv compile --picture`. Nothing
 * of it is copied on the host, except by imgconv_submit: the device reads it by its strides. Boxes, points and masks of a
 * file with answers are in pixels of the picture that results, upright as a preview shows it.
 *
 *     imgconv_video_frame frame = {{{y, y_bytes, 0, 704}, {uv, uv_bytes, 0, 704}}, 2, 640, 480, 90};
 *     imgconv_array input = {NULL, 0, NULL, &frame};
 */
typedef struct imgconv_video_frame {
  imgconv_plane planes[3];  /* rgb, bgr, rgba, grey, yuyv: one; nv12, nv21, p010: two, Y and the pairs, or three, Y, U and
                               V, as Android's YUV_420_888 has them; i420: three */
  uint32_t plane_count;
  uint32_t width, height;   /* as it is in memory */
  uint32_t rotation;        /* degrees clockwise by which the region is turned: 0, 90, 180, 270 */
  int mirror;               /* not 0: left and right are exchanged after that */
  uint32_t left, top;       /* the region that is shown; after the rotation it has the picture's size */
  uint32_t region_width, region_height; /* both 0: all of the frame */
} imgconv_video_frame;

/* Where an input comes from or an output goes to: `data`, or, if `memory` is not NULL, an OpenCL buffer (a cl_mem of
 * imgconv_opencl_context) of `bytes` bytes, or, for an input, `video_frame`, if it is not NULL. A buffer must be of a
 * tensor that the device keeps in a buffer of its dtype: float32 or float16. A picture is mostly an image; its frames may
 * be in buffers as planes of a video_frame. */
typedef struct imgconv_array {
  void *data;
  size_t bytes;
  void *memory;
  const imgconv_video_frame *video_frame;
} imgconv_array;

typedef enum imgconv_check_mode {
  IMGCONV_CHECK_ONCE, /* opening compares each launch with right values of the file, unless this was done on this device
                         and driver before, as options.cache_folder tells, or imgconv's own tests run on the driver.
                         Launches that are wrong are replaced by slower ones that are right */
  IMGCONV_CHECK_OFF
} imgconv_check_mode;

/* The priority of a model's work on the device, next to other programs. It is told to drivers with cl_khr_priority_hints,
 * cl_qcom_priority_hint and cl_qcom_perf_hint ("extensions" of imgconv_devices_json); others ignore it. */
typedef enum imgconv_priority {
  IMGCONV_PRIORITY_DEFAULT, /* high clocks, which on phones fall between frames; the rest is left to the system */
  IMGCONV_PRIORITY_HIGH,    /* before the screen's drawing, which may stutter; high clocks */
  IMGCONV_PRIORITY_NORMAL,
  IMGCONV_PRIORITY_LOW      /* after the screen's drawing, which stays smooth; low clocks */
} imgconv_priority;

/* The work of opening a model. Further phases may be added. */
typedef enum imgconv_phase {
  IMGCONV_PHASE_OPEN,  /* of device and file; not counted: `total` is 0 */
  IMGCONV_PHASE_BUILD, /* of kernels, in programs of several, unless they are kept. Most of the time of a first open */
  IMGCONV_PHASE_CHECK, /* of launches, see options.check */
  IMGCONV_PHASE_TUNE,  /* of launches, see options.tune_ms */
  IMGCONV_PHASE_RUN    /* of each launch for the first time, at which some drivers compile. At the end, with `done` equal to
                          `total`, compiled programs are read for options.cache_folder, for which PoCL compiles again */
} imgconv_phase;

/* Called while a model is opened, about ten times a second, by the thread that opens it: `done` of `total` are over. If it
 * returns another number than 0, opening ends with IMGCONV_ERROR_CANCELLED once the program that the driver compiles at
 * the moment is compiled. Everything is released then, and nothing is kept in options.cache_folder. data: options.progress_data. It
 * throws no C++ exception and calls no function of this library. */
typedef int (*imgconv_progress)(void *data, imgconv_phase phase, size_t done, size_t total);

/* Zeros are the defaults. */
typedef struct imgconv_options {
  const char *device;       /* an index, or a part of platform, name and OpenCL C version in any case. NULL: a GPU if
                               there is one, else an accelerator, else a CPU */
  const char *cache_folder; /* an existing folder for compiled programs, so that the next open is quick. They run as
                               they are: nobody else may be able to write it. If it cannot be used, opening takes
                               longer. While the driver compiles, a file NUMBER.building there names the kernels. If
                               the process ends meanwhile, it stays: the next open takes another plan of the file; if
                               there is none, it compiles once more, and after a second end opening is
                               IMGCONV_ERROR_CRASH until the file is removed. Outcomes of checks are kept there too; see
                               `check`. NULL: none */
  uint32_t frames;          /* the most frames in flight at once, for imgconv_submit, at most 64; their memory is
                               allocated when the model is opened. 0: 2, whose memory imgconv_submit allocates */
  int profile;              /* not 0: imgconv_profile may be called; runs are slower */
  uint32_t timeout_ms;      /* the most milliseconds that a call may take. Opening is one too, and may compile for a
                               minute. 0: 600000 */
  imgconv_check_mode check;
  const char *shapes;       /* "x=1,3,480,640", with blanks between several inputs: which size of a file that was compiled
                               for several. IMGCONV_ERROR_ARGUMENT lists them if it has none. NULL: the first one */
  uint32_t tune_ms;         /* the milliseconds that opening may spend, once for each file, device and driver, to time
                               other kernels that the file has for its launches, the slowest launches first. The fastest
                               right ones are kept in cache_folder, and taken by later opens that check or tune; without
                               a folder each open tunes. No kernel is begun after that time; the last one may take
                               longer. 0: none */
  imgconv_priority priority;
  imgconv_progress progress; /* NULL: none */
  void *progress_data;
} imgconv_options;

typedef struct imgconv_model imgconv_model;

/* The version of the library: "0.1.0". */
IMGCONV_API const char *imgconv_version(void);

/* Opens a compiled model on a device: reads and checks the file, builds its kernels, allocates all memory of a run and
 * uploads the weights. If the driver fails at a plan's kernels, the next plan of the file that fits is taken.
 * options: NULL for the defaults. The file is mapped: until it returns, nothing may shorten the
 * file. To replace one, write another and rename it. */
IMGCONV_API imgconv_status imgconv_open_file(
    const char *path, const imgconv_options *options, imgconv_model **model, imgconv_error *error);

/* The same for a file that is in memory, which is no longer needed once it returns. */
IMGCONV_API imgconv_status imgconv_open_memory(
    const void *data, size_t bytes, const imgconv_options *options, imgconv_model **model, imgconv_error *error);

/* Waits for its frames, and frees everything; nothing if a call took too long. NULL is allowed. */
IMGCONV_API void imgconv_close(imgconv_model *model);

/* The inputs and outputs of the model. `number` counts from 0; past the end it is IMGCONV_ERROR_ARGUMENT. */
IMGCONV_API size_t imgconv_input_count(const imgconv_model *model);
IMGCONV_API size_t imgconv_output_count(const imgconv_model *model);
IMGCONV_API imgconv_status imgconv_input(const imgconv_model *model, size_t number, imgconv_tensor *tensor);
IMGCONV_API imgconv_status imgconv_output(const imgconv_model *model, size_t number, imgconv_tensor *tensor);

/* What the outputs mean, as JSON: "task", "head", "labels" by the number of the class, and "answers", true if the outputs
 * are boxes, scores, classes and so on (imgconv compile --head). "" if the file says nothing. Valid until the model is
 * closed. */
IMGCONV_API const char *imgconv_description(const imgconv_model *model);

/* Memory of input `number` that the device reads: `data` holds the bytes of imgconv_input, to be filled and given as
 * `data` to the next imgconv_run or imgconv_profile, which uploads nothing then if device and host share memory. It is
 * valid until that call. For inputs that the device keeps in a buffer of their dtype; others, such as most pictures, are
 * IMGCONV_ERROR_UNSUPPORTED. */
IMGCONV_API imgconv_status imgconv_map_input(
    imgconv_model *model, size_t number, void **data, imgconv_error *error);

/* A buffer of memory that a camera or another process fills, without a copy: `memory` is for imgconv_array and
 * imgconv_plane of this model, until imgconv_release_memory or imgconv_close. A run reads what is there when it is called,
 * so that the others must have ended, and begin again once the run, or imgconv_wait, is over. IMGCONV_ERROR_UNSUPPORTED
 * if the driver has no extension for it, which the message lists: then planes with `data` are uploaded, without a copy on
 * the host.
 *
 * dma_buf: by a descriptor of Linux, such as V4L2's VIDIOC_EXPBUF gives, which stays the caller's and may be closed
 * afterwards; bytes: at most its size. By cl_khr_external_memory_dma_buf, cl_qcom_dmabuf_host_ptr, cl_qcom_ion_host_ptr
 * or cl_arm_import_memory_dma_buf. A host that writes the memory ends that by DMA_BUF_IOCTL_SYNC.
 *
 * hardware_buffer: an AHardwareBuffer of AHARDWAREBUFFER_FORMAT_BLOB, or another whose bytes lie as imgconv_plane says,
 * which the caller keeps until then. By cl_qcom_android_ahardwarebuffer_host_ptr or
 * cl_arm_import_memory_android_hardware_buffer. */
IMGCONV_API imgconv_status imgconv_import_dma_buf(
    imgconv_model *model, int descriptor, size_t bytes, void **memory, imgconv_error *error);
IMGCONV_API imgconv_status imgconv_import_hardware_buffer(
    imgconv_model *model, void *buffer, size_t bytes, void **memory, imgconv_error *error);

/* Waits for the device, and gives imported memory up. */
IMGCONV_API imgconv_status imgconv_release_memory(imgconv_model *model, void *memory, imgconv_error *error);

/* One run. inputs, outputs: an array for every input and every output, in their order; counts other than
 * imgconv_input_count and imgconv_output_count are IMGCONV_ERROR_ARGUMENT. An output whose data and memory are NULL is
 * left out. After an error, outputs, and what the model keeps from run to run, hold anything. */
IMGCONV_API imgconv_status imgconv_run(
    imgconv_model *model, const imgconv_array *inputs, size_t input_count, const imgconv_array *outputs,
    size_t output_count, imgconv_error *error);

/* Starts a run and returns while the device works; arrays of the host are copied before it returns. `frame` is its
 * number, for imgconv_wait. If options.frames are in flight, it is IMGCONV_ERROR_BUSY: wait for one first. Frames
 * run in the order of the calls. Outputs in OpenCL buffers need imgconv_run. */
IMGCONV_API imgconv_status imgconv_submit(
    imgconv_model *model, const imgconv_array *inputs, size_t input_count, uint64_t *frame, imgconv_error *error);

/* Waits for a frame and fetches its outputs, each once, whatever the status. outputs: as in imgconv_run. */
IMGCONV_API imgconv_status imgconv_wait(
    imgconv_model *model, uint64_t frame, const imgconv_array *outputs, size_t output_count, imgconv_error *error);

/* As imgconv_submit, for a frame that carries a number of the caller's, such as a camera's timestamp, or a pointer. */
IMGCONV_API imgconv_status imgconv_submit_tagged(
    imgconv_model *model, const imgconv_array *inputs, size_t input_count, uint64_t tag, imgconv_error *error);

/* As imgconv_wait, for the first frame in flight, in the order of the calls, for which no thread waits. tag: becomes what
 * imgconv_submit_tagged was given, or the number that imgconv_submit gave; 0 if no frame is in flight, which is
 * IMGCONV_ERROR_ARGUMENT. */
IMGCONV_API imgconv_status imgconv_wait_next(
    imgconv_model *model, uint64_t *tag, const imgconv_array *outputs, size_t output_count, imgconv_error *error);

/* Sets what the model keeps from run to run to zero, as it is after opening. Frames in flight end first. */
IMGCONV_API imgconv_status imgconv_reset(imgconv_model *model, imgconv_error *error);

/* The kernel launches of a run, and the name of one: the values that it makes. "" past the end. */
IMGCONV_API size_t imgconv_launch_count(const imgconv_model *model);
IMGCONV_API const char *imgconv_launch_name(const imgconv_model *model, size_t number);

/* One run with options.profile. seconds: of each launch on the device; launch_count is imgconv_launch_count. */
IMGCONV_API imgconv_status imgconv_profile(
    imgconv_model *model, const imgconv_array *inputs, size_t input_count, double *seconds, size_t launch_count,
    imgconv_error *error);

/* Checks each launch on inputs of its own, whatever options.check says. report: JSON with the device, and for each launch
 * its name, nodes, kernel, verdict, "right", "wrong" or "not covered", and form, "own", "another specialisation", "plain"
 * or "without optimisation"; valid until the next call of this function or
 * imgconv_close. wrong: the number of wrong launches, or NULL. Afterwards the model's states are zero, as after
 * imgconv_reset. */
IMGCONV_API imgconv_status imgconv_check(
    imgconv_model *model, const char **report, size_t *wrong, imgconv_error *error);

/* The OpenCL extension that replays the launches by one call; "" if they are enqueued one by one. */
IMGCONV_API const char *imgconv_replay(const imgconv_model *model);

/* The cl_context and the in-order cl_command_queue of the model, for buffers in imgconv_array. A command that writes
 * such a buffer goes to this queue, or ends before the run. */
IMGCONV_API void *imgconv_opencl_context(const imgconv_model *model);
IMGCONV_API void *imgconv_opencl_queue(const imgconv_model *model);

/* JSON as `imgconv devices --json` prints it, of all devices; "default" is true for the one that options.device NULL
 * takes. Of a device that cannot be opened, "problem" says why, and it is not said what its images can be. Give it to `imgconv compile MODEL --target FILE.json`. At most `size` bytes with the 0 at the end are written to
 * `text`, which may be NULL if size is 0; `needed` (or NULL) becomes the size of all. */
IMGCONV_API imgconv_status imgconv_devices_json(char *text, size_t size, size_t *needed, imgconv_error *error);

#ifdef __cplusplus
}
#endif
#endif
