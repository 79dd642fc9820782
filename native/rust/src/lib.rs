//! Runs compiled models (`imgconv compile`) on OpenCL devices. imgconv.h documents the underlying C interface.
//!
//! ```no_run
//! let model = imgconv::Model::open("model.imgconv", &imgconv::Options::default())?;
//! let (pixels, mut scores) = (vec![0f32; 3 * 224 * 224], vec![0f32; 1000]);
//! model.run(&[pixels[..].into()], &mut [(&mut scores[..]).into()])?;
//! # Ok::<(), imgconv::Error>(())
//! ```
//!
//! Calls have no time limit, because after a timeout the driver might still write to memory that Rust has freed.

mod c;

use std::ffi::{CStr, CString};
use std::os::raw::{c_char, c_int, c_void};
use std::path::Path;
use std::{fmt, marker, mem, ptr, slice};

/// The failure of a call. `status`: a value of imgconv_status in imgconv.h.
#[derive(Debug, Clone)]
pub struct Error {
    pub status: i32,
    pub message: String,
}

/// The status of an invalid argument.
pub const ERROR_ARGUMENT: i32 = 1;

impl fmt::Display for Error {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

/// Options for opening a model: imgconv_options in imgconv.h. The defaults are the library's.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The device: its index, or a part of its platform, name or OpenCL C version.
    pub device: Option<String>,
    /// An existing folder for compiled programs, which make the next opening fast.
    pub cache_folder: Option<String>,
    /// Selects a size of a file that was compiled for several: `x=1,3,480,640`.
    pub shapes: Option<String>,
    /// The milliseconds that opening may spend on finding faster kernels.
    pub tune_ms: u32,
}

/// An input or an output. `dtype`: numpy's name of its type, such as `float32`.
#[derive(Debug, Clone)]
pub struct Tensor {
    pub name: String,
    pub dtype: String,
    pub shape: Vec<i64>,
    pub bytes: usize,
}

/// A plane of a frame. Offset and strides are in bytes; a stride of 0 means no gaps.
#[derive(Debug, Clone, Copy)]
pub struct Plane<'a> {
    pub data: &'a [u8],
    pub offset: usize,
    pub row_stride: i32,
    pub pixel_stride: i32,
}

/// A camera frame in its memory layout: imgconv_video_frame. `region`: left, top, width and height of the used region,
/// all 0 for the whole frame.
#[derive(Debug, Clone, Default)]
pub struct VideoFrame<'a> {
    pub planes: Vec<Plane<'a>>,
    pub width: u32,
    pub height: u32,
    pub rotation: u32,
    pub mirror: bool,
    pub region: [u32; 4],
}

/// An element type of tensors. f16 is `u16`, bool is `u8`.
pub trait Element: private::Sealed {
    const DTYPES: &'static [&'static str];
}

mod private {
    pub trait Sealed {}
}

macro_rules! elements {
    ($($kind:ty: $names:expr),*) => {$(
        impl private::Sealed for $kind {}
        impl Element for $kind {
            const DTYPES: &'static [&'static str] = &$names;
        }
    )*};
}

elements!(f32: ["float32"], f64: ["float64"], i8: ["int8"], u8: ["uint8", "bool"], i16: ["int16"],
    u16: ["uint16", "float16"], i32: ["int32"], u32: ["uint32"], i64: ["int64"], u64: ["uint64"]);

/// An input: a slice, or a frame if the model was compiled with `--picture`.
pub enum Input<'a> {
    Slice(Slice<'a>),
    Frame(VideoFrame<'a>),
}

/// An output: the slice that receives it.
pub struct Output<'a>(Slice<'a>);

/// Borrowed memory. `dtypes`: the dtypes that it can hold; empty for bytes of any dtype.
pub struct Slice<'a> {
    data: *mut c_void,
    bytes: usize,
    dtypes: &'static [&'static str],
    borrowed: marker::PhantomData<&'a u8>,
}

impl<'a> Slice<'a> {
    fn of<T>(data: *const T, count: usize, dtypes: &'static [&'static str]) -> Slice<'a> {
        let (data, bytes) = (data as *mut c_void, count * mem::size_of::<T>());
        Slice { data, bytes, dtypes, borrowed: marker::PhantomData }
    }
}

