/* libimgconv: runs compiled models (`imgconv compile`, Model.save) without Python.
 *
 *     imgconv_error error;
 *     imgconv_model *model;
 *     if (imgconv_open_file("model.imgconv", NULL, &model, &error)) { puts(error.message); exit(1); }
 *     imgconv_array input = {pixels, sizeof pixels, NULL}, output = {scores, sizeof scores, NULL};
 *     if (imgconv_run(model, &input, 1, &output, 1, &error)) puts(error.message);
 *     imgconv_close(model);
 *
 * Arrays are row-major and without gaps. imgconv_input and imgconv_output return their dtypes and shapes.
 *
 * Errors: a function that may fail returns a status, 0 for success, and fills `error` unless it is NULL. No C++
 * exception leaves the library.
 *
 * Time: a driver may never return. A call that takes longer than options.timeout_ms returns IMGCONV_ERROR_TIMEOUT, and
 * every later call for this model returns it at once. imgconv_close then frees nothing. Do not free the arrays of the
 * call that timed out before the process ends, because the driver may still use them. A driver may also block the exit
 * of the process; _exit does not wait for it.
 *
 * Threads: models are independent of each other. Several threads may call the functions of one model; the calls run one
 * after another. imgconv_close must be the last call, and no other call may be running. The library calls the driver
 * from its own threads. Its only global state is a lock for compilers that fail if two threads build at the same time
 * (Intel's CPU driver and oclgrind).
 *
 * Trust: the library runs a file's kernels unchecked, so only open files from sources that you trust. Checksums detect
 * corruption, not malice. */
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

/* The version of this header and of the library that is built with it. It equals the Python package's version. */
#define IMGCONV_VERSION_MAJOR 0
#define IMGCONV_VERSION_MINOR 1
#define IMGCONV_VERSION_PATCH 0

typedef enum imgconv_status {
  IMGCONV_OK = 0,
  IMGCONV_ERROR_ARGUMENT = 1,    /* an argument of the caller is invalid */
  IMGCONV_ERROR_FILE = 2,        /* the file is unreadable, corrupt or no compiled model, or needs a newer library */
  IMGCONV_ERROR_DEVICE = 3,      /* there is no OpenCL library or no device, or the driver reported an error */
  IMGCONV_ERROR_UNFIT = 4,       /* the file has no plan for this device; the message names the limit */
  IMGCONV_ERROR_MEMORY = 5,      /* the host or the device has too little memory */
  IMGCONV_ERROR_BUILD = 6,       /* the driver does not compile a kernel; the message has its name and the start of the
                                    log */
  IMGCONV_ERROR_RANGE = 7,       /* an integer is too large to be exact on the device, or does not fit its dtype */
  IMGCONV_ERROR_BUSY = 8,        /* options.frames frames are already in flight */
  IMGCONV_ERROR_UNSUPPORTED = 9, /* the model needs a feature that only the Python package has, or the driver lacks
                                    one */
  IMGCONV_ERROR_TIMEOUT = 10,    /* a call took longer than options.timeout_ms: see Time above */
  IMGCONV_ERROR_CRASH = 11,      /* processes ended while the driver compiled kernels of this file: see
                                    options.cache_folder. The message names the kernels and the file to remove */
  IMGCONV_ERROR_WRONG = 12,      /* the driver computes a launch and all its replacements incorrectly, or loses
                                    launches; the message names launch, node, kernel, device and driver */
  IMGCONV_ERROR_CANCELLED = 13   /* options.progress cancelled the opening of a model */
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
  const int64_t *shape;   /* `rank` sizes */
  size_t bytes;           /* size of the array; a bool takes one byte */
} imgconv_tensor;

/* A plane of a frame, in the terms of Android's Image.Plane and of V4L2. Offset and strides are in bytes. */
typedef struct imgconv_plane {
  const void *data;
  size_t bytes;         /* size of the memory at `data`; planes may share memory */
  size_t offset;        /* position of the first pixel in this memory */
  int32_t row_stride;   /* distance from one row to the next; 0: no gaps. Rows must not overlap */
  int32_t pixel_stride; /* distance from one pixel to the next in a row; 0: no gaps */
  void *memory;         /* if not NULL, an OpenCL buffer (a cl_mem of imgconv_opencl_context) that the device reads
                           instead of `data`. All planes of a frame must be in the same buffer */
} imgconv_plane;

