import imgconv.Model
import imgconv.sample.SuspendingModel
import java.io.File
import java.nio.ByteBuffer
import java.util.concurrent.CompletableFuture
import java.util.concurrent.Executor
import kotlin.coroutines.Continuation
import kotlin.coroutines.EmptyCoroutineContext
import kotlin.coroutines.startCoroutine

/** CheckSuspending MODEL DEVICE INPUT OUTPUT: one run in a coroutine, on another thread, and an error that it throws. */
fun main(given: Array<String>) {
    val worker = Executor { work -> Thread(work, "worker").start() }
    val end = CompletableFuture<Unit>()
    suspend {
        val options = Model.Options().apply { device = given[1] }
        val model = SuspendingModel.open(direct(given[0]), options, worker)
        check(Thread.currentThread().name == "worker")
        val outputs = Model.buffers(model.model.outputs)
        model.run(arrayOf(direct(given[2])), outputs)
        File(given[3]).writeBytes(ByteArray(outputs[0].capacity()).also { outputs[0].get(it) })
        try {
            model.run(Model.VideoFrame(4, 4), outputs)
            error("a frame without planes")
        } catch (refused: Model.Error) {
            check(refused.status == Model.Error.ARGUMENT)
        }
        model.close()
    }.startCoroutine(Continuation<Unit>(EmptyCoroutineContext) { ended ->
        ended.fold({ end.complete(it) }, { end.completeExceptionally(it) })
    })
    end.get()
}

private fun direct(path: String): ByteBuffer {
    val content = File(path).readBytes()
    return ByteBuffer.allocateDirect(content.size).order(java.nio.ByteOrder.nativeOrder()).put(content)
}
