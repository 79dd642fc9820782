import imgconv.Model;
import imgconv.sample.Detector;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.util.Locale;

/**
 * CheckDetector MODEL DEVICE FRAMES WIDTH HEIGHT ROW_STRIDE [REFUSED]...: the boxes that the app finds in NV12 frames, whose
 * planes are as Android gives them, and the reasons why it refuses other models.
 */
public final class CheckDetector {
  public static void main(String[] given) throws IOException {
    require(Detector.rotation(90, 0) == 90 && Detector.rotation(270, 0) == 270);
    require(Detector.rotation(0, 90) == 270 && Detector.rotation(90, 270) == 180);
    int width = Integer.parseInt(given[3]), height = Integer.parseInt(given[4]), pitch = Integer.parseInt(given[5]);
    int luma = pitch * height, bytes = luma * 3 / 2;
    Model.Options options = new Model.Options();
    options.device = given[1];
    try (Detector detector = new Detector(mapped(given[0]), options)) {
      require(detector.width == height && detector.height == width && detector.description().contains("\"labels\""));
      ByteBuffer frames = mapped(given[2]);
      for (int n = 0; (n + 1) * bytes <= frames.capacity(); ++n) {
        ByteBuffer y = part(frames, n * bytes, luma), u = part(frames, n * bytes + luma, luma / 2 - 1);
        ByteBuffer v = part(frames, n * bytes + luma + 1, luma / 2 - 1);
        Model.Plane[] planes = {new Model.Plane(y, pitch, 1), new Model.Plane(u, pitch, 2), new Model.Plane(v, pitch, 2)};
        Detector.Result result = detector.detect(
            new Model.VideoFrame(width, height, planes).rotated(Detector.rotation(90, 0)));
        require(result.milliseconds > 0);
        for (Detector.Box box : result.boxes) {
          System.out.printf(Locale.ROOT, "%d %d %.4f %.2f %.2f %.2f %.2f%n", n, box.kind, box.score, box.left, box.top,
              box.right, box.bottom);
        }
      }
    }
    for (int i = 6; i < given.length; ++i) {
      try (Detector detector = new Detector(mapped(given[i]), options)) {
        throw new AssertionError(given[i]);
      } catch (IllegalArgumentException error) {
        System.err.println(error.getMessage());
      }
    }
  }

  private static ByteBuffer mapped(String path) throws IOException {
    try (FileChannel file = FileChannel.open(Path.of(path))) {
      return file.map(FileChannel.MapMode.READ_ONLY, 0, file.size());
    }
  }

  private static ByteBuffer part(ByteBuffer buffer, int offset, int bytes) {
    return buffer.duplicate().position(offset).limit(offset + bytes).slice();
  }

  private static void require(boolean condition) {
    if (!condition) throw new AssertionError();
  }
}
