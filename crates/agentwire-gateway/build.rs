//! Compresses the files of the console, so that the binary holds them once and small.

use std::{env, error::Error, fs, path::Path};

use flate2::{Compression, GzBuilder};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=console");
    let root = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("console");
    let out = env::var("OUT_DIR")?;
    for entry in fs::read_dir(&root)?.chain(fs::read_dir(root.join("console"))?) {
        let path = entry?.path();
        if path.is_file() {
            let name = path.file_name().ok_or("a file has a name")?.to_string_lossy().into_owned();
            let packed = fs::File::create(Path::new(&out).join(format!("{name}.gz")))?;
            // The name of the system is not written: all systems make the same bytes.
            let mut encoder = GzBuilder::new().operating_system(255).write(packed, Compression::best());
            std::io::copy(&mut fs::File::open(&path)?, &mut encoder)?;
            encoder.finish()?;
        }
    }
    Ok(())
}
