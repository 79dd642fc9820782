package imgconv;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Objects;

/**
 * A compiled model on an OpenCL device: the Java and Kotlin interface of libimgconv. imgconv.h has the details.
 *
 * <pre>
 *   try (Model model = new Model("model.imgconv", null, cacheFolder, 0)) {
 *     ByteBuffer[] inputs = Model.buffers(model.inputs), outputs = Model.buffers(model.outputs);
 *     inputs[0].asFloatBuffer().put(pixels);
 *     model.run(inputs, outputs);
 *     outputs[0].asFloatBuffer().get(scores);
 *   }
 * </pre>
 *
 * Arrays are direct buffers in the native byte order, row-major, with the dtypes and shapes in {@link #inputs} and
 * {@link #outputs}. The whole buffer is used, whatever its position. An output whose entry in `outputs` is null is not
 * fetched. Several threads may use a model, but while {@link #close} is called no other call may be in progress; later
 * calls fail. A call that fails throws {@link Error}; a null argument where none is allowed throws {@link
 * NullPointerException}.
 */
public final class Model implements AutoCloseable {
  /**
   * The failure of a call. status: a value of imgconv_status in imgconv.h. A call that takes longer than
   * {@link Options#timeoutMs} fails with {@link #TIMEOUT}. After that the model can no longer be used: every call
   * throws this error at once, and {@link #close} does not wait.
   */
  public static final class Error extends RuntimeException {
    public static final int ARGUMENT = 1, FILE = 2, DEVICE = 3, UNFIT = 4, MEMORY = 5, BUILD = 6, RANGE = 7, BUSY = 8,
        UNSUPPORTED = 9, TIMEOUT = 10, CRASH = 11, WRONG = 12, CANCELLED = 13;

    public final int status;

    Error(int status, byte[] message) {
      super(new String(message, UTF_8));
      this.status = status;
    }
  }

  /** The phases of opening a model: imgconv_phase in imgconv.h. */
  public enum Phase { OPEN, BUILD, CHECK, TUNE, RUN }

  /** The priority of a model's work relative to the screen and other programs: imgconv_priority in imgconv.h. */
  public enum Priority { DEFAULT, HIGH, NORMAL, LOW }

  /** Receives the progress of opening a model, about ten times a second, on the thread that opens it. */
  public interface Progress {
    /**
     * Called when `done` of `total` steps of a phase are complete; OPEN has no count. To cancel the opening, return
     * false: the constructor then throws {@link Error#CANCELLED}. If this method throws, so does the constructor.
     */
    boolean goOn(Phase phase, long done, long total);
  }

  /**
   * Options for opening a model: imgconv_options in imgconv.h. A field that is not set has its default. check: false
   * means IMGCONV_CHECK_OFF.
   */
  public static final class Options {
    public String device, cacheFolder, shapes;
    public int frames, timeoutMs, tuneMs;
    public Priority priority = Priority.DEFAULT;
    public boolean check = true;
    public Progress progress;
  }

  /** An input or an output. dtype: numpy's name of it, such as "float32". bytes: the size of its array. */
  public static final class Tensor {
    public final String name, dtype;
    public final long[] shape;
    public final int bytes;

    Tensor(byte[] name, byte[] dtype, long[] shape, int bytes) {
      this.name = new String(name, UTF_8);
      this.dtype = new String(dtype, UTF_8);
      this.shape = shape;
      this.bytes = bytes;
    }
  }

  /**
   * A plane of a frame, like android.media.Image.Plane: a direct buffer with its strides in bytes; a stride of 0 means
   * no gaps. offset: the position of the first pixel. The whole buffer is used, whatever its position. The planes of a
   * frame may be in one {@link Memory} instead.
   */
  public static final class Plane {
    final ByteBuffer data;
    final Memory memory;
    final int offset, rowStride, pixelStride;

    public Plane(ByteBuffer data, int rowStride, int pixelStride) {
      this(data, rowStride, pixelStride, 0);
    }

    public Plane(ByteBuffer data, int rowStride, int pixelStride, int offset) {
      this(data, null, rowStride, pixelStride, offset);
    }

