//! Finds objects in a camera's NV12 frames, which lie in a file one after another, rows padded, turned by 90 degrees:
//!
//!     imgconv compile yolox_nano.onnx --picture nv12 480x640 --task detect --head yolox
//!     cargo run --example camera yolox_nano.imgconv FRAMES WIDTH HEIGHT ROW_STRIDE [DEVICE]

use imgconv::{Input, Model, Options, Plane, VideoFrame};
use std::error::Error;
use std::{env, fs};

fn main() -> Result<(), Box<dyn Error>> {
    let given: Vec<String> = env::args().skip(1).collect();
    if given.len() < 5 {
        return Err("camera MODEL FRAMES WIDTH HEIGHT ROW_STRIDE [DEVICE]".into());
    }
    let (width, height, stride): (u32, u32, i32) = (given[2].parse()?, given[3].parse()?, given[4].parse()?);
    let model = Model::open(&given[0], &Options { device: given.get(5).cloned(), ..Options::default() })?;
    let names: Vec<&str> = model.outputs().iter().map(|tensor| tensor.name.as_str()).collect();
    if names != ["boxes", "scores", "classes", "count"] {
        return Err(format!("{} gives {:?}: compile it with --task detect --head", given[0], names).into());
    }
    let most = model.outputs()[1].shape[0] as usize;
    let (mut boxes, mut scores) = (vec![0f32; most * 4], vec![0f32; most]);
    let (mut classes, mut count) = (vec![0i32; most], [0i32]);
    let luma = stride as usize * height as usize;
    for (number, data) in fs::read(&given[1])?.chunks_exact(luma * 3 / 2).enumerate() {
        let y = Plane { data, offset: 0, row_stride: stride, pixel_stride: 1 };
        let uv = Plane { data, offset: luma, row_stride: stride, pixel_stride: 2 };
        let frame = VideoFrame { planes: vec![y, uv], width, height, rotation: 90, ..VideoFrame::default() };
        let outputs = &mut [
            (&mut boxes[..]).into(), (&mut scores[..]).into(), (&mut classes[..]).into(), (&mut count[..]).into(),
        ];
        model.run(&[Input::Frame(frame)], outputs)?;
        for i in 0..count[0] as usize {
            let corners = &boxes[4 * i..4 * i + 4];
            print!("{} {} {:.4}", number, classes[i], scores[i]);
            println!(" {:.2} {:.2} {:.2} {:.2}", corners[0], corners[1], corners[2], corners[3]);
        }
    }
    Ok(())
}
