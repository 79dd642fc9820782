// The native methods of imgconv/Model.java.
#include <dlfcn.h>
#include <jni.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <string>
#include <vector>

#include "imgconv.h"

namespace {

jfieldID handle_of(JNIEnv *java, jobject self) { return java->GetFieldID(java->GetObjectClass(self), "handle", "J"); }

// Returns the model of a Model object. If it is closed, returns NULL and sets the error.
imgconv_model *model_of(JNIEnv *java, jobject self, imgconv_error &error) {
  imgconv_model *const model = reinterpret_cast<imgconv_model *>(java->GetLongField(self, handle_of(java, self)));
  if (!model) error = {IMGCONV_ERROR_ARGUMENT, "the model is closed"};
  return model;
}

// Returns a text as a Java array of UTF-8, because JNI's modified UTF-8 differs outside the basic plane. Null if there
// is not enough memory.
jbyteArray text_of(JNIEnv *java, const char *text) {
  const jsize length = static_cast<jsize>(std::strlen(text));
  const jbyteArray made = java->NewByteArray(length);
  if (made) java->SetByteArrayRegion(made, 0, length, reinterpret_cast<const jbyte *>(text));
  return made;
}

// A copy of a text from Java; its pointer is NULL if the text is null.
class Text {
 public:
  Text(JNIEnv *java, jbyteArray text)
      : is_null_(!text), content_(text ? static_cast<size_t>(java->GetArrayLength(text)) : 0, 0) {
    if (text) java->GetByteArrayRegion(text, 0, java->GetArrayLength(text), reinterpret_cast<jbyte *>(&content_[0]));
  }
  const char *get() const { return is_null_ ? nullptr : content_.c_str(); }