/* A camera or video frame in its memory layout, for a model compiled with `imgconv compile --picture`. Only
 * imgconv_submit copies it on the host. If the file includes a decoder (--head), the boxes, points and masks are in
 * pixels of the resulting upright picture, as a preview shows it.
 *
 *     imgconv_video_frame frame = {{{y, y_bytes, 0, 704}, {uv, uv_bytes, 0, 704}}, 2, 640, 480, 90};
 *     imgconv_array input = {NULL, 0, NULL, &frame};
 */
typedef struct imgconv_video_frame {
  imgconv_plane planes[3];  /* rgb, bgr, rgba, grey, yuyv: one plane. nv12, nv21, p010: two planes, Y and interleaved
                               UV, or three planes, Y, U and V, as in Android's YUV_420_888. i420: three planes */
  uint32_t plane_count;
  uint32_t width, height;   /* size of the frame in memory, before the rotation */
  uint32_t rotation;        /* degrees clockwise: 0, 90, 180 or 270. Applied to the region */
  int mirror;               /* not 0: left and right are swapped after the rotation */
  uint32_t left, top;       /* corner of the region that is used. After the rotation the region must have the size that
                               the model was compiled for */
  uint32_t region_width, region_height; /* both 0: the whole frame */
} imgconv_video_frame;

/* The memory of one input or output. Set one of these fields:
 * - data: an array of `bytes` bytes on the host.
 * - memory: an OpenCL buffer (a cl_mem of imgconv_opencl_context) of `bytes` bytes. The device must keep this tensor in
 *   a buffer of its own dtype, float32 or float16. It usually keeps pictures in images; frames in OpenCL buffers are
 *   passed as planes of a video_frame instead.
 * - video_frame: a frame, for an input only. */
typedef struct imgconv_array {
  void *data;
  size_t bytes;
  void *memory;
  const imgconv_video_frame *video_frame;
} imgconv_array;

typedef enum imgconv_check_mode {
  IMGCONV_CHECK_ONCE, /* when a model is opened, compare the result of each launch with the expected result in the file,
                         and replace faulty launches by slower ones that are correct. Skipped if options.cache_folder
                         records that this was done on this device and driver, or if imgconv's tests cover the driver */
  IMGCONV_CHECK_OFF
} imgconv_check_mode;

/* The priority of a model's work on the device, relative to other programs. Drivers without cl_khr_priority_hints,
 * cl_qcom_priority_hint and cl_qcom_perf_hint ("extensions" in imgconv_devices_json) ignore it. */
typedef enum imgconv_priority {
  IMGCONV_PRIORITY_DEFAULT, /* ask for high clock rates, which on phones would otherwise drop between frames; no
                               priority */
  IMGCONV_PRIORITY_HIGH,    /* before drawing the screen, which may then stutter; high clock rates */
  IMGCONV_PRIORITY_NORMAL,
  IMGCONV_PRIORITY_LOW      /* after drawing the screen, which stays smooth; low clock rates */
} imgconv_priority;

/* The phases of opening a model. Later versions may add phases. */
typedef enum imgconv_phase {
  IMGCONV_PHASE_OPEN,  /* open device and file; there is no count: `total` is 0 */
  IMGCONV_PHASE_BUILD, /* compile the programs that are not in the cache; takes most of the time of a first opening */
  IMGCONV_PHASE_CHECK, /* check the launches: see options.check */
  IMGCONV_PHASE_TUNE,  /* time alternative kernels: see options.tune_ms */
  IMGCONV_PHASE_RUN    /* run each launch once, because some drivers compile at the first run. At the end (`done` equals
                          `total`) the compiled programs are written to options.cache_folder; PoCL compiles again for
                          this */
} imgconv_phase;

