//! Lists what a compiled file takes and gives, and runs it: `run MODEL [DEVICE INPUT... OUTPUT...]`. The files hold the
//! arrays' bytes.

use std::error::Error;
use std::{env, fs};

fn main() -> Result<(), Box<dyn Error>> {
    let given: Vec<String> = env::args().skip(1).collect();
    let path = given.first().ok_or("run MODEL [DEVICE INPUT... OUTPUT...]")?;
    let options = imgconv::Options { device: given.get(1).cloned(), ..Default::default() };
    let model = imgconv::Model::open(path, &options)?;
    for tensor in model.inputs().iter().chain(model.outputs()) {
        println!("{}: {} {:?}", tensor.name, tensor.dtype, tensor.shape);
    }
    println!("{}", model.description());
    if given.len() < 3 {
        return Ok(());
    }
    let (inputs, outputs) = given[2..].split_at(model.inputs().len().min(given.len() - 2));
    let inputs = inputs.iter().map(fs::read).collect::<Result<Vec<_>, _>>()?;
    let mut arrays: Vec<Vec<u8>> = model.outputs().iter().map(|tensor| vec![0; tensor.bytes]).collect();
    let inputs: Vec<_> = inputs.iter().map(|file| imgconv::Input::bytes(file)).collect();
    let mut wanted: Vec<_> = arrays.iter_mut().map(|array| imgconv::Output::bytes(array)).collect();
    model.run(&inputs, &mut wanted)?;
    for (path, array) in outputs.iter().zip(&arrays) {
        fs::write(path, array)?;
    }
    Ok(())
}