 private:
  bool is_null_;
  std::string content_;
};

// Throws a Java exception, which stays pending, unless the status is 0.
void check(JNIEnv *java, const imgconv_error &error) {
  if (!error.status || java->ExceptionCheck()) return;
  const jclass kind = java->FindClass("imgconv/Model$Error");
  const jmethodID make = kind ? java->GetMethodID(kind, "<init>", "(I[B)V") : nullptr;
  const jbyteArray message = make ? text_of(java, error.message) : nullptr;
  if (!message) return;
  java->Throw(static_cast<jthrowable>(java->NewObject(kind, make, static_cast<jint>(error.status), message)));
}

constexpr imgconv_error NOT_DIRECT = {IMGCONV_ERROR_ARGUMENT, "a buffer is not direct: use ByteBuffer.allocateDirect"};

// Returns the arrays of direct buffers. Sets the error if a buffer is not direct.
std::vector<imgconv_array> arrays_of(JNIEnv *java, jobjectArray buffers, imgconv_error &error) {
  std::vector<imgconv_array> arrays(buffers ? static_cast<size_t>(java->GetArrayLength(buffers)) : 0);
  for (size_t i = 0; i < arrays.size(); ++i) {
    const jobject buffer = java->GetObjectArrayElement(buffers, static_cast<jsize>(i));
    if (!buffer) continue;
    const auto bytes = static_cast<size_t>(java->GetDirectBufferCapacity(buffer));
    arrays[i] = {java->GetDirectBufferAddress(buffer), bytes, nullptr, nullptr};
    if (!arrays[i].data) error = NOT_DIRECT;
    java->DeleteLocalRef(buffer);
  }
  return arrays;
}

// Returns the frame of a Model.VideoFrame from its planes and its numbers, in the order of VideoFrame.numbers(). Sets
// the error if they are invalid.
imgconv_video_frame frame_of(
    JNIEnv *java, jobjectArray planes, jlongArray memories, jintArray numbers, imgconv_error &error) {
  imgconv_video_frame frame{};
  constexpr size_t MOST_PLANES = sizeof frame.planes / sizeof *frame.planes;
  const size_t count = static_cast<size_t>(java->GetArrayLength(planes));
  if (!error.status && count > MOST_PLANES) error = {IMGCONV_ERROR_ARGUMENT, "a frame has at most three planes"};
  const std::vector<imgconv_array> memory = arrays_of(java, planes, error);
  if (error.status) return frame;
  std::vector<jlong> imported(2 * count);
  java->GetLongArrayRegion(memories, 0, static_cast<jsize>(imported.size()), imported.data());
  std::vector<jint> n(8 + 3 * count);
  java->GetIntArrayRegion(numbers, 0, static_cast<jsize>(n.size()), n.data());
  for (size_t i = 0; i < 8; ++i) {
    if (n[i] < 0) error = {IMGCONV_ERROR_ARGUMENT, "a size, a rotation or a region of the frame is negative"};
  }
  const auto natural = [&](size_t i) { return static_cast<uint32_t>(n[i]); };
  for (size_t i = 0; i < count; ++i) {
    const size_t own = 8 + 3 * i;
    if (n[own] < 0) error = {IMGCONV_ERROR_ARGUMENT, "the offset of a plane is negative"};
    void *const handle = reinterpret_cast<void *>(imported[2 * i]);
    const size_t bytes = handle ? static_cast<size_t>(imported[2 * i + 1]) : memory[i].bytes;
    frame.planes[i] = {memory[i].data, bytes, static_cast<size_t>(n[own]), n[own + 1], n[own + 2], handle};
  }
  frame.plane_count = static_cast<uint32_t>(count);
  frame.width = natural(0);
  frame.height = natural(1);
  frame.rotation = natural(2);
  frame.mirror = n[3];
  frame.left = natural(4);
  frame.top = natural(5);
  frame.region_width = natural(6);
  frame.region_height = natural(7);
  return frame;
}

// Returns the AHardwareBuffer of an android.hardware.HardwareBuffer. If there is none, returns NULL and sets the error.
void *hardware_buffer_of(JNIEnv *java, jobject buffer, imgconv_error &error) {
  using Find = void *(*)(JNIEnv *, jobject);
  void *const library = dlopen("libandroid.so", RTLD_NOW);
  void *const found = library ? dlsym(library, "AHardwareBuffer_fromHardwareBuffer") : nullptr;
  if (!found) error = {IMGCONV_ERROR_UNSUPPORTED, "only Android 8 and later have a HardwareBuffer"};
  void *const made = found ? reinterpret_cast<Find>(found)(java, buffer) : nullptr;
  if (found && !made) error = {IMGCONV_ERROR_ARGUMENT, "the HardwareBuffer is closed, or is not one"};
  return made;
}

// Starts a frame, with the tag if it has one, unless the error is already set. Returns its number, or 0 if it has a
// tag.
uint64_t submit(imgconv_model *model, const std::vector<imgconv_array> &inputs, jboolean tagged, jlong tag,
                imgconv_error &error) {
  uint64_t frame = 0;
  if (error.status) return frame;
  if (tagged) imgconv_submit_tagged(model, inputs.data(), inputs.size(), static_cast<uint64_t>(tag), &error);
  else imgconv_submit(model, inputs.data(), inputs.size(), &frame, &error);
  return frame;
}

// Keeps buffers from being garbage-collected after a timeout, because the driver may still use them.
void keep(JNIEnv *java, jobjectArray buffers, const imgconv_error &error) {
  if (error.status != IMGCONV_ERROR_TIMEOUT || !buffers) return;
  for (jsize i = 0; i < java->GetArrayLength(buffers); ++i) {
    const jobject buffer = java->GetObjectArrayElement(buffers, i);
    if (buffer) java->NewGlobalRef(buffer);
    java->DeleteLocalRef(buffer);
  }
}

// A Model.Progress, with the method Model.goesOn that calls it.
struct Listener {
  JNIEnv *java;
  jclass model;
  jmethodID goes_on;
  jobject progress;
};

// The imgconv_progress callback; the thread that opens the model calls it.
int tell(void *data, imgconv_phase phase, size_t done, size_t total) {
  const Listener &to = *static_cast<const Listener *>(data);
  const jboolean goes_on = to.java->CallStaticBooleanMethod(
      to.model, to.goes_on, to.progress, static_cast<jint>(phase), static_cast<jlong>(done), static_cast<jlong>(total));
  return to.java->ExceptionCheck() || !goes_on;
}

// Returns a new Model.Tensor, or null if an exception is pending.
jobject tensor_of(JNIEnv *java, jclass kind, jmethodID make, const imgconv_tensor &tensor) {
  if (tensor.bytes > INT_MAX) {
    check(java, {IMGCONV_ERROR_UNSUPPORTED, "an array is over 2 GB, which no ByteBuffer holds"});
  }
  if (java->ExceptionCheck()) return nullptr;
  const std::vector<jlong> sizes(tensor.shape, tensor.shape + tensor.rank);
  const jsize rank = static_cast<jsize>(tensor.rank);
  const jbyteArray name = text_of(java, tensor.name), dtype = name ? text_of(java, tensor.dtype_name) : nullptr;
  const jlongArray shape = dtype ? java->NewLongArray(rank) : nullptr;
  if (!shape) return nullptr;
  java->SetLongArrayRegion(shape, 0, rank, sizes.data());
  return java->NewObject(kind, make, name, dtype, shape, static_cast<jint>(tensor.bytes));
}

}  // namespace