/* Reports that `done` of `total` steps of a phase are complete. Called about ten times a second while a model is
 * opened, by the thread that opens it. To cancel the opening, return a number other than 0: the opening call returns
 * IMGCONV_ERROR_CANCELLED. It leaves nothing incomplete in options.cache_folder. If the driver is compiling, which
 * OpenCL cannot interrupt, the call does not wait: a thread of the library waits for the driver, and then releases
 * everything. A normal end of the process waits for this thread, at most until options.timeout_ms are over; _exit does
 * not.
 * The callback must not throw a C++ exception or call a function of this library. data: options.progress_data. */
typedef int (*imgconv_progress)(void *data, imgconv_phase phase, size_t done, size_t total);

/* Options of imgconv_open_file. A field that is 0 or NULL has its default value. */
typedef struct imgconv_options {
  const char *device;       /* index of a device, or a part of its platform, name or OpenCL C version, in any case.
                               NULL: a GPU if there is one, else an accelerator, else a CPU */
  const char *cache_folder; /* an existing folder, in which the library stores compiled programs, so that the next
                               opening is fast, and results of the check and of tuning. NULL: nothing is stored. If the
                               folder cannot be used, opening only takes longer. The programs run unchecked: make sure
                               that nobody else can write to the folder.
                               While the driver compiles, a file NUMBER.building in the folder names the kernels. If the
                               process ends meanwhile, the file stays, and the next opening uses another plan of the
                               model's file. If there is no other plan, it compiles the same kernels once more. If the
                               process ends again, opening returns IMGCONV_ERROR_CRASH until NUMBER.building is
                               removed */
  uint32_t frames;          /* maximum number of frames in flight for imgconv_submit, up to 64; their memory is
                               allocated when the model is opened. 0: 2 frames, whose memory the first imgconv_submit
                               allocates */
  int profile;              /* not 0: imgconv_profile may be called; runs are slower */
  uint32_t timeout_ms;      /* time limit of each call in milliseconds. It also applies to opening, which may compile
                               for a minute. 0: 600000 */
  imgconv_check_mode check;
  const char *shapes;       /* selects a size of a file that was compiled for several, for example "x=1,3,480,640"; put
                               blanks between several inputs. If the file does not have this size, the message of
                               IMGCONV_ERROR_ARGUMENT lists its sizes. NULL: the first size */
  uint32_t tune_ms;         /* time in milliseconds that opening may spend on timing alternative kernels in the file,
                               starting with the slowest launches, and then options of Qualcomm's compiler. The fastest
                               correct kernels and options are recorded in cache_folder for this file, device and
                               driver, and used by later openings with check or tuning on; without a folder each
                               opening tunes again. After this time no further one is tried, but the last one may take
                               longer. 0: no tuning */
  imgconv_priority priority;
  imgconv_progress progress; /* NULL: none */
  void *progress_data;
} imgconv_options;

typedef struct imgconv_model imgconv_model;

/* Returns the version of the library, such as "0.1.0". */
IMGCONV_API const char *imgconv_version(void);

/* Opens a compiled model on a device: reads and checks the file, builds its kernels, allocates all memory of a run and
 * uploads the weights. If the driver cannot build the kernels of a plan, the next plan of the file within the device's
 * limits is used. options: NULL for the defaults.
 * The file is memory-mapped: it must not be truncated before this function returns. To replace a file, write a new one
 * and rename it. */
IMGCONV_API imgconv_status imgconv_open_file(
    const char *path, const imgconv_options *options, imgconv_model **model, imgconv_error *error);

/* Opens a model whose file is in memory. The memory is no longer needed after this function has returned. */
IMGCONV_API imgconv_status imgconv_open_memory(
    const void *data, size_t bytes, const imgconv_options *options, imgconv_model **model, imgconv_error *error);

/* Waits for the frames in flight and frees the model. After IMGCONV_ERROR_TIMEOUT it frees nothing. NULL is allowed. */
IMGCONV_API void imgconv_close(imgconv_model *model);