impl<'a> Input<'a> {
    /// The bytes of an array of any dtype, aligned to 8.
    pub fn bytes(array: &'a [u8]) -> Input<'a> {
        Input::Slice(Slice::of(array.as_ptr(), array.len(), &[]))
    }
}

impl<'a> Output<'a> {
    /// The bytes of an array of any dtype, aligned to 8.
    pub fn bytes(array: &'a mut [u8]) -> Output<'a> {
        Output(Slice::of(array.as_mut_ptr(), array.len(), &[]))
    }
}

impl<'a, T: Element> From<&'a [T]> for Input<'a> {
    fn from(slice: &'a [T]) -> Self {
        Input::Slice(Slice::of(slice.as_ptr(), slice.len(), T::DTYPES))
    }
}

impl<'a, T: Element> From<&'a mut [T]> for Output<'a> {
    fn from(slice: &'a mut [T]) -> Self {
        Output(Slice::of(slice.as_mut_ptr(), slice.len(), T::DTYPES))
    }
}

/// A compiled model on a device. If threads share it, their calls run one after another.
pub struct Model {
    raw: *mut c::Model,
    inputs: Vec<Tensor>,
    outputs: Vec<Tensor>,
}

// imgconv.h: the functions of one model may be called by several threads.
unsafe impl Send for Model {}
unsafe impl Sync for Model {}

impl Model {
    /// Opens a file, and compiles its kernels unless they are in `cache_folder`. Do not truncate the file meanwhile.
    pub fn open(path: impl AsRef<Path>, options: &Options) -> Result<Model, Error> {
        let path = text(&path.as_ref().to_string_lossy())?;
        Model::made(options, |options, model, error| unsafe {
            c::imgconv_open_file(path.as_ptr(), options, model, error)
        })
    }

    /// Opens a model whose file is in memory. The memory is not needed afterwards.
    pub fn from_bytes(file: &[u8], options: &Options) -> Result<Model, Error> {
        Model::made(options, |options, model, error| unsafe {
            c::imgconv_open_memory(file.as_ptr() as *const c_void, file.len(), options, model, error)
        })
    }

    fn made(
        options: &Options,
        open: impl FnOnce(*const c::Options, *mut *mut c::Model, *mut c::Error) -> c_int,
    ) -> Result<Model, Error> {
        let texts = [&options.device, &options.cache_folder, &options.shapes];
        let texts = texts.iter().map(|each| each.as_deref().map(text).transpose()).collect::<Result<Vec<_>, _>>()?;
        let pointer = |number: usize| texts[number].as_ref().map_or(ptr::null(), |text| text.as_ptr());
        // All zeros are valid, and the defaults.
        let mut given: c::Options = unsafe { mem::zeroed() };
        given.device = pointer(0);
        given.cache_folder = pointer(1);
        given.shapes = pointer(2);
        given.timeout_ms = u32::MAX;
        given.tune_ms = options.tune_ms;
        let mut raw = ptr::null_mut();
        checked(|error| open(&given, &mut raw, error))?;
        let mut model = Model { raw, inputs: Vec::new(), outputs: Vec::new() };
        model.inputs = tensors(raw, unsafe { c::imgconv_input_count(raw) }, c::imgconv_input);
        model.outputs = tensors(raw, unsafe { c::imgconv_output_count(raw) }, c::imgconv_output);
        Ok(model)
    }

    pub fn inputs(&self) -> &[Tensor] {
        &self.inputs
    }

    pub fn outputs(&self) -> &[Tensor] {
        &self.outputs
    }

    /// Returns JSON with the task, head and labels of the outputs: see imgconv_description. Empty if the file has none.
    pub fn description(&self) -> &str {
        unsafe { CStr::from_ptr(c::imgconv_description(self.raw)) }.to_str().unwrap_or("")
    }

