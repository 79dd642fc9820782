package imgconv;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Objects;

/**
 * A compiled model on an OpenCL device: imgconv.h for Java and Kotlin.
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
 * Arrays are direct buffers in the native byte order, row-major, of the dtypes and shapes of {@link #inputs} and
 * {@link #outputs}; all of a buffer is taken, whatever its position. A null in `outputs` leaves an output out. Threads
 * may share a model; only {@link #close} must be the last call. A call that fails throws {@link Error}, and {@link NullPointerException} for
 * a null that has no meaning.
 */
public final class Model implements AutoCloseable {
  /**
   * What failed. status: a number of imgconv_status in imgconv.h. After {@link #TIMEOUT}, a call that took longer than
   * {@link Options#timeoutMs}, the model is of no use, and everything throws this at once; {@link #close} does not wait.
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

  /** The work of opening a model: imgconv_phase of imgconv.h. */
  public enum Phase { OPEN, BUILD, CHECK, TUNE, RUN }

  /** The priority of a model's work, next to the screen's and other programs': imgconv_priority of imgconv.h. */
  public enum Priority { DEFAULT, HIGH, NORMAL, LOW }

  /** How far the opening of a model is; called about ten times a second by the thread that opens it. */
  public interface Progress {
    /**
     * `done` of `total` of a phase are over; of OPEN nothing is counted. If it gives false or throws, opening ends: with
     * {@link Error#CANCELLED}, or what was thrown.
     */
    boolean goOn(Phase phase, long done, long total);
  }

  /**
   * How a model is opened: imgconv_options of imgconv.h, where a field that is not set is the default. check: false for
   * IMGCONV_CHECK_OFF.
   */
  public static final class Options {
    public String device, cacheFolder, shapes;
    public int frames, timeoutMs, tuneMs;
    public Priority priority = Priority.DEFAULT;
    public boolean check = true;
    public Progress progress;
  }

  /** An input or an output. dtype: numpy's name, as "float32". bytes: of its array. */
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
   * A plane of a frame, as android.media.Image.Plane has it: a direct buffer, and its strides in bytes; 0 is without
   * gaps. offset: of the first pixel. All of the buffer counts, whatever its position. Planes of one frame may be in one
   * {@link Memory} instead.
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
   * A frame of a camera as it is in memory: imgconv_video_frame of imgconv.h. width and height: as it is in memory.
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

    /** Turns it clockwise, by a multiple of 90 degrees. */
    public VideoFrame rotated(int degrees) {
      rotation = degrees;
      return this;
    }

    /** Exchanges left and right after the rotation. */
    public VideoFrame mirrored() {
      mirror = true;
      return this;
    }

    /** Shows a part of it. After the rotation it has the size that the model takes. */
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

    /** Of each plane the handle of its memory, or 0, and the bytes of that. */
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

