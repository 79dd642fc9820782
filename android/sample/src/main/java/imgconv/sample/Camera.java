package imgconv.sample;

import android.graphics.ImageFormat;
import android.hardware.camera2.CameraAccessException;
import android.hardware.camera2.CameraCaptureSession;
import android.hardware.camera2.CameraCharacteristics;
import android.hardware.camera2.CameraDevice;
import android.hardware.camera2.CameraManager;
import android.hardware.camera2.CaptureRequest;
import android.media.Image;
import android.media.ImageReader;
import android.os.Handler;
import android.util.Size;
import android.view.Surface;
import imgconv.Model;
import java.util.Arrays;

/** The back camera, with frames of one size. */
final class Camera {
  /** Called on the thread of the stream's handler. */
  interface Listener {
    void onFrame(Model.VideoFrame frame);

    void onFailure(String message);
  }

  /** The size of a frame in memory, and the degrees clockwise that bring it upright. */
  final int width, height, rotation;

  private final CameraManager manager;
  private final String id;

  /** width, height: of a frame that is upright. display: the display's rotation in degrees. */
  Camera(CameraManager manager, int width, int height, int display) throws CameraAccessException {
    this.manager = manager;
    id = backCamera(manager);
    CameraCharacteristics about = manager.getCameraCharacteristics(id);
    rotation = Detector.rotation(about.get(CameraCharacteristics.SENSOR_ORIENTATION), display);
    boolean lies = rotation % 180 != 0;
    this.width = lies ? height : width;
    this.height = lies ? width : height;
    Size[] sizes = about.get(CameraCharacteristics.SCALER_STREAM_CONFIGURATION_MAP)
        .getOutputSizes(ImageFormat.YUV_420_888);
    if (!Arrays.asList(sizes).contains(new Size(this.width, this.height))) {
      throw new IllegalStateException("The model takes frames of " + this.width + "x" + this.height
          + (lies ? " on their side" : "") + "; the camera has " + Arrays.toString(sizes)
          + ". Compile the model with another --picture.");
    }
  }

  private static String backCamera(CameraManager manager) throws CameraAccessException {
    for (String id : manager.getCameraIdList()) {
      Integer facing = manager.getCameraCharacteristics(id).get(CameraCharacteristics.LENS_FACING);
      if (facing != null && facing == CameraCharacteristics.LENS_FACING_BACK) return id;
    }
    throw new IllegalStateException("There is no back camera.");
  }

  /** The frame of an image, without a copy: it is valid until the image is closed. */
  private Model.VideoFrame frameOf(Image image) {
    Image.Plane[] planes = image.getPlanes();
    Model.Plane[] given = new Model.Plane[planes.length];
    for (int i = 0; i < planes.length; ++i) {
      given[i] = new Model.Plane(planes[i].getBuffer(), planes[i].getRowStride(), planes[i].getPixelStride());
    }
    return new Model.VideoFrame(width, height, given).rotated(rotation);
  }

  /** Shows the camera's frames on the surface, and gives them to the listener, the latest when it is ready for one. */
  Stream start(Surface preview, Handler handler, Listener listener) throws CameraAccessException {
    return new Stream(preview, handler, listener);
  }

  /** A camera that runs. It is used on the handler's thread, so that no image is in use when it is closed. */
  final class Stream extends CameraDevice.StateCallback implements AutoCloseable {
    private final Surface preview;
    private final Handler handler;
    private final Listener listener;
    private final ImageReader reader;
    private CameraDevice device;
    private boolean closed;

    private Stream(Surface preview, Handler handler, Listener listener) throws CameraAccessException {
      this.preview = preview;
      this.handler = handler;
      this.listener = listener;
      reader = ImageReader.newInstance(width, height, ImageFormat.YUV_420_888, 2);
      reader.setOnImageAvailableListener(this::onImage, handler);
      manager.openCamera(id, this, handler);
    }

    private void onImage(ImageReader from) {
      if (closed) return;
      try (Image image = from.acquireLatestImage()) {
        if (image != null) listener.onFrame(frameOf(image));
      }
    }

    @Override
    public void onOpened(CameraDevice opened) {
      device = opened;
      if (closed) {
        device.close();
        return;
      }
      try {
        device.createCaptureSession(Arrays.asList(preview, reader.getSurface()), new Configured(), handler);
      } catch (CameraAccessException problem) {
        listener.onFailure(problem.getMessage());
      }
    }

    private final class Configured extends CameraCaptureSession.StateCallback {
      @Override
      public void onConfigured(CameraCaptureSession session) {
        if (closed) return;
        try {
          CaptureRequest.Builder request = device.createCaptureRequest(CameraDevice.TEMPLATE_PREVIEW);
          request.addTarget(preview);
          request.addTarget(reader.getSurface());
          session.setRepeatingRequest(request.build(), null, handler);
        } catch (CameraAccessException problem) {
          listener.onFailure(problem.getMessage());
        }
      }

      @Override
      public void onConfigureFailed(CameraCaptureSession session) {
        listener.onFailure("The camera does not give frames of this size beside the preview.");
      }
    }

    @Override
    public void onDisconnected(CameraDevice lost) {
      lost.close();
      listener.onFailure("Another app took the camera.");
    }

    @Override
    public void onError(CameraDevice failed, int error) {
      failed.close();
      listener.onFailure("The camera failed with error " + error + ".");
    }

    @Override
    public void close() {
      closed = true;
      if (device != null) device.close();
      reader.close();
    }
  }
}
