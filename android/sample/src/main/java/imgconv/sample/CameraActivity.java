package imgconv.sample;

import android.Manifest;
import android.app.Activity;
import android.content.Context;
import android.content.pm.PackageManager;
import android.content.res.AssetFileDescriptor;
import android.hardware.camera2.CameraAccessException;
import android.hardware.camera2.CameraManager;
import android.os.Bundle;
import android.os.Handler;
import android.os.HandlerThread;
import android.view.SurfaceHolder;
import android.view.SurfaceView;
import android.view.View;
import android.widget.ProgressBar;
import android.widget.TextView;
import imgconv.Model;
import java.io.FileInputStream;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import org.json.JSONArray;
import org.json.JSONException;
import org.json.JSONObject;

/** The camera's preview with the boxes that the model of assets/model.imgconv finds. */
public final class CameraActivity extends Activity implements SurfaceHolder.Callback, Camera.Listener {
  private static final int[] DEGREES = {0, 90, 180, 270}; // of Surface.ROTATION_0 and so on

  private final HandlerThread thread = new HandlerThread("imgconv");
  private Handler worker; // the detector and the stream are used on its thread only
  private Detector detector;
  private Camera camera;
  private Camera.Stream stream;
  private BoxesView boxes;

  @Override
  protected void onCreate(Bundle state) {
    super.onCreate(state);
    setContentView(R.layout.camera);
    boxes = (BoxesView) findViewById(R.id.boxes);
    thread.start();
    worker = new Handler(thread.getLooper());
    if (checkSelfPermission(Manifest.permission.CAMERA) == PackageManager.PERMISSION_GRANTED) {
      worker.post(this::open);
    } else {
      requestPermissions(new String[] {Manifest.permission.CAMERA}, 0);
    }
  }

  @Override
  public void onRequestPermissionsResult(int request, String[] permissions, int[] results) {
    if (results.length == 1 && results[0] == PackageManager.PERMISSION_GRANTED) {
      worker.post(this::open);
    } else {
      onFailure(getString(R.string.no_permission));
    }
  }

  /** Opens the model, on the worker: it compiles kernels when the app starts first. */
  private void open() {
    try (AssetFileDescriptor asset = getAssets().openFd("model.imgconv"); FileInputStream in = asset.createInputStream()) {
      ByteBuffer file = in.getChannel().map(FileChannel.MapMode.READ_ONLY, asset.getStartOffset(), asset.getLength());
      Model.Options options = new Model.Options();
      options.cacheFolder = getCodeCacheDir().getPath();
      options.progress = this::progress;
      detector = new Detector(file, options);
      boxes.describe(detector.width, labels(detector.description()));
      runOnUiThread(this::show);
    } catch (FileNotFoundException problem) {
      onFailure(getString(R.string.no_model));
    } catch (IOException | JSONException | RuntimeException problem) {
      onFailure(problem.getMessage());
    }
  }

  /** Ends the opening when nobody waits for it any more. */
  private boolean progress(Model.Phase phase, long done, long total) {
    runOnUiThread(() -> {
      ProgressBar bar = (ProgressBar) findViewById(R.id.progress);
      bar.setIndeterminate(total == 0);
      bar.setMax((int) total);
      bar.setProgress((int) done);
      int said = phase == Model.Phase.BUILD ? R.string.compiling : R.string.opening;
      ((TextView) findViewById(R.id.message)).setText(said);
    });
    return !isDestroyed();
  }

  private static String[] labels(String description) throws JSONException {
    JSONArray listed = description.isEmpty() ? null : new JSONObject(description).optJSONArray("labels");
    String[] labels = new String[listed == null ? 0 : listed.length()];
    for (int i = 0; i < labels.length; ++i) labels[i] = listed.getString(i);
    return labels;
  }

  /** Shows the preview, whose surface starts the camera. */
  private void show() {
    if (isDestroyed()) return;
    try {
      CameraManager manager = (CameraManager) getSystemService(Context.CAMERA_SERVICE);
      int display = DEGREES[getWindowManager().getDefaultDisplay().getRotation()];
      camera = new Camera(manager, detector.width, detector.height, display);
    } catch (CameraAccessException | RuntimeException problem) {
      onFailure(problem.getMessage());
      return;
    }
    View screen = findViewById(R.id.screen);
    int across = getResources().getDisplayMetrics().widthPixels;
    screen.getLayoutParams().height = across * detector.height / detector.width;
    screen.requestLayout();
    SurfaceView preview = (SurfaceView) findViewById(R.id.preview);
    preview.getHolder().setFixedSize(camera.width, camera.height);
    preview.getHolder().addCallback(this);
    preview.setVisibility(View.VISIBLE);
  }

  @Override
  public void surfaceCreated(SurfaceHolder holder) {
    findViewById(R.id.waiting).setVisibility(View.GONE);
    worker.post(() -> {
      try {
        stream = camera.start(holder.getSurface(), worker, this);
      } catch (CameraAccessException | RuntimeException problem) {
        onFailure(problem.getMessage());
      }
    });
  }

  @Override
  public void surfaceChanged(SurfaceHolder holder, int format, int width, int height) {}

  /** Waits for the camera's end, because the surface is gone afterwards. */
  @Override
  public void surfaceDestroyed(SurfaceHolder holder) {
    FutureTask<Void> stopped = new FutureTask<>(this::stop, null);
    try {
      if (worker.post(stopped)) stopped.get();
    } catch (ExecutionException | InterruptedException problem) {
      throw new IllegalStateException(problem);
    }
  }

  private void stop() {
    if (stream != null) stream.close();
    stream = null;
  }

  @Override
  public void onFrame(Model.VideoFrame frame) {
    try {
      boxes.show(detector.detect(frame));
    } catch (Model.Error problem) {
      stop();
      onFailure(problem.getMessage());
    }
  }

  /** Shows a message in place of the progress. Any thread may call it. */
  @Override
  public void onFailure(String message) {
    runOnUiThread(() -> {
      ((TextView) findViewById(R.id.message)).setText(message);
      findViewById(R.id.progress).setVisibility(View.GONE);
      findViewById(R.id.waiting).setVisibility(View.VISIBLE);
    });
  }

  @Override
  protected void onDestroy() {
    super.onDestroy();
    worker.post(() -> {
      stop();
      if (detector != null) detector.close();
    });
    thread.quitSafely();
  }
}
