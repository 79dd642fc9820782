package imgconv.sample;

import imgconv.Model;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

/**
 * Finds objects in a camera's frames, with a file of `imgconv compile --picture nv12 WIDTHxHEIGHT --task detect --head ...`.
 * It takes nothing of Android, so that it runs on a desk too. Of one thread.
 */
public final class Detector implements AutoCloseable {
  /** An object, in pixels of the frame after its rotation. kind: the number of its class. */
  public static final class Box {
    public final float left, top, right, bottom, score;
    public final int kind;

    Box(ByteBuffer corners, int number, float score, int kind) {
      left = corners.getFloat(16 * number);
      top = corners.getFloat(16 * number + 4);
      right = corners.getFloat(16 * number + 8);
      bottom = corners.getFloat(16 * number + 12);
      this.score = score;
      this.kind = kind;
    }
  }

  /** The boxes of a frame, the best first, and the time of the run. */
  public static final class Result {
    public final List<Box> boxes;
    public final float milliseconds;

    Result(List<Box> boxes, float milliseconds) {
      this.boxes = Collections.unmodifiableList(boxes);
      this.milliseconds = milliseconds;
    }
  }

  /** The size that frames have after their rotation. */
  public final int width, height;

  private final Model model;
  private final ByteBuffer[] outputs;
  private final ByteBuffer boxes, scores, classes, count;

  /** Opens a compiled file in a direct buffer; it takes seconds where kernels are compiled. */
  public Detector(ByteBuffer file, Model.Options options) {
    model = new Model(file, options);
    try {
      long[] rows = model.inputs[0].shape; // of nv12: the rows of Y, then half as many of the colors
      if (model.inputs.length != 1 || rows.length != 2 || rows[0] % 3 != 0) {
        throw new IllegalArgumentException("the model takes no frames: compile it with --picture nv12");
      }
      width = (int) rows[1];
      height = (int) rows[0] / 3 * 2;
      outputs = Model.buffers(model.outputs);
      boxes = output("boxes");
      scores = output("scores");
      classes = output("classes");
      count = output("count");
    } catch (RuntimeException problem) {
      model.close();
      throw problem;
    }
  }

  private ByteBuffer output(String name) {
    for (int i = 0; i < outputs.length; ++i) {
      if (model.outputs[i].name.equals(name)) return outputs[i];
    }
    throw new IllegalArgumentException("the model gives no " + name + ": compile it with --task detect --head");
  }

  /** JSON with the labels of the classes, and more: see Model. */
  public String description() {
    return model.description();
  }

  /** The objects in a frame, whose memory is read where it is. */
  public Result detect(Model.VideoFrame frame) {
    long begin = System.nanoTime();
    model.run(frame, outputs);
    float milliseconds = (System.nanoTime() - begin) / 1e6f;
    List<Box> found = new ArrayList<>();
    for (int i = 0; i < count.getInt(0); ++i) {
      found.add(new Box(boxes, i, scores.getFloat(4 * i), classes.getInt(4 * i)));
    }
    return new Result(found, milliseconds);
  }

  /** The degrees clockwise that bring frames of a back camera upright. sensor: SENSOR_ORIENTATION; display: its rotation. */
  public static int rotation(int sensor, int display) {
    return (sensor - display + 360) % 360;
  }

  @Override
  public void close() {
    model.close();
  }
}
