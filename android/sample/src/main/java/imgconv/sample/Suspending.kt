package imgconv.sample

import imgconv.Model
import java.nio.ByteBuffer
import java.util.concurrent.Executor
import kotlin.coroutines.suspendCoroutine

/** Models in coroutines, without a library of coroutines: calls that block run on `executor`, which has a thread for them. */
class SuspendingModel private constructor(val model: Model, private val executor: Executor) : AutoCloseable {

    suspend fun run(inputs: Array<ByteBuffer>, outputs: Array<ByteBuffer>) = executor.await { model.run(inputs, outputs) }

    /** The frame's memory is read where it is: an Image stays open until this returns. */
    suspend fun run(frame: Model.VideoFrame, outputs: Array<ByteBuffer>) = executor.await { model.run(frame, outputs) }

    override fun close() = model.close()

    companion object {
        /** Opens a compiled file in a direct buffer. */
        suspend fun open(file: ByteBuffer, options: Model.Options, executor: Executor) =
            SuspendingModel(executor.await { Model(file, options) }, executor)
    }
}

private suspend fun <T> Executor.await(work: () -> T): T = suspendCoroutine { continuation ->
    execute { continuation.resumeWith(runCatching(work)) }
}
