import imgconv.Model;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;

/**
 * CheckFrames MODEL DEVICE RESULT WIDTH HEIGHT LEFT TOP REGION_WIDTH REGION_HEIGHT [PLANE OFFSET ROW_STRIDE PIXEL_STRIDE]...:
 * runs a frame, turned by 90 degrees and mirrored, and writes the first output.
 */
public final class CheckFrames {
  public static void main(String[] given) throws IOException {
    int[] n = new int[given.length];
    for (int i = 3; i < n.length; ++i) n[i] = i >= 9 && (i - 9) % 4 == 0 ? 0 : Integer.parseInt(given[i]);
    Model.Plane[] planes = new Model.Plane[(given.length - 9) / 4];
    for (int i = 0; i < planes.length; ++i) {
      byte[] content = Files.readAllBytes(Path.of(given[9 + 4 * i]));
      ByteBuffer buffer = ByteBuffer.allocateDirect(content.length).put(content);  // at its end, and big-endian
      planes[i] = new Model.Plane(buffer.asReadOnlyBuffer(), n[11 + 4 * i], n[12 + 4 * i], n[10 + 4 * i]);
    }
    try (Model model = new Model(given[0], given[1], null, 0)) {
      Model.VideoFrame frame = new Model.VideoFrame(n[3], n[4], planes).rotated(90).mirrored().region(n[5], n[6], n[7], n[8]);
      ByteBuffer[] outputs = Model.buffers(model.outputs), again = Model.buffers(model.outputs);
      model.run(frame, outputs);
      model.await(model.submit(frame), again);
      require(outputs[0].equals(again[0]));
      byte[] result = new byte[outputs[0].remaining()];
      outputs[0].get(result);
      Files.write(Path.of(given[2]), result);
      refused("multiple of 90", () -> model.run(new Model.VideoFrame(n[3], n[4], planes).rotated(45), outputs));
      refused("negative", () -> model.submit(new Model.VideoFrame(-1, n[4], planes)));
      refused("not inside", () -> model.run(new Model.VideoFrame(n[3], n[4], planes).region(n[3], 0, 9, 9), outputs));
      Model.Plane[] four = {planes[0], planes[0], planes[0], planes[0]};
      refused("at most three planes", () -> model.run(new Model.VideoFrame(n[3], n[4], four), outputs));
      Model.Plane small = new Model.Plane(ByteBuffer.allocateDirect(9), n[11], n[12]), none = new Model.Plane(null, 0, 0);
      Model.Plane heap = new Model.Plane(ByteBuffer.allocate(9), n[11], n[12]);
      Model.VideoFrame short_ = framed(n, planes, small), missing = framed(n, planes, none), onHeap = framed(n, planes, heap);
      refused("plane 0 has 9 bytes", () -> model.run(short_, outputs));
      refused("plane 0 has no data", () -> model.run(missing, outputs));
      refused("not direct", () -> model.run(onHeap, outputs));
    }
  }

  /** The frame with another first plane. */
  private static Model.VideoFrame framed(int[] n, Model.Plane[] planes, Model.Plane first) {
    Model.Plane[] own = planes.clone();
    own[0] = first;
    return new Model.VideoFrame(n[3], n[4], own).rotated(90).region(n[5], n[6], n[7], n[8]);
  }

  private static void refused(String text, Runnable work) {
    try {
      work.run();
    } catch (Model.Error error) {
      if (error.status != Model.Error.ARGUMENT || !error.getMessage().contains(text)) throw error;
      return;
    }
    throw new AssertionError(text);
  }

  private static void require(boolean condition) {
    if (!condition) throw new AssertionError();
  }
}
