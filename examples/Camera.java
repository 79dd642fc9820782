import imgconv.Model;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.FloatBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Locale;

/**
 * Finds objects in a camera's NV12 frames, as camera.cpp does: Camera MODEL FRAMES WIDTH HEIGHT ROW_STRIDE [DEVICE].
 * On Android the planes are those of android.media.Image instead.
 */
public final class Camera {
  private record Box(float left, float top, float right, float bottom, float score, int kind) {
    boolean covers(Box other) {
      float width = Math.max(Math.min(right, other.right) - Math.max(left, other.left), 0);
      float both = Math.max(Math.min(bottom, other.bottom) - Math.max(top, other.top), 0) * width;
      return kind == other.kind && both > 0.45f * (area() + other.area() - both);
    }

    float area() {
      return (right - left) * (bottom - top);
    }
  }

  public static void main(String[] given) throws IOException {
    int width = Integer.parseInt(given[2]), height = Integer.parseInt(given[3]), pitch = Integer.parseInt(given[4]);
    int luma = pitch * height, bytes = luma * 3 / 2;
    try (Model model = new Model(given[0], given.length > 5 ? given[5] : null, null, 0);
        FileChannel file = FileChannel.open(Path.of(given[1]))) {
      ByteBuffer[] outputs = Model.buffers(model.outputs);
      for (int n = 0; (n + 1L) * bytes <= file.size(); ++n) {
        ByteBuffer yuv = file.map(FileChannel.MapMode.READ_ONLY, (long) n * bytes, bytes);
        Model.Plane y = new Model.Plane(yuv, pitch, 1), uv = new Model.Plane(yuv, pitch, 2, luma);
        model.run(new Model.VideoFrame(width, height, y, uv).rotated(90), outputs);
        for (Box box : decode(outputs[0].asFloatBuffer(), Math.max(width, height) / 416f)) {
          System.out.printf(Locale.ROOT, "%d %d %.4f %.2f %.2f %.2f %.2f%n", n, box.kind, box.score, box.left, box.top,
              box.right, box.bottom);
        }
      }
    }
  }

  /** YOLOX: 85 numbers for each cell of three grids. scale: pixels of the picture to one of the model's 416 x 416. */
  private static List<Box> decode(FloatBuffer rows, float scale) {
    List<Box> found = new ArrayList<>(), kept = new ArrayList<>();
    float[] row = new float[85];
    for (int stride = 8; stride <= 32; stride *= 2) {
      int side = 416 / stride;
      float step = stride * scale;
      for (int cell = 0; cell < side * side; ++cell) {
        rows.get(row);
        int best = 5;
        for (int i = 6; i < row.length; ++i) if (row[i] > row[best]) best = i;
        float score = row[4] * row[best];
        if (score <= 0.5f) continue;
        float x = (row[0] + cell % side) * step, y = (row[1] + cell / side) * step;
        float across = (float) Math.exp(row[2]) * step / 2, down = (float) Math.exp(row[3]) * step / 2;
        found.add(new Box(x - across, y - down, x + across, y + down, score, best - 5));
      }
    }
    found.sort(Comparator.comparing(Box::score).reversed());
    for (Box each : found) if (kept.stream().noneMatch(box -> box.covers(each))) kept.add(each);
    return kept;
  }
}