  /** Memory that belongs to others, such as a camera, and that the device reads where it is. Close it before the model. */
  public final class Memory implements AutoCloseable {
    private final long bytes;
    private final Object buffer; // of Android, which must not be collected before this is closed
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
      if (handle == 0 || Model.this.handle == 0) throw new Error(Error.ARGUMENT, bytes("the memory of a plane is closed"));
      return handle;
    }
  }

  public final Tensor[] inputs, outputs;
  private long handle; // an imgconv_model *; 0 once it is closed

  static {
    System.loadLibrary("imgconv");
  }

  /** device, cacheFolder: null for the defaults; frames: the most in flight, 0 for 2. See imgconv_options. */
  public Model(String path, String device, String cacheFolder, int frames) {
    this(path, options(device, cacheFolder, frames));
  }

  public Model(String path, Options options) {
    this(open(bytes(path), null, options));
  }

  /** The same for a file in a direct buffer, such as a mapped asset; it is not needed any more afterwards. */
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

  /** The version of the library, such as "0.1.0". */
  public static String version() {
    return new String(versionText(), UTF_8);
  }

  /** JSON of all OpenCL devices of this phone, for `imgconv compile --target` on the desk. */
  public static String devices() {
    return new String(devicesJson(), UTF_8);
  }

  /** A buffer for each tensor. */
  public static ByteBuffer[] buffers(Tensor[] tensors) {
    ByteBuffer[] made = new ByteBuffer[tensors.length];
    for (int i = 0; i < made.length; ++i) {
      made[i] = ByteBuffer.allocateDirect(tensors[i].bytes).order(ByteOrder.nativeOrder());
    }
    return made;
  }

  /**
   * Memory of an input that the device reads, to be filled for the next {@link #run}, until which it is valid. Most pictures
   * are kept in images, which cannot be mapped: {@link Error#UNSUPPORTED}.
   */
  public ByteBuffer mapInput(int number) {
    boolean isThere = number >= 0 && number < inputs.length;
    return map(number, isThere ? inputs[number].bytes : 0).order(ByteOrder.nativeOrder());
  }

  /** One run. Buffers are direct and in the native byte order, as {@link #buffers} makes them. */
  public void run(ByteBuffer[] inputs, ByteBuffer[] outputs) {
    checkBuffers(inputs, this.inputs, false);
    checkBuffers(outputs, this.outputs, true);
    runBuffers(inputs, outputs);
  }

  /** One run of a model whose only input is a picture. The frame's memory is read where it is. */
  public void run(VideoFrame frame, ByteBuffer[] outputs) {
    checkBuffers(outputs, this.outputs, true);
    runFrame(frame.buffers(), frame.memories(), frame.numbers(), outputs);
  }

  /** A dma-buf of Linux by its descriptor, which may be closed afterwards: see imgconv_import_dma_buf of imgconv.h. */
  public Memory importDmaBuf(int descriptor, long bytes) {
    return new Memory(descriptor, null, bytes);
  }

  /** An android.hardware.HardwareBuffer, from Android 8 on: see imgconv_import_hardware_buffer of imgconv.h. */
  public Memory importHardwareBuffer(Object buffer, long bytes) {
    return new Memory(-1, Objects.requireNonNull(buffer, "buffer"), bytes);
  }

  /** Starts a frame; the inputs are copied. Gives its number, for {@link #await}. */
  public long submit(ByteBuffer[] inputs) {
    checkBuffers(inputs, this.inputs, false);
    return submitBuffers(inputs, false, 0);
  }

  /** The same for a model whose only input is a picture; the frame's memory is copied. */
  public long submit(VideoFrame frame) {
    return submitFrame(frame.buffers(), frame.memories(), frame.numbers(), false, 0);
  }

  /** The same for a frame that carries a number of the caller's, such as a camera's timestamp, for {@link #awaitNext}. */
  public void submit(ByteBuffer[] inputs, long tag) {
    checkBuffers(inputs, this.inputs, false);
    submitBuffers(inputs, true, tag);
  }

  /** The same for a model whose only input is a picture. */
  public void submit(VideoFrame frame, long tag) {
    submitFrame(frame.buffers(), frame.memories(), frame.numbers(), true, tag);
  }

  /** Waits for the first frame in flight and fetches its outputs. Gives its tag, or its number if it has none. */
  public long awaitNext(ByteBuffer[] outputs) {
    checkBuffers(outputs, this.outputs, true);
    return awaitNextBuffers(outputs);
  }

  /** Waits for a frame and fetches its outputs. */
  public void await(long frame, ByteBuffer[] outputs) {
    checkBuffers(outputs, this.outputs, true);
    awaitBuffers(frame, outputs);
  }

  /** What the outputs mean, as JSON with task, head and labels: see imgconv_description. "" if the file says nothing. */
  public String description() {
    return new String(descriptionJson(), UTF_8);
  }

  /** JSON of which launches the driver computes rightly: see imgconv_check. States are cleared. */
  public String check() {
    return new String(checkJson(), UTF_8);
  }

  /** Clears what the model keeps from run to run. */
  public native void reset();

  @Override
  public native void close();

  /** Throws for a buffer in another byte order than the phone's, and for one that is written but read-only. */
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

  /** The handle of a model. */
  private static long open(byte[] path, ByteBuffer file, Options given) {
    // In the order that jni.cpp reads.
    int[] numbers = {
      given.frames, given.timeoutMs, given.tuneMs, given.priority.ordinal(), given.check ? 1 : 0
    };
    return open(
        path, file, bytes(given.device), bytes(given.cacheFolder), bytes(given.shapes), numbers, given.progress);
  }

  /** For jni.cpp. A phase that is newer than this class is the last one of it. */
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
