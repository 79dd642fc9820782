import imgconv.Model;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;

/**
 * Prints the objects in a camera's NV12 frames, as camera.cpp does: Camera MODEL FRAMES WIDTH HEIGHT ROW_STRIDE [DEVICE].
 * On Android the planes are those of android.media.Image instead.
 */
public final class Camera {
  private static final List<String> NAMES = Arrays.asList("boxes", "scores", "classes", "count");

  public static void main(String[] given) throws IOException {
    if (given.length < 5) {
      System.err.println("Camera MODEL FRAMES WIDTH HEIGHT ROW_STRIDE [DEVICE]");
      System.exit(1);
    }
    int width = Integer.parseInt(given[2]), height = Integer.parseInt(given[3]), stride = Integer.parseInt(given[4]);
    int luma = stride * height, bytes = luma * 3 / 2;
    try (Model model = new Model(given[0], given.length > 5 ? given[5] : null, null, 0);
        FileChannel file = FileChannel.open(Path.of(given[1]))) {
      if (!Arrays.stream(model.outputs).map(output -> output.name).toList().equals(NAMES)) {
        System.err.println("the model has no boxes: compile it with --task detect --head");
        System.exit(1);
      }
      ByteBuffer[] outputs = Model.buffers(model.outputs);
      for (int n = 0; (n + 1L) * bytes <= file.size(); ++n) {
        ByteBuffer yuv = file.map(FileChannel.MapMode.READ_ONLY, (long) n * bytes, bytes);
        Model.Plane y = new Model.Plane(yuv, stride, 1), uv = new Model.Plane(yuv, stride, 2, luma);
        model.run(new Model.VideoFrame(width, height, y, uv).rotated(90), outputs);
        for (int i = 0; i < outputs[3].getInt(0); ++i) print(n, i, outputs);
      }
    }
  }

  private static void print(int frame, int i, ByteBuffer[] outputs) {
    float[] box = new float[4]; // left, top, right, bottom
    outputs[0].asFloatBuffer().position(4 * i).get(box);
    System.out.printf(Locale.ROOT, "%d %d %.4f %.2f %.2f %.2f %.2f%n", frame, outputs[2].getInt(4 * i),
        outputs[1].getFloat(4 * i), box[0], box[1], box[2], box[3]);
  }
}