/* The inputs and outputs of the model. `number` counts from 0; a number past the end returns IMGCONV_ERROR_ARGUMENT. */
IMGCONV_API size_t imgconv_input_count(const imgconv_model *model);
IMGCONV_API size_t imgconv_output_count(const imgconv_model *model);
IMGCONV_API imgconv_status imgconv_input(const imgconv_model *model, size_t number, imgconv_tensor *tensor);
IMGCONV_API imgconv_status imgconv_output(const imgconv_model *model, size_t number, imgconv_tensor *tensor);

/* Returns JSON that describes the outputs: "task", "head", "labels" (indexed by class) and "answers", which is true if
 * the file includes a decoder, so that the outputs are boxes, scores, classes and so on (`imgconv compile --head`). ""
 * if the file has no description. Valid until the model is closed. */
IMGCONV_API const char *imgconv_description(const imgconv_model *model);

/* Returns in `data` memory for input `number` that the device reads. Fill it and pass it as `data` to the next
 * imgconv_run or imgconv_profile; it is valid until that call. If device and host share memory, that call uploads
 * nothing. Returns IMGCONV_ERROR_UNSUPPORTED unless the device keeps the input in a buffer of its dtype; it keeps most
 * pictures in images. */
IMGCONV_API imgconv_status imgconv_map_input(
    imgconv_model *model, size_t number, void **data, imgconv_error *error);

/* Import memory that a camera or another process fills, without copying it. `memory` can be used in imgconv_array and
 * imgconv_plane for this model until imgconv_release_memory or imgconv_close. A run reads the contents at the time of
 * the call, so the camera must have finished writing before the call, and may write again after the run or
 * imgconv_wait. If the driver has none of the extensions below, the status is IMGCONV_ERROR_UNSUPPORTED. In this case
 * pass planes with `data`: they are uploaded, but not copied on the host.
 *
 * imgconv_import_dma_buf: a Linux file descriptor, such as V4L2's VIDIOC_EXPBUF returns. The caller keeps the
 * descriptor and may close it after this call. bytes: at most the buffer's size. Needs cl_khr_external_memory_dma_buf,
 * cl_qcom_dmabuf_host_ptr, cl_qcom_ion_host_ptr or cl_arm_import_memory_dma_buf. If the host writes to the memory, end
 * the access with DMA_BUF_IOCTL_SYNC.
 *
 * imgconv_import_hardware_buffer: an AHardwareBuffer of AHARDWAREBUFFER_FORMAT_BLOB, or another one whose layout an
 * imgconv_plane can describe. The caller keeps it until the memory is released. Needs
 * cl_qcom_android_ahardwarebuffer_host_ptr or cl_arm_import_memory_android_hardware_buffer. */
IMGCONV_API imgconv_status imgconv_import_dma_buf(
    imgconv_model *model, int descriptor, size_t bytes, void **memory, imgconv_error *error);
IMGCONV_API imgconv_status imgconv_import_hardware_buffer(
    imgconv_model *model, void *buffer, size_t bytes, void **memory, imgconv_error *error);

/* Waits for the device and releases imported memory. */
IMGCONV_API imgconv_status imgconv_release_memory(imgconv_model *model, void *memory, imgconv_error *error);

/* Runs the model once. inputs, outputs: one array for each input and each output, in the order of imgconv_input and
 * imgconv_output; other counts return IMGCONV_ERROR_ARGUMENT. An output whose data and memory are NULL is not fetched.
 * After an error, the contents of the outputs and the model's states are undefined. */
IMGCONV_API imgconv_status imgconv_run(
    imgconv_model *model, const imgconv_array *inputs, size_t input_count, const imgconv_array *outputs,
    size_t output_count, imgconv_error *error);

/* Starts a run and returns while the device computes. Arrays on the host are copied before it returns. `frame` receives
 * the number of this run, for imgconv_wait. If options.frames frames are in flight, it returns IMGCONV_ERROR_BUSY: wait
 * for one first. Frames run in the order of the calls. Outputs in OpenCL buffers need imgconv_run. */