    public Plane(Memory memory, int rowStride, int pixelStride, int offset) {
      this(null, memory, rowStride, pixelStride, offset);
    }

    private Plane(ByteBuffer data, Memory memory, int rowStride, int pixelStride, int offset) {
      this.data = data;
      this.memory = memory;
      this.rowStride = rowStride;
      this.pixelStride = pixelStride;
      this.offset = offset;
    }
  }

  /**
   * A camera frame in its memory layout: imgconv_video_frame in imgconv.h. width, height: its size before rotation.
   *
   * <pre>
   *   Image.Plane[] p = image.getPlanes();
   *   Model.Plane[] planes = new Model.Plane[p.length];
   *   for (int i = 0; i &lt; p.length; ++i) {
   *     planes[i] = new Model.Plane(p[i].getBuffer(), p[i].getRowStride(), p[i].getPixelStride());
   *   }
   *   model.run(new Model.VideoFrame(image.getWidth(), image.getHeight(), planes).rotated(90), outputs);
   * </pre>
   */
  public static final class VideoFrame {
    private final Plane[] planes;
    private final int width, height;
    private int rotation, left, top, regionWidth, regionHeight;
    private boolean mirror;

    public VideoFrame(int width, int height, Plane... planes) {
      this.width = width;
      this.height = height;
      this.planes = planes.clone();
    }

    /** Rotates the frame clockwise by a multiple of 90 degrees. */
    public VideoFrame rotated(int degrees) {
      rotation = degrees;
      return this;
    }

    /** Swaps left and right after the rotation. */
    public VideoFrame mirrored() {
      mirror = true;
      return this;
    }

    /** Selects a region of the frame. After the rotation it must have the size that the model was compiled for. */
    public VideoFrame region(int left, int top, int width, int height) {
      this.left = left;
      this.top = top;
      this.regionWidth = width;
      this.regionHeight = height;
      return this;
    }

    private ByteBuffer[] buffers() {
      ByteBuffer[] made = new ByteBuffer[planes.length];
      for (int i = 0; i < made.length; ++i) made[i] = planes[i].data;
      return made;
    }

    /** Returns, for each plane, the handle of its memory and the memory's size in bytes; zeros without memory. */
    private long[] memories() {
      long[] made = new long[2 * planes.length];
      for (int i = 0; i < planes.length; ++i) {
        if (planes[i].memory == null) continue;
        made[2 * i] = planes[i].memory.open();
        made[2 * i + 1] = planes[i].memory.bytes;
      }
      return made;
    }

    /** In the order that jni.cpp reads. */
    private int[] numbers() {
      int[] made = new int[8 + 3 * planes.length];
      int[] first = {width, height, rotation, mirror ? 1 : 0, left, top, regionWidth, regionHeight};
      System.arraycopy(first, 0, made, 0, first.length);
      for (int i = 0; i < planes.length; ++i) {
        int[] own = {planes[i].offset, planes[i].rowStride, planes[i].pixelStride};
        System.arraycopy(own, 0, made, first.length + 3 * i, own.length);
      }
      return made;
    }
  }

  /** Imported memory, such as a camera buffer, which the device reads directly. Close it before the model. */
  public final class Memory implements AutoCloseable {
    private final long bytes;
    private final Object buffer; // an Android object, which must not be collected before this is closed
    private long handle; // a cl_mem; 0 once it is closed

    private Memory(int descriptor, Object buffer, long bytes) {
      this.bytes = bytes;
      this.buffer = buffer;
      handle = importMemory(descriptor, buffer, bytes);
    }

    @Override
    public void close() {
      if (handle != 0 && Model.this.handle != 0) releaseMemory(handle);
      handle = 0;
    }

    private long open() {
      if (handle == 0 || Model.this.handle == 0) {
        throw new Error(Error.ARGUMENT, bytes("the memory of a plane is closed"));
      }
      return handle;
    }
  }

  public final Tensor[] inputs, outputs;
  private long handle; // an imgconv_model *; 0 once it is closed

  static {
    System.loadLibrary("imgconv");
  }

