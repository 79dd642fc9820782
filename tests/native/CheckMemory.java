import imgconv.Model;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;

/**
 * CheckMemory MODEL CONTENT DESCRIPTOR RESULT: runs an nv12 frame of 56x44 that is in the first bytes of a dma-buf, whose
 * content is in a file too, and writes the first output.
 */
public final class CheckMemory {
  public static void main(String[] given) throws IOException {
    byte[] content = Files.readAllBytes(Path.of(given[1]));
    ByteBuffer buffer = ByteBuffer.allocateDirect(content.length).put(content);
    int descriptor = Integer.parseInt(given[2]);
    Model.Memory left;
    try (Model model = new Model(given[0], null, null, 0)) {
      ByteBuffer[] outputs = Model.buffers(model.outputs), copied = Model.buffers(model.outputs), flown = Model.buffers(model.outputs);
      model.run(frame(new Model.Plane(buffer, 60, 0, 3), new Model.Plane(buffer, 64, 0, 3000)), copied);
      Model.VideoFrame closed;
      try (Model.Memory memory = model.importDmaBuf(descriptor, content.length)) {
        closed = frame(new Model.Plane(memory, 60, 0, 3), new Model.Plane(memory, 64, 0, 3000));
        model.run(closed, outputs);
        model.await(model.submit(closed), flown);
        refused(Model.Error.ARGUMENT, "several OpenCL buffers", () -> model.run(
            frame(new Model.Plane(memory, 60, 0, 3), new Model.Plane(buffer, 64, 0, 3000)), outputs));
      }
      require(outputs[0].equals(copied[0]) && outputs[0].equals(flown[0]));
      refused(Model.Error.ARGUMENT, "is closed", () -> model.run(closed, outputs));
      refused(Model.Error.ARGUMENT, "has 8192 bytes", () -> model.importDmaBuf(descriptor, content.length + 1));
      refused(Model.Error.UNSUPPORTED, "Android 8", () -> model.importHardwareBuffer(buffer, content.length));
      Files.write(Path.of(given[3]), bytes(outputs[0]));
      left = model.importDmaBuf(descriptor, content.length);
    }
    left.close();  // its model has released it already
  }

  private static Model.VideoFrame frame(Model.Plane... planes) {
    return new Model.VideoFrame(56, 44, planes).mirrored().region(4, 2, 48, 40);
  }

  private static byte[] bytes(ByteBuffer buffer) {
    byte[] made = new byte[buffer.remaining()];
    buffer.duplicate().get(made);
    return made;
  }

  private static void refused(int status, String text, Runnable work) {
    try {
      work.run();
    } catch (Model.Error error) {
      if (error.status != status || !error.getMessage().contains(text)) throw error;
      return;
    }
    throw new AssertionError(text);
  }

  private static void require(boolean condition) {
    if (!condition) throw new AssertionError();
  }
}
