//! The declarations of imgconv.h that the crate uses. Later versions of the library append fields whose default is 0;
//! `reserved` is room for them.

use std::os::raw::{c_char, c_int, c_void};

pub enum Model {}

#[repr(C)]
pub struct Error {
    pub status: c_int,
    pub message: [c_char; 1024],
}

#[repr(C)]
pub struct Tensor {
    pub name: *const c_char,
    pub dtype: c_int,
    pub dtype_name: *const c_char,
    pub rank: usize,
    pub shape: *const i64,
    pub bytes: usize,
    pub reserved: [usize; 16],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Plane {
    pub data: *const c_void,
    pub bytes: usize,
    pub offset: usize,
    pub row_stride: i32,
    pub pixel_stride: i32,
    pub memory: *mut c_void,
}

#[repr(C)]
pub struct VideoFrame {
    pub planes: [Plane; 3],
    pub plane_count: u32,
    pub width: u32,
    pub height: u32,
    pub rotation: u32,
    pub mirror: c_int,
    pub region: [u32; 4], // left, top, width, height
    pub reserved: [usize; 16],
}

#[repr(C)]
pub struct Array {
    pub data: *mut c_void,
    pub bytes: usize,
    pub memory: *mut c_void,
    pub video_frame: *const VideoFrame,
}

#[repr(C)]
pub struct Options {
    pub device: *const c_char,
    pub cache_folder: *const c_char,
    pub frames: u32,
    pub profile: c_int,
    pub timeout_ms: u32,
    pub check: c_int,
    pub shapes: *const c_char,
    pub tune_ms: u32,
    pub reserved: [usize; 32],
}

extern "C" {
    pub fn imgconv_open_file(
        path: *const c_char, options: *const Options, model: *mut *mut Model, error: *mut Error,
    ) -> c_int;
    pub fn imgconv_open_memory(
        data: *const c_void, bytes: usize, options: *const Options, model: *mut *mut Model, error: *mut Error,
    ) -> c_int;
    pub fn imgconv_close(model: *mut Model);
    pub fn imgconv_input_count(model: *const Model) -> usize;
    pub fn imgconv_output_count(model: *const Model) -> usize;
    pub fn imgconv_input(model: *const Model, number: usize, tensor: *mut Tensor) -> c_int;
    pub fn imgconv_output(model: *const Model, number: usize, tensor: *mut Tensor) -> c_int;
    pub fn imgconv_description(model: *const Model) -> *const c_char;
    pub fn imgconv_run(
        model: *mut Model, inputs: *const Array, input_count: usize, outputs: *const Array, output_count: usize,
        error: *mut Error,
    ) -> c_int;
    pub fn imgconv_reset(model: *mut Model, error: *mut Error) -> c_int;
}