  /**
   * Opens a file. device, cacheFolder: null for the defaults. frames: maximum in flight, 0 for 2. See imgconv_options.
   */
  public Model(String path, String device, String cacheFolder, int frames) {
    this(path, options(device, cacheFolder, frames));
  }

  public Model(String path, Options options) {
    this(open(bytes(path), null, options));
  }

  /** Opens a file in a direct buffer, such as a memory-mapped asset. The buffer is not needed afterwards. */
  public Model(ByteBuffer file, String device, String cacheFolder, int frames) {
    this(file, options(device, cacheFolder, frames));
  }

  public Model(ByteBuffer file, Options options) {
    this(open(null, file, options));
  }

  private Model(long handle) {
    this.handle = handle;
    try {
      inputs = tensors(true);
      outputs = tensors(false);
    } catch (Throwable problem) {
      close();
      throw problem;
    }
  }

  /** Returns the version of the library, such as "0.1.0". */
  public static String version() {
    return new String(versionText(), UTF_8);
  }

  /** Returns JSON that describes this phone's OpenCL devices, for `imgconv compile --target` on a computer. */
  public static String devices() {
    return new String(devicesJson(), UTF_8);
  }

  /** Allocates a buffer for each tensor. */
  public static ByteBuffer[] buffers(Tensor[] tensors) {
    ByteBuffer[] made = new ByteBuffer[tensors.length];
    for (int i = 0; i < made.length; ++i) {
      made[i] = ByteBuffer.allocateDirect(tensors[i].bytes).order(ByteOrder.nativeOrder());
    }
    return made;
  }

  /**
   * Returns memory for an input, which the device reads directly. Fill it and pass it to the next {@link #run}; it is
   * valid until that call. Throws {@link Error#UNSUPPORTED} if the device keeps the input in an image, as it does most
   * pictures.
   */
  public ByteBuffer mapInput(int number) {
    boolean isThere = number >= 0 && number < inputs.length;
    return map(number, isThere ? inputs[number].bytes : 0).order(ByteOrder.nativeOrder());
  }

  /** Runs the model once. Buffers must be direct and in the native byte order, like those of {@link #buffers}. */
  public void run(ByteBuffer[] inputs, ByteBuffer[] outputs) {
    checkBuffers(inputs, this.inputs, false);
    checkBuffers(outputs, this.outputs, true);
    runBuffers(inputs, outputs);
  }

  /** Runs a model whose only input is a picture. The frame is not copied on the host. */
  public void run(VideoFrame frame, ByteBuffer[] outputs) {
    checkBuffers(outputs, this.outputs, true);
    runFrame(frame.buffers(), frame.memories(), frame.numbers(), outputs);
  }

  /** Imports a Linux dma-buf. The descriptor may be closed afterwards. See imgconv_import_dma_buf in imgconv.h. */
  public Memory importDmaBuf(int descriptor, long bytes) {
    return new Memory(descriptor, null, bytes);
  }

  /**
   * Imports an android.hardware.HardwareBuffer (Android 8 or later): see imgconv_import_hardware_buffer in imgconv.h.
   */
  public Memory importHardwareBuffer(Object buffer, long bytes) {
    return new Memory(-1, Objects.requireNonNull(buffer, "buffer"), bytes);
  }

  /** Starts a run and returns the number of this frame, for {@link #await}. The inputs are copied. */
  public long submit(ByteBuffer[] inputs) {
    checkBuffers(inputs, this.inputs, false);
    return submitBuffers(inputs, false, 0);
  }

  /**
   * Starts a run of a model whose only input is a picture, and returns its number. Planes in buffers are copied. Do not
   * change planes in {@link Memory} before the frame was awaited.
   */
  public long submit(VideoFrame frame) {
    return submitFrame(frame.buffers(), frame.memories(), frame.numbers(), false, 0);
  }

  /** Starts a run with a tag that {@link #awaitNext} returns, such as the camera's timestamp. The inputs are copied. */
  public void submit(ByteBuffer[] inputs, long tag) {
    checkBuffers(inputs, this.inputs, false);
    submitBuffers(inputs, true, tag);
  }

  /** The same with a tag that {@link #awaitNext} returns. */
  public void submit(VideoFrame frame, long tag) {
    submitFrame(frame.buffers(), frame.memories(), frame.numbers(), true, tag);
  }