extern "C" {

JNIEXPORT jbyteArray JNICALL Java_imgconv_Model_versionText(JNIEnv *java, jclass) {
  return text_of(java, imgconv_version());
}

JNIEXPORT jbyteArray JNICALL Java_imgconv_Model_devicesJson(JNIEnv *java, jclass) {
  size_t needed = 0;
  imgconv_error error{};
  imgconv_devices_json(nullptr, 0, &needed, &error);
  std::vector<char> text(needed + 1);
  if (!error.status) imgconv_devices_json(text.data(), text.size(), nullptr, &error);
  check(java, error);
  return error.status ? nullptr : text_of(java, text.data());
}

JNIEXPORT jlong JNICALL Java_imgconv_Model_open(
    JNIEnv *java, jclass self, jbyteArray path, jobject file, jbyteArray device, jbyteArray cache_folder,
    jbyteArray shapes, jintArray numbers, jobject progress) {
  const Text path_text(java, path), device_text(java, device), cache_text(java, cache_folder);
  const Text shapes_text(java, shapes);
  jint given[5];
  java->GetIntArrayRegion(numbers, 0, 5, given);
  Listener listener{java, self, java->GetStaticMethodID(self, "goesOn", "(Limgconv/Model$Progress;IJJ)Z"), progress};
  imgconv_options options{};
  options.device = device_text.get();
  options.cache_folder = cache_text.get();
  options.shapes = shapes_text.get();
  options.frames = given[0] < 0 ? UINT32_MAX : static_cast<uint32_t>(given[0]);
  options.timeout_ms = static_cast<uint32_t>(std::max(given[1], 0));
  options.tune_ms = static_cast<uint32_t>(std::max(given[2], 0));
  options.priority = static_cast<imgconv_priority>(given[3]);
  options.check = given[4] ? IMGCONV_CHECK_ONCE : IMGCONV_CHECK_OFF;
  options.progress = progress ? tell : nullptr;
  options.progress_data = &listener;
  imgconv_model *model = nullptr;
  imgconv_error error{};
  if (file && !java->GetDirectBufferAddress(file)) {
    error = NOT_DIRECT;
  } else if (file) {
    const size_t bytes = static_cast<size_t>(java->GetDirectBufferCapacity(file));
    imgconv_open_memory(java->GetDirectBufferAddress(file), bytes, &options, &model, &error);
    if (error.status == IMGCONV_ERROR_TIMEOUT) java->NewGlobalRef(file);
  } else {
    imgconv_open_file(path_text.get(), &options, &model, &error);
  }
  check(java, error);
  return reinterpret_cast<jlong>(model);
}

JNIEXPORT jobjectArray JNICALL Java_imgconv_Model_tensors(JNIEnv *java, jobject self, jboolean of_inputs) {
  imgconv_error error{};
  const imgconv_model *model = model_of(java, self, error);
  const size_t count = of_inputs ? imgconv_input_count(model) : imgconv_output_count(model);
  const jclass kind = java->FindClass("imgconv/Model$Tensor");
  const jmethodID make = kind ? java->GetMethodID(kind, "<init>", "([B[B[JI)V") : nullptr;
  const jobjectArray made = make ? java->NewObjectArray(static_cast<jsize>(count), kind, nullptr) : nullptr;
  for (size_t i = 0; made && i < count; ++i) {
    imgconv_tensor tensor;
    (of_inputs ? imgconv_input : imgconv_output)(model, i, &tensor);
    // Android before 8 ends an app that holds 512 references.
    if (java->PushLocalFrame(8)) return nullptr;
    const jobject each = java->PopLocalFrame(tensor_of(java, kind, make, tensor));
    if (!each) return nullptr;
    java->SetObjectArrayElement(made, static_cast<jsize>(i), each);
    java->DeleteLocalRef(each);
  }
  return made;
}

JNIEXPORT jobject JNICALL Java_imgconv_Model_map(JNIEnv *java, jobject self, jint number, jint bytes) {
  void *data = nullptr;
  imgconv_error error{};
  imgconv_model *model = model_of(java, self, error);
  if (model) imgconv_map_input(model, static_cast<size_t>(number), &data, &error);
  check(java, error);
  return data ? java->NewDirectByteBuffer(data, bytes) : nullptr;
}

JNIEXPORT void JNICALL Java_imgconv_Model_runBuffers(
    JNIEnv *java, jobject self, jobjectArray inputs, jobjectArray outputs) {
  imgconv_error error{};
  imgconv_model *model = model_of(java, self, error);
  const auto given = arrays_of(java, inputs, error), wanted = arrays_of(java, outputs, error);
  if (!error.status) imgconv_run(model, given.data(), given.size(), wanted.data(), wanted.size(), &error);
  keep(java, inputs, error);
  keep(java, outputs, error);
  check(java, error);
}

JNIEXPORT jlong JNICALL Java_imgconv_Model_submitBuffers(
    JNIEnv *java, jobject self, jobjectArray inputs, jboolean tagged, jlong tag) {
  imgconv_error error{};
  imgconv_model *model = model_of(java, self, error);
  const auto given = arrays_of(java, inputs, error);
  const uint64_t frame = submit(model, given, tagged, tag, error);
  keep(java, inputs, error);
  check(java, error);
  return static_cast<jlong>(frame);
}

JNIEXPORT jlong JNICALL Java_imgconv_Model_awaitNextBuffers(JNIEnv *java, jobject self, jobjectArray outputs) {
  imgconv_error error{};
  imgconv_model *model = model_of(java, self, error);
  const auto wanted = arrays_of(java, outputs, error);
  uint64_t tag = 0;
  if (!error.status) imgconv_wait_next(model, &tag, wanted.data(), wanted.size(), &error);
  keep(java, outputs, error);
  check(java, error);
  return static_cast<jlong>(tag);
}

JNIEXPORT void JNICALL Java_imgconv_Model_runFrame(
    JNIEnv *java, jobject self, jobjectArray planes, jlongArray memories, jintArray numbers, jobjectArray outputs) {
  imgconv_error error{};
  imgconv_model *model = model_of(java, self, error);
  const imgconv_video_frame frame = frame_of(java, planes, memories, numbers, error);
  const imgconv_array given = {nullptr, 0, nullptr, &frame};
  const auto wanted = arrays_of(java, outputs, error);
  if (!error.status) imgconv_run(model, &given, 1, wanted.data(), wanted.size(), &error);
  keep(java, planes, error);
  keep(java, outputs, error);
  check(java, error);
}

JNIEXPORT jlong JNICALL Java_imgconv_Model_submitFrame(
    JNIEnv *java, jobject self, jobjectArray planes, jlongArray memories, jintArray numbers, jboolean tagged,
    jlong tag) {
  imgconv_error error{};
  imgconv_model *model = model_of(java, self, error);
  const imgconv_video_frame read = frame_of(java, planes, memories, numbers, error);
  const std::vector<imgconv_array> given = {{nullptr, 0, nullptr, &read}};
  const uint64_t frame = submit(model, given, tagged, tag, error);
  keep(java, planes, error);
  check(java, error);
  return static_cast<jlong>(frame);
}

JNIEXPORT void JNICALL Java_imgconv_Model_awaitBuffers(JNIEnv *java, jobject self, jlong frame, jobjectArray outputs) {
  imgconv_error error{};
  imgconv_model *model = model_of(java, self, error);
  const auto wanted = arrays_of(java, outputs, error);
  if (!error.status) imgconv_wait(model, static_cast<uint64_t>(frame), wanted.data(), wanted.size(), &error);
  keep(java, outputs, error);
  check(java, error);
}

JNIEXPORT jlong JNICALL Java_imgconv_Model_importMemory(
    JNIEnv *java, jobject self, jint descriptor, jobject buffer, jlong bytes) {
  void *memory = nullptr;
  imgconv_error error{};
  imgconv_model *model = model_of(java, self, error);
  const size_t size = static_cast<size_t>(std::max<jlong>(bytes, 0));
  void *const given = model && buffer ? hardware_buffer_of(java, buffer, error) : nullptr;
  if (given) imgconv_import_hardware_buffer(model, given, size, &memory, &error);
  else if (model && !buffer) imgconv_import_dma_buf(model, descriptor, size, &memory, &error);
  check(java, error);
  return reinterpret_cast<jlong>(memory);
}

JNIEXPORT void JNICALL Java_imgconv_Model_releaseMemory(JNIEnv *java, jobject self, jlong memory) {
  imgconv_error error{};
  imgconv_model *model = model_of(java, self, error);
  if (model) imgconv_release_memory(model, reinterpret_cast<void *>(memory), &error);
  check(java, error);
}

JNIEXPORT void JNICALL Java_imgconv_Model_reset(JNIEnv *java, jobject self) {
  imgconv_error error{};
  imgconv_model *model = model_of(java, self, error);
  if (model) imgconv_reset(model, &error);
  check(java, error);
}

JNIEXPORT jbyteArray JNICALL Java_imgconv_Model_checkJson(JNIEnv *java, jobject self) {
  const char *report = nullptr;
  imgconv_error error{};
  imgconv_model *model = model_of(java, self, error);
  if (model) imgconv_check(model, &report, nullptr, &error);
  check(java, error);
  return error.status ? nullptr : text_of(java, report);
}

JNIEXPORT jbyteArray JNICALL Java_imgconv_Model_descriptionJson(JNIEnv *java, jobject self) {
  imgconv_error error{};
  imgconv_model *model = model_of(java, self, error);
  check(java, error);
  return error.status ? nullptr : text_of(java, imgconv_description(model));
}

JNIEXPORT void JNICALL Java_imgconv_Model_close(JNIEnv *java, jobject self) {
  imgconv_error error{};
  imgconv_close(model_of(java, self, error));
  java->SetLongField(self, handle_of(java, self), 0);
}

}  // extern "C"