IMGCONV_API imgconv_status imgconv_submit(
    imgconv_model *model, const imgconv_array *inputs, size_t input_count, uint64_t *frame, imgconv_error *error);

/* Waits for a frame and fetches its outputs. After this call the frame is no longer in flight, even after an error,
 * unless output_count was wrong. outputs: as in imgconv_run. */
IMGCONV_API imgconv_status imgconv_wait(
    imgconv_model *model, uint64_t frame, const imgconv_array *outputs, size_t output_count, imgconv_error *error);

/* Like imgconv_submit, with a tag that the caller chooses, such as the camera's timestamp or a pointer. */
IMGCONV_API imgconv_status imgconv_submit_tagged(
    imgconv_model *model, const imgconv_array *inputs, size_t input_count, uint64_t tag, imgconv_error *error);

/* Like imgconv_wait, for the first frame in flight, in the order of submission, for which no thread waits yet. `tag`
 * receives the tag of imgconv_submit_tagged, or the number that imgconv_submit returned. If no frame is in flight, it
 * receives 0, and the status is IMGCONV_ERROR_ARGUMENT. */
IMGCONV_API imgconv_status imgconv_wait_next(
    imgconv_model *model, uint64_t *tag, const imgconv_array *outputs, size_t output_count, imgconv_error *error);

/* Sets the model's states, which persist from run to run, to zero, as after opening. Waits for frames in flight
 * first. */
IMGCONV_API imgconv_status imgconv_reset(imgconv_model *model, imgconv_error *error);

/* Return the number of kernel launches in a run, and the name of a launch, which lists the values that it computes; ""
 * past the end. */
IMGCONV_API size_t imgconv_launch_count(const imgconv_model *model);
IMGCONV_API const char *imgconv_launch_name(const imgconv_model *model, size_t number);

/* Runs the model once and times its launches; needs options.profile. seconds: an array of launch_count elements, which
 * receives the time of each launch on the device. launch_count: must equal imgconv_launch_count. */
IMGCONV_API imgconv_status imgconv_profile(
    imgconv_model *model, const imgconv_array *inputs, size_t input_count, double *seconds, size_t launch_count,
    imgconv_error *error);

/* Checks each launch on its own inputs, even with IMGCONV_CHECK_OFF. Afterwards the model's states are zero, as after
 * imgconv_reset.
 * report: JSON with the device and, for each launch, its name, nodes, kernel, verdict ("right", "wrong" or "not
 * covered") and form ("own", "another specialisation", "plain" or "without optimisation"). If the model takes camera
 * frames, the last entry, "frames of nv12" or another format, is the kernel that reads them. Valid until the next call
 * of this function or imgconv_close.
 * wrong: receives the number of wrong launches; may be NULL. */
IMGCONV_API imgconv_status imgconv_check(
    imgconv_model *model, const char **report, size_t *wrong, imgconv_error *error);

/* Returns the OpenCL extension with which one call replays all launches; "" if they are enqueued one by one. */
IMGCONV_API const char *imgconv_replay(const imgconv_model *model);

/* Return the model's cl_context and its in-order cl_command_queue, for buffers in imgconv_array. Enqueue commands that
 * write such a buffer on this queue, or wait for them before the run. */
IMGCONV_API void *imgconv_opencl_context(const imgconv_model *model);
IMGCONV_API void *imgconv_opencl_queue(const imgconv_model *model);

/* Writes the JSON of all devices that `imgconv devices --json` prints to `text`, for `imgconv compile MODEL --target
 * FILE.json`. "default" is true for the device that is used if options.device is NULL. If a device cannot be opened,
 * "problem" is the reason, and its image limits are missing.
 * At most `size` bytes are written, including the terminating 0; `text` may be NULL if size is 0. needed: receives the
 * size of the complete text; may be NULL. */
IMGCONV_API imgconv_status imgconv_devices_json(char *text, size_t size, size_t *needed, imgconv_error *error);

#ifdef __cplusplus
}
#endif
#endif