  /** Waits for the first frame in flight and fetches its outputs. Returns its tag, or its number if it has no tag. */
  public long awaitNext(ByteBuffer[] outputs) {
    checkBuffers(outputs, this.outputs, true);
    return awaitNextBuffers(outputs);
  }

  /** Waits for a frame and fetches its outputs. */
  public void await(long frame, ByteBuffer[] outputs) {
    checkBuffers(outputs, this.outputs, true);
    awaitBuffers(frame, outputs);
  }

  /** Returns JSON with the task, head and labels of the outputs; "" if the file has none. See imgconv_description. */
  public String description() {
    return new String(descriptionJson(), UTF_8);
  }

  /** Checks all launches and returns a report as JSON; sets the model's states to zero. See imgconv_check. */
  public String check() {
    return new String(checkJson(), UTF_8);
  }

  /** Sets the model's states, which persist from run to run, to zero. */
  public native void reset();

  @Override
  public native void close();

  /** Throws if a buffer does not have the native byte order, or if an output buffer is read-only. */
  private static void checkBuffers(ByteBuffer[] buffers, Tensor[] tensors, boolean written) {
    for (int i = 0; buffers != null && i < Math.min(buffers.length, tensors.length); ++i) {
      ByteBuffer buffer = buffers[i];
      if (buffer == null) continue;
      boolean ofBytes = tensors[i].dtype.endsWith("int8") || tensors[i].dtype.equals("bool");
      if (!ofBytes && buffer.order() != ByteOrder.nativeOrder()) {
        throw refusal(tensors[i], "is not in the phone's byte order: use buffer.order(ByteOrder.nativeOrder())");
      }
      if (written && buffer.isReadOnly()) throw refusal(tensors[i], "is read-only");
    }
  }

  private static Error refusal(Tensor tensor, String problem) {
    return new Error(Error.ARGUMENT, bytes("the buffer of tensor '" + tensor.name + "' " + problem));
  }

  private static byte[] bytes(String text) {
    return text == null ? null : text.getBytes(UTF_8);
  }

  private static Options options(String device, String cacheFolder, int frames) {
    Options made = new Options();
    made.device = device;
    made.cacheFolder = cacheFolder;
    made.frames = frames;
    return made;
  }

  /** Opens a model and returns its handle. */
  private static long open(byte[] path, ByteBuffer file, Options given) {
    // In the order that jni.cpp reads.
    int[] numbers = {
      given.frames, given.timeoutMs, given.tuneMs, given.priority.ordinal(), given.check ? 1 : 0
    };
    return open(
        path, file, bytes(given.device), bytes(given.cacheFolder), bytes(given.shapes), numbers, given.progress);
  }

  /** Called by jni.cpp. A phase that this class does not know is reported as its last phase. */
  private static boolean goesOn(Progress progress, int phase, long done, long total) {
    Phase[] known = Phase.values();
    return progress.goOn(known[Math.min(phase, known.length - 1)], done, total);
  }

  private static native byte[] versionText();

  private static native byte[] devicesJson();

  private static native long open(
      byte[] path, ByteBuffer file, byte[] device, byte[] cacheFolder, byte[] shapes, int[] numbers, Progress progress);

  private native byte[] descriptionJson();

  private native Tensor[] tensors(boolean ofInputs);

  private native void runBuffers(ByteBuffer[] inputs, ByteBuffer[] outputs);

  private native long submitBuffers(ByteBuffer[] inputs, boolean tagged, long tag);

  private native long awaitNextBuffers(ByteBuffer[] outputs);

  private native void runFrame(ByteBuffer[] planes, long[] memories, int[] numbers, ByteBuffer[] outputs);

  private native long submitFrame(ByteBuffer[] planes, long[] memories, int[] numbers, boolean tagged, long tag);

  private native long importMemory(int descriptor, Object buffer, long bytes);

  private native void releaseMemory(long memory);

  private native void awaitBuffers(long frame, ByteBuffer[] outputs);

  private native byte[] checkJson();

  private native ByteBuffer map(int number, int bytes);
}
