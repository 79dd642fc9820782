//! Finds libimgconv.so: in the folder IMGCONV_LIBRARY_DIR, which the examples then search at run time too, or where the
//! linker searches.

fn main() {
    println!("cargo:rustc-link-lib=imgconv");
    println!("cargo:rerun-if-env-changed=IMGCONV_LIBRARY_DIR");
    if let Ok(folder) = std::env::var("IMGCONV_LIBRARY_DIR") {
        println!("cargo:rustc-link-search=native={folder}");
        println!("cargo:rustc-link-arg-examples=-Wl,-rpath,{folder}");
    }
}