    /// Runs the model once, with a slice or a frame for each input and a slice for each output, in their order.
    pub fn run(&self, inputs: &[Input<'_>], outputs: &mut [Output<'_>]) -> Result<(), Error> {
        let count = (inputs.len(), outputs.len());
        if count != (self.inputs.len(), self.outputs.len()) {
            let wanted = (self.inputs.len(), self.outputs.len());
            return Err(refused(format!("the model has {} inputs and {} outputs, not {} and {}",
                wanted.0, wanted.1, count.0, count.1)));
        }
        let frames = inputs.iter().map(frame).collect::<Result<Vec<_>, _>>()?;
        let mut given = Vec::new();
        for ((input, frame), tensor) in inputs.iter().zip(&frames).zip(&self.inputs) {
            given.push(match (input, frame) {
                (Input::Slice(slice), _) => array(slice, tensor)?,
                (_, Some(frame)) => c::Array { video_frame: frame, ..NO_ARRAY },
                (_, None) => NO_ARRAY,
            });
        }
        let wanted = outputs.iter().zip(&self.outputs).map(|(output, tensor)| array(&output.0, tensor));
        let wanted = wanted.collect::<Result<Vec<_>, _>>()?;
        checked(|error| unsafe {
            c::imgconv_run(self.raw, given.as_ptr(), given.len(), wanted.as_ptr(), wanted.len(), error)
        })
    }

    /// Sets the model's states, which persist from run to run, to zero.
    pub fn reset(&self) -> Result<(), Error> {
        checked(|error| unsafe { c::imgconv_reset(self.raw, error) })
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        unsafe { c::imgconv_close(self.raw) }
    }
}

const NO_ARRAY: c::Array =
    c::Array { data: ptr::null_mut(), bytes: 0, memory: ptr::null_mut(), video_frame: ptr::null() };

fn array(slice: &Slice<'_>, tensor: &Tensor) -> Result<c::Array, Error> {
    if slice.dtypes.is_empty() && slice.data as usize % 8 != 0 {
        return Err(refused(format!("the bytes for '{}' are not aligned to 8", tensor.name)));
    }
    if !slice.dtypes.is_empty() && !slice.dtypes.contains(&tensor.dtype.as_str()) {
        return Err(refused(format!("'{}' is {}; given is {}", tensor.name, tensor.dtype, slice.dtypes[0])));
    }
    Ok(c::Array { data: slice.data, bytes: slice.bytes, ..NO_ARRAY })
}

fn frame(input: &Input<'_>) -> Result<Option<c::VideoFrame>, Error> {
    let frame = match input {
        Input::Slice(_) => return Ok(None),
        Input::Frame(frame) => frame,
    };
    // All zeros are valid, and the defaults.
    let mut made: c::VideoFrame = unsafe { mem::zeroed() };
    if frame.planes.len() > made.planes.len() {
        return Err(refused(format!("a frame has at most {} planes", made.planes.len())));
    }
    for (to, plane) in made.planes.iter_mut().zip(&frame.planes) {
        to.data = plane.data.as_ptr() as *const c_void;
        to.bytes = plane.data.len();
        to.offset = plane.offset;
        to.row_stride = plane.row_stride;
        to.pixel_stride = plane.pixel_stride;
    }
    made.plane_count = frame.planes.len() as u32;
    made.width = frame.width;
    made.height = frame.height;
    made.rotation = frame.rotation;
    made.mirror = c_int::from(frame.mirror);
    made.region = frame.region;
    Ok(Some(made))
}

type Describe = unsafe extern "C" fn(*const c::Model, usize, *mut c::Tensor) -> c_int;

fn tensors(model: *const c::Model, count: usize, describe: Describe) -> Vec<Tensor> {
    let copied = |text: *const c_char| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
    let tensor = |number| {
        let mut read: c::Tensor = unsafe { mem::zeroed() };
        unsafe { describe(model, number, &mut read) };
        let shape = if read.rank == 0 { &[][..] } else { unsafe { slice::from_raw_parts(read.shape, read.rank) } };
        Tensor { name: copied(read.name), dtype: copied(read.dtype_name), shape: shape.to_vec(), bytes: read.bytes }
    };
    (0..count).map(tensor).collect()
}

fn text(text: &str) -> Result<CString, Error> {
    CString::new(text).map_err(|_| refused(format!("{text:?} has a zero byte")))
}

fn refused(message: String) -> Error {
    Error { status: ERROR_ARGUMENT, message }
}

/// Calls a function of the library whose last argument is an imgconv_error.
fn checked(call: impl FnOnce(*mut c::Error) -> c_int) -> Result<(), Error> {
    let mut error = c::Error { status: 0, message: [0; 1024] };
    let status = call(&mut error);
    if status == 0 {
        return Ok(());
    }
    let message = unsafe { CStr::from_ptr(error.message.as_ptr()) }.to_string_lossy().into_owned();
    Err(Error { status, message })
}
