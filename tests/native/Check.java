import imgconv.Model;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;

/**
 * Check MODEL DEVICE INPUT OUTPUT DEVICES: reads raw content of the model's one input, and writes that of its first
 * output, which it makes in many ways, and the JSON of the devices.
 */
public final class Check {
  public static void main(String[] given) throws IOException {
    byte[] input = Files.readAllBytes(Path.of(given[2]));
    try (Model model = new Model(given[0], given[1], null, 3);
        Model mapped = new Model(file(given[0]), options(given[1], (phase, done, total) -> done <= total))) {
      ByteBuffer[] inputs = Model.buffers(model.inputs);
      inputs[0].put(input).rewind();
      byte[] result = content(outputs -> model.run(inputs, outputs), model);
      long first = model.submit(inputs), second = model.submit(inputs);
      require(java.util.Arrays.equals(result, content(outputs -> model.await(first, outputs), model)));
      require(java.util.Arrays.equals(result, content(outputs -> model.await(second, outputs), model)));
      model.submit(inputs, -1);
      model.submit(inputs, Long.MAX_VALUE);
      require(java.util.Arrays.equals(result, content(outputs -> require(model.awaitNext(outputs) == -1), model)));
      require(java.util.Arrays.equals(result, content(outputs -> require(model.awaitNext(outputs) == Long.MAX_VALUE), model)));
      require(java.util.Arrays.equals(result, content(outputs -> model.await(model.submit(inputs), outputs), model)));
      ByteBuffer memory = mapped.mapInput(0);
      memory.put(input).rewind();
      require(java.util.Arrays.equals(result, content(outputs -> mapped.run(new ByteBuffer[] {memory}, outputs), mapped)));
      require(model.description().equals("{\"head\": \"scores\", \"labels\": [\"\uD83E\uDD89\"]}"));
      model.reset();
      require(refused(1, () -> mapped.mapInput(9)).equals("no input 9"));
      refused(1, () -> model.await(99, Model.buffers(model.outputs)));
      refused(1, () -> model.run(new ByteBuffer[0], Model.buffers(model.outputs)));
      refused(1, () -> model.run(new ByteBuffer[] {ByteBuffer.allocate(input.length)}, Model.buffers(model.outputs)));
      ByteBuffer[] other = {ByteBuffer.allocateDirect(input.length)};  // big-endian, as Java makes them
      require(refused(1, () -> model.run(other, Model.buffers(model.outputs))).contains("byte order"));
      require(refused(1, () -> model.submit(other)).contains("byte order"));
      ByteBuffer[] fixed = Model.buffers(model.outputs);
      fixed[0] = fixed[0].asReadOnlyBuffer().order(java.nio.ByteOrder.nativeOrder());
      require(refused(1, () -> model.run(inputs, fixed)).contains("read-only"));
      require(refused(2, () -> new Model("/no/such/\uD83D\uDE00", null, null, 0)).contains("/no/such/\uD83D\uDE00"));
      require(refused(1, () -> new Model(ByteBuffer.allocate(64), null, null, 0)).contains("not direct"));
      require(refused(13, () -> new Model(given[0], options(given[1], (phase, done, total) -> false))).contains("cancelled"));
      try {
        new Model(given[0], options(given[1], (phase, done, total) -> { throw new IllegalStateException(phase.name()); })).close();
        require(false);
      } catch (IllegalStateException error) {
        Model.Phase.valueOf(error.getMessage());  // throws for any other text; the phase depends on timing
      }
      require(Model.version().matches("[0-9]+[.][0-9]+[.][0-9]+"));
      Files.write(Path.of(given[3]), result);
      require(model.check().contains("\"right\"") && !model.check().contains("\"wrong\""));
      closed(given[0], given[1], inputs);
      Files.writeString(Path.of(given[4]), Model.devices());
      Model.Tensor tensor = model.inputs[0];
      require(tensor.name.equals("x\uD83D\uDE00"));
      System.out.println(tensor.name.length() + " " + tensor.dtype + " " + java.util.Arrays.toString(tensor.shape));
    }
  }

  /** Closing twice is allowed; everything else says that the model is closed. */
  private static void closed(String path, String device, ByteBuffer[] inputs) {
    Model model = new Model(path, device, null, 0);
    model.close();
    model.close();
    ByteBuffer[] outputs = Model.buffers(model.outputs);
    Runnable[] uses = {
      () -> model.run(inputs, outputs), () -> model.submit(inputs), () -> model.await(1, outputs), model::reset,
      () -> model.mapInput(0)
    };
    for (Runnable use : uses) require(refused(1, use).equals("the model is closed"));
  }

  private static Model.Options options(String device, Model.Progress progress) {
    Model.Options options = new Model.Options();
    options.device = device;
    options.tuneMs = 1000;
    options.check = false;
    options.priority = Model.Priority.LOW;
    options.timeoutMs = 300_000;
    options.progress = progress;
    return options;
  }

  private interface Work {
    void into(ByteBuffer[] outputs);
  }

  private static ByteBuffer file(String path) throws IOException {
    try (FileChannel channel = FileChannel.open(Path.of(path))) {
      return channel.map(FileChannel.MapMode.READ_ONLY, 0, channel.size());
    }
  }

  /** The first output; the others are left out. */
  private static byte[] content(Work work, Model model) {
    ByteBuffer[] outputs = new ByteBuffer[model.outputs.length];
    outputs[0] = Model.buffers(model.outputs)[0];
    work.into(outputs);
    byte[] made = new byte[outputs[0].remaining()];
    outputs[0].get(made);
    return made;
  }

  /** The error's message. */
  private static String refused(int status, Runnable work) {
    try {
      work.run();
    } catch (Model.Error error) {
      require(error.status == status && !error.getMessage().isEmpty());
      return error.getMessage();
    }
    throw new AssertionError();
  }

  private static void require(boolean condition) {
    if (!condition) throw new AssertionError();
  }
}
