package imgconv.sample;

import android.content.Context;
import android.graphics.Canvas;
import android.graphics.Color;
import android.graphics.Paint;
import android.util.AttributeSet;
import android.view.View;

/** Draws boxes, their labels and the time of a run over the camera's preview. */
public final class BoxesView extends View {
  private final Paint line = new Paint(Paint.ANTI_ALIAS_FLAG), text = new Paint(Paint.ANTI_ALIAS_FLAG);
  private int frameWidth = 1;
  private String[] labels = {};
  private volatile Detector.Result shown;

  public BoxesView(Context context, AttributeSet attributes) {
    super(context, attributes);
    float pixel = getResources().getDisplayMetrics().density;
    line.setStyle(Paint.Style.STROKE);
    line.setStrokeWidth(2 * pixel);
    line.setColor(Color.GREEN);
    text.setTextSize(14 * pixel);
    text.setColor(Color.GREEN);
    text.setShadowLayer(2 * pixel, 0, 0, Color.BLACK);
  }

  /** frameWidth: of upright frames, which fill the view; labels: by the number of the class. */
  void describe(int frameWidth, String[] labels) {
    this.frameWidth = frameWidth;
    this.labels = labels;
  }

  /** Any thread may call it. */
  void show(Detector.Result result) {
    shown = result;
    postInvalidate();
  }

  @Override
  protected void onDraw(Canvas canvas) {
    Detector.Result result = shown;
    if (result == null) return;
    float scale = (float) getWidth() / frameWidth;
    for (Detector.Box box : result.boxes) {
      canvas.drawRect(box.left * scale, box.top * scale, box.right * scale, box.bottom * scale, line);
      String label = box.kind < labels.length ? labels[box.kind] : String.valueOf(box.kind);
      String said = getResources().getString(R.string.box, label, 100 * box.score);
      canvas.drawText(said, box.left * scale, box.top * scale + text.getTextSize(), text);
    }
    canvas.drawText(getResources().getString(R.string.time, result.milliseconds), 0, getHeight() - text.descent(), text);
  }
}
